"""A study with what it works on: its file, its trainer, its devices, its folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.devices.base import device_variables, open_devices
from tuner.devices.cards import Cards, Occupancy
from tuner.devices.idle import grown, wait_until_idle
from tuner.devices.topology import links, nccl_variables
from tuner.errors import DeviceError, StudyError
from tuner.probe.clock import MonotonicClock
from tuner.probe.metrics import check_metrics
from tuner.probe.plan import Device, ProbePlan
from tuner.probe.protocols import DeviceSource, Trainer
from tuner.probe.recorder import SamplingRecorder
from tuner.probe.result import Failure, ProbeResult, unlaunched
from tuner.probe.run import run
from tuner.probe.session import Sessions
from tuner.probe.stop import Interrupted, Stop
from tuner.search.trials import PATIENCE
from tuner.study.cases import Case
from tuner.study.load import DeviceKind, load, narrowed
from tuner.study.space import LADDER, Config, Space, every
from tuner.study.spec import StudySpec
from tuner.trainers.base import open_trainer, split_parameters
from tuner.trainers.parameters import LadderEnd, check_values, ladder_end

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
    rungs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Case → the rungs of its `auto` ladder, where they are fixed."""
    holds: Callable[[Config], bool] = every
    """Tells which configs can be measured at all."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that every probe runs on."""
        return self.source.devices

    @property
    def kind(self) -> DeviceKind:
        """What the devices are."""
        return "gpu" if self.devices[0].is_gpu else "cpu"

    def spec_for(self, case: Case) -> StudySpec:
        """Give the study as it reads for this case on these devices; several objectives go without a pruner."""
        spec = narrowed(self.spec, case.name, self.kind)
        if len(spec.objectives) == 1:
            return spec
        return spec.model_copy(update={"pruner": spec.pruner.model_copy(update={"name": "none"})})

    def space_for(self, case: Case) -> Space:
        """Give the space that is really searched: what `holds` admits, without `not_searched`, cut as `cut_for` says.

        An `auto` ladder has the rungs in `rungs` or, before they are fixed, the doublings it begins with.
        Raises StudyError when nothing is left, TrainerError for a value that the trainer cannot use.
        """
        spec = self.spec_for(case)
        space = spec.build_space()
        left_out = not_searched(spec, self.trainer)
        searched = space.restricted_to(set(space.names) - left_out.keys())
        searched = replace(searched, holds=self.holds)
        if not searched.parameters:
            whys = "; ".join(f"{name}: {why}" for name, why in left_out.items())
            raise StudyError(f"nothing to search for {case.name}: every parameter of its space is left out ({whys})")
        check_values(self.trainer, searched.parameters)
        if searched.auto_bounds and case.name in self.rungs:
            searched = searched.with_rungs(self.rungs[case.name])
        cut = self.cut_for(case)
        return searched.up_to(cut.num_envs) if cut else searched

    def cut_for(self, case: Case) -> LadderEnd | None:
        """Say where the trainer cuts the case's ladder short; None where the study's own reaches no further.

        Raises StudyError when not even the smallest rung is left.
        """
        end = ladder_end(self.trainer, case)
        rungs = [rung for rung in self.spec_for(case).build_space().values(LADDER) if not isinstance(rung, str)]
        if end is None or not rungs or max(rungs) <= end.num_envs:
            return None
        if min(rungs) > end.num_envs:
            raise StudyError(
                f"no rung is left for {case.name}: the smallest is {min(rungs)}, and {self.trainer.name} can run "
                f"{LADDER} up to {end.num_envs}: {end.reason}"
            )
        return end

    def calibrates(self, case: Case) -> bool:
        """Tell whether the case has an `auto` ladder whose rungs are not known here."""
        return case.name not in self.rungs and self.space_for(case).auto_bounds is not None

    def with_rungs(self, case: Case, rungs: tuple[int, ...]) -> "Workbench":
        """Give the bench with the rungs of the case's `auto` ladder."""
        return replace(self, rungs={**self.rungs, case.name: rungs})

    def study_name(self, case: Case) -> str:
        """Name the case's study in the database."""
        return f"{self.spec.name}/{case.name}"

    def identity_for(self, case: Case) -> dict[str, Any]:
        """Say what makes trials of this case comparable; a resumed study must not differ in it."""
        spec = self.spec_for(case)
        constraints = spec.build_constraints()
        return {
            "space": self.space_for(case).describe(),
            "trainer": self.trainer.fingerprint(),
            **({"pruner": spec.pruner.model_dump(mode="json")} if spec.pruner.name != "none" else {}),
            "objective": spec.objective,
            **({"constraints": {one.metric: str(one) for one in constraints}} if constraints else {}),
            "iterations": [spec.probe.warmup_iterations, spec.probe.iterations],
            "source": self.source.label,
            "devices": [f"{device.name} {device.model}" for device in self.devices],
        }


