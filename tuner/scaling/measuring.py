"""Measures runs on real devices: one prober per team, so that started programs serve run after run."""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.devices.base import device_variables, part_of
from tuner.devices.topology import nccl_variables
from tuner.errors import TrainerError
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.protocols import DeviceSource, Prober
from tuner.probe.result import ProbeResult
from tuner.probe.stop import Answer, Go, Interrupted, More, Stop
from tuner.running.launching import run_in
from tuner.scaling.planning import Run, Team
from tuner.scaling.results import Point
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import ProbeSpec
from tuner.trainers.base import Trainer

OpenProber = Callable[[DeviceSource], Prober]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A subject as it is launched."""

    trainer: Trainer
    case: Case
    limits: ProbeSpec
    config: Callable[[int | None, bool], Config]
    """Returns the config for a size. The flag says whether the ranks exchange data."""
    step_samples: Callable[[int, int], float] | None = None
    """Returns the samples of a step by size and number of ranks; None where only a probe can tell."""
    variables: Mapping[str, str] = field(default_factory=dict)


class Measuring:
    """Measures runs, one after another. `close` ends all started programs."""

    def __init__(
        self,
        source: DeviceSource,
        *,
        open_prober: OpenProber,
        folder: Path,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`source` has all devices of the machine; `folder` takes the files of the probes."""
        self._source = source
        self._open_prober = open_prober
        self._folder = folder
        self._interrupted = interrupted
        self._open: dict[Team, tuple[DeviceSource, Prober]] = {}

    def measure(self, run: Run, subject: Measured) -> list[Point]:
        """Measure a run and return a point for each of its teams.

        Raises DeviceError when a card does not answer, TrainerError where the trainer cannot be launched or counts no
        samples, and OutputError when a file cannot be written.
        """
        if self._open.keys() != set(run.teams):
            self.close()
            for team in run.teams:
                part = part_of(self._source, team.gpus)
                self._open[team] = part, self._open_prober(part)
        together = _Together(len(run.teams), subject.limits.window_seconds, self._interrupted)
        with ThreadPoolExecutor(len(run.teams)) as pool:
            waiting = [
                pool.submit(self._probe, run, subject, team, together, place) for place, team in enumerate(run.teams)
            ]
        results = [one.result() for one in waiting]
        return [_point(run, subject, team, result) for team, result in zip(run.teams, results, strict=True)]

    def close(self) -> None:
        """End all started programs and wait for them."""
        for _, prober in self._open.values():
            prober.close()
        self._open = {}

    def _probe(self, run: Run, subject: Measured, team: Team, together: "_Together", place: int) -> ProbeResult:
        config = subject.config(run.size, run.mode != "apart")
        source, prober = self._open[team]
        wanted = self._folder / "-".join(map(str, filter(None, (run.subject, run.size, run.mode, team.route))))
        variables = {
            **device_variables(source.devices),
            **nccl_variables("off" if team.route == "host" else "on", ()),
            **subject.variables,
        }

        def plan(slot: Slot) -> ProbePlan:
            warm = subject.trainer.warm_plan(subject.case, config, slot) if subject.limits.warm else None
            return warm or subject.trainer.plan(subject.case, config, slot)

        slot = Slot(devices=source.devices, out_dir=wanted, limits=subject.limits, variables=variables)
        try:
            return run_in(slot, plan, lambda planned: prober(planned, together.stop(place)))
        finally:
            together.ended(place)


class _Together:
    """Keeps probes that began together going until each has a long window, so that none works alone for long."""

    def __init__(self, probes: int, window_s: float, interrupted: Callable[[], bool]) -> None:
        self._windows_s = [0.0] * probes
        self._window_s = window_s
        self._interrupted = interrupted

    def ended(self, place: int) -> None:
        """Note that the probe at this place is over, so that no other probe waits for it."""
        self._windows_s[place] = math.inf

    def stop(self, place: int) -> Stop:
        """Return the `stop` of the probe at this place."""

        def answer(so_far: ProbeResult | None) -> Answer:
            if self._interrupted():
                return Interrupted()
            if so_far is None:
                return Go()
            self._windows_s[place] = so_far.window_s or 0.0
            return Go() if min(self._windows_s) >= self._window_s else More()

        return answer if len(self._windows_s) > 1 else self._alone

    def _alone(self, _: ProbeResult | None) -> Answer:
        return Interrupted() if self._interrupted() else Go()


def _point(run: Run, subject: Measured, team: Team, result: ProbeResult) -> Point:
    point = Point(
        workload=run.subject,
        size=run.size,
        mode=run.mode,
        gpus=team.gpus,
        route=team.route,
        beside=len(run.teams),
        window_s=result.window_s,
        devices=result.devices,
    )
    if result.failure:
        return replace(point, failure=result.failure.kind, detail=result.failure.detail)
    if not result.samples_per_s:
        raise TrainerError(
            f"{run.subject}: the trainer counts no samples, so nothing can be compared; let its progress report samples"
        )
    return replace(
        point,
        samples_per_s=result.samples_per_s,
        samples_per_s_se=result.samples_per_s_se,
        samples_per_step=_step_samples(run, subject, team, result),
    )


def _step_samples(run: Run, subject: Measured, team: Team, result: ProbeResult) -> float | None:
    if subject.step_samples is not None and run.size is not None:
        return subject.step_samples(run.size, len(team.gpus))
    if not result.samples_per_s or not result.trained_s or not result.iterations:
        return None
    return result.samples_per_s * result.trained_s / result.iterations
