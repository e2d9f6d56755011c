"""The one run of a command that `tuner init` watches, launched in the way that a probe is."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner.devices.base import open_devices
from tuner.drafting.draft import Draft
from tuner.drafting.watching import Watched, watch
from tuner.errors import TrainerError
from tuner.probe.clock import MonotonicClock
from tuner.probe.plan import Device, Slot
from tuner.probe.process import Launcher
from tuner.probe.recorder import SamplingRecorder
from tuner.running.launching import run_in
from tuner.study.spec import StudySpec
from tuner.trainers.command import CommandTrainer
from tuner.workbench import launch_variables


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstRun:
    """What a watched command showed, and on which devices."""

    watched: Watched
    devices: tuple[Device, ...]


def first_run(name: str, draft: Draft, folder: Path, limit_s: float) -> FirstRun:
    """Run a draft's command with its own values and watch it; its files go to `folder`.

    Raises TrainerError where the command cannot be understood, DeviceError where devices cannot be read.
    """
    spec = StudySpec.model_validate({"name": name, "trainer": draft.trainer, "space": draft.space()})
    trainer, source, clock = CommandTrainer(spec.trainer), open_devices(draft.devices), MonotonicClock()
    if program := trainer.missing_program():
        raise TrainerError(
            f"no program {program} is found; activate the environment that has it, or name its Python by --python"
        )
    variables = launch_variables(spec, source)
    watched = run_in(
        Slot(devices=source.devices, out_dir=folder.resolve(), limits=spec.probe, variables=variables),
        partial(trainer.plan, trainer.cases()[0], draft.config),
        partial(
            watch,
            launch=Launcher(clock),
            recorder=SamplingRecorder(source, clock, spec.probe.sample_seconds),
            clock=clock,
            limit_s=limit_s,
            likely=draft.likely,
        ),
    )
    return FirstRun(watched=watched, devices=source.devices)
