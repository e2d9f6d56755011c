"""The one run of a command that `tuner init` watches, launched in the way that a probe is."""

from dataclasses import dataclass
from pathlib import Path

from tuner.devices.base import open_devices
from tuner.drafting.draft import Draft
from tuner.drafting.watching import Watched, watch
from tuner.errors import TrainerError
from tuner.probe.clock import MonotonicClock
from tuner.probe.out_dir import reserved_out_dir
from tuner.probe.plan import Device, ProbePlan, Slot
from tuner.probe.port import reserved_port
from tuner.probe.process import Launcher
from tuner.probe.protocols import DeviceSource
from tuner.probe.recorder import SamplingRecorder
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
    source = open_devices(draft.devices)
    clock = MonotonicClock()
    with reserved_out_dir(folder.resolve()) as out_dir, reserved_port() as port:
        plan = _plan(spec, draft, source, out_dir, port)
        recorder = SamplingRecorder(source, clock, spec.probe.sample_seconds)
        watched = watch(
            plan, launch=Launcher(clock), recorder=recorder, clock=clock, limit_s=limit_s, likely=draft.likely
        )
    return FirstRun(watched=watched, devices=source.devices)


def _plan(spec: StudySpec, draft: Draft, source: DeviceSource, out_dir: Path, port: int) -> ProbePlan:
    trainer = CommandTrainer(spec.trainer)
    if program := trainer.missing_program():
        raise TrainerError(
            f"no program {program} is found; activate the environment that has it, or name its Python by --python"
        )
    slot = Slot(
        devices=source.devices,
        out_dir=out_dir,
        port=port,
        limits=spec.probe,
        variables=launch_variables(spec, source),
    )
    return trainer.plan(trainer.cases()[0], draft.config, slot)