def open_workbench(study: str, *, devices: str | None = None, runs: Path = Path("runs")) -> Workbench:
    """Load a study and open its trainer and devices; `devices` overrides the study file's.

    Raises StudyError, TrainerError or DeviceError.
    """
    spec = load(study)
    check_metrics(spec)
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


class Prober:
    """Probes for real on a bench: waits for idle cards, starts the trainer or asks the open session, and measures.

    What the cards hold when it is made counts as belonging there. Close it to end the session that is still open.
    """

    def __init__(self, bench: Workbench, say: Callable[[str], None] = lambda _: None) -> None:
        """`say` tells the user what keeps the tuner waiting. Raises DeviceError when a card cannot be read."""
        self._say = say
        self._said = False
        self._source = bench.source
        self._clock = MonotonicClock()
        self._cards = Cards(bench.devices)
        self._at_open = self._cards.occupancy()
        self._sessions = Sessions(self._clock)
        self._after_first: Sequence[Occupancy] | None = None

    @property
    def open_session(self) -> str | None:
        """The key of the session that is open, if one is."""
        return self._sessions.open_key

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        """Probe once. Raises OutputError or TrainerError when the tuner's own side fails."""
        warm = plan.request is not None
        if not (warm and plan.session_key == self.open_session):
            self.close()
            if busy := self._wait_until_idle(plan, stop):
                return unlaunched(plan.config, busy, plan.digest)
        recorder = SamplingRecorder(self._source, self._clock, plan.slot.limits.sample_seconds)
        result = run(plan, launch=self._sessions, recorder=recorder, clock=self._clock, stop=stop)
        result = replace(result, warm=warm, ready_s=self._sessions.ready_s)
        if result.failure or self._leaks():
            self.close()
        self._say_what_is_left()
        return result

    def close(self) -> None:
        """End the open session, if there is one, and wait for it."""
        self._sessions.close()
        self._after_first = None
        self._say_what_is_left()

    def _say_what_is_left(self) -> None:
        left = self._sessions.left
        if left and not self._said:
            self._say(f"{left} outlives its probe and cannot be killed; no other probe starts before it has ended")
        self._said = left is not None

    def _wait_until_idle(self, plan: ProbePlan, stop: Stop) -> Failure | None:
        return wait_until_idle(
            self._cards.occupancy,
            self._at_open,
            limit_s=plan.slot.limits.idle_seconds,
            clock=self._clock,
            sleep=time.sleep,
            interrupted=lambda: stop(None) == Interrupted(),
            left=lambda: self._sessions.left,
        )

    def _leaks(self) -> bool:
        """Tell whether the open session holds more memory between two runs than after its first one, or may do so."""
        try:
            now = self._cards.occupancy() if self.open_session else []
        except DeviceError:
            return True
        if self._after_first is None:
            self._after_first = now
        return grown(now, self._after_first)


def not_searched(spec: StudySpec, trainer: Trainer) -> dict[str, str]:
    """Give the study's parameters that nothing would read → why.

    Raises TrainerError for a parameter that this trainer has never heard of.
    """
    _, declined = split_parameters(trainer, spec.space)
    idle = {name: f"no config has {condition}" for name, condition in spec.build_space().idle.items()}
    if PATIENCE in spec.space and spec.pruner.name != "hyperband_patient":
        idle[PATIENCE] = "no probe is pruned" if spec.pruner.name == "none" else f"the pruner is {spec.pruner.name}"
    return idle | declined
