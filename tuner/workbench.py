"""A study with what it works on: its file, its trainer, its devices, its folder."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.devices.base import device_variables, open_devices
from tuner.devices.cards import Cards
from tuner.devices.idle import wait_until_idle
from tuner.devices.topology import links, nccl_variables
from tuner.errors import StudyError
from tuner.probe.clock import MonotonicClock
from tuner.probe.metrics import OBJECTIVES
from tuner.probe.plan import Device, ProbePlan
from tuner.probe.process import Launcher
from tuner.probe.protocols import DeviceSource, Trainer
from tuner.probe.recorder import SamplingRecorder
from tuner.probe.result import ProbeResult, unlaunched
from tuner.probe.run import INTERRUPTED, Stop, run
from tuner.search.sampler import PATIENCE
from tuner.study.cases import Case
from tuner.study.load import DeviceKind, load, narrowed
from tuner.study.space import Space
from tuner.study.spec import StudySpec
from tuner.trainers.base import open_trainer, split_parameters

Probe = Callable[[ProbePlan, Stop], ProbeResult]
"""Probes once; what it is given stops it early."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workbench:
    """Everything a study needs to probe; opened once, before any probe."""

    spec: StudySpec
    asked_for: str
    """The study that the user named; differs from `spec.name` where its fallback stands in."""
    trainer: Trainer
    source: DeviceSource
    folder: Path
    """Of this study: database, probes and exports; absolute."""
    variables: Mapping[str, str]
    """What the trainer's processes find in their environment: visible cards, NCCL settings, the study's own."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that every probe runs on."""
        return self.source.devices

    @property
    def kind(self) -> DeviceKind:
        """What the devices are."""
        return "gpu" if self.devices[0].is_gpu else "cpu"

    def spec_for(self, case: Case) -> StudySpec:
        """Give the study as it reads for this case on these devices."""
        return narrowed(self.spec, case.name, self.kind)

    def space_for(self, case: Case) -> Space:
        """Give the space that is really searched: without the parameters in `not_searched`.

        Raises StudyError when nothing is left.
        """
        spec = self.spec_for(case)
        space = spec.build_space()
        searched = space.restricted_to(set(space.names) - set(not_searched(spec, self.trainer)))
        if not searched.parameters:
            raise StudyError(f"nothing to search for {case.name}: {self.trainer.name} varies none of {space.names}")
        return searched

    def identity_for(self, case: Case) -> dict[str, Any]:
        """Say what makes trials of this case comparable; a resumed study must not differ in it."""
        spec = self.spec_for(case)
        return {
            "space": self.space_for(case).describe(),
            "trainer": self.trainer.fingerprint(),
            "pruner": spec.pruner.model_dump(mode="json"),
            "objective": spec.objective,
            "iterations": [spec.probe.warmup_iterations, spec.probe.iterations],
            "source": self.source.label,
            "devices": [f"{device.name} {device.model}" for device in self.devices],
        }


def open_workbench(study: str, *, devices: str | None = None, runs: Path = Path("runs")) -> Workbench:
    """Load a study and open its trainer and devices; `devices` overrides the study file's.

    Raises StudyError, TrainerError or DeviceError.
    """
    spec = load(study)
    if spec.objective not in OBJECTIVES:
        raise StudyError(f"objective {spec.objective!r} is unknown; known: {', '.join(OBJECTIVES)}")
    trainer = open_trainer(spec.trainer)
    source = open_devices(devices or spec.devices)
    return Workbench(
        spec=spec,
        asked_for=study,
        trainer=trainer,
        source=source,
        folder=(runs / spec.name).resolve(),
        variables={
            **device_variables(source.devices),
            **nccl_variables(spec.environment.nccl_p2p, links(source.devices)),
            **spec.environment.variables,
        },
    )


def prober(bench: Workbench) -> Probe:
    """Give what probes for real on this bench: it waits for idle cards, then launches and measures.

    What the cards hold now counts as belonging there. Raises DeviceError when a card is lost.
    """
    clock = MonotonicClock()
    cards = Cards(bench.devices)
    at_open = cards.occupancy()

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        failure = wait_until_idle(
            cards.occupancy,
            at_open,
            limit_s=plan.slot.limits.idle_seconds,
            clock=clock,
            sleep=time.sleep,
            interrupted=lambda: stop(None) == INTERRUPTED,
        )
        if failure:
            return unlaunched(plan.config, failure, plan.digest)
        recorder = SamplingRecorder(bench.source, clock, plan.slot.limits.sample_seconds)
        return run(plan, launch=Launcher(clock), recorder=recorder, clock=clock, stop=stop)

    return probe


def not_searched(spec: StudySpec, trainer: Trainer) -> dict[str, str]:
    """Give the study's parameters that nothing would read → why.

    Raises TrainerError for a parameter that this trainer has never heard of.
    """
    _, declined = split_parameters(trainer, spec.space)
    if PATIENCE in spec.space and spec.pruner.name != "hyperband_patient":
        return {**declined, PATIENCE: f"the pruner is {spec.pruner.name}"}
    return declined
