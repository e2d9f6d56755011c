"""Probes of chosen configs, as the benchmarks repeat them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import fmean

from tuner.errors import StudyError
from tuner.probe.metrics import error, value
from tuner.probe.probe_plan import ProbePlan, Slot
from tuner.probe.process import reserved_port
from tuner.probe.protocols import Answer, DeviceSource, Enough, Go, Stop
from tuner.probe.result import DeviceSample, ProbeResult
from tuner.probe.steady import error_of_mean
from tuner.running.workbench import Probe, Workbench
from tuner.search.verdict import settled
from tuner.study.cases import Case
from tuner.study.space import Config, Space
from tuner.study.spec import ProbeSpec


class Bench:
    """A case on a workbench, probed config by config with the same prober and limits."""

    def __init__(self, bench: Workbench, case: Case, probe: Probe, folder: Path) -> None:
        self.workbench = bench
        self.case = case
        self.limits = bench.spec_for(case).probe
        self._probe = probe
        self._out_dirs = (folder / str(number) for number in count())

    def probe(
        self, config: Config, *, warm: bool = False, limits: ProbeSpec | None = None, stop: Stop | None = None
    ) -> ProbeResult:
        """Probe once, by default until the value is known as precisely as the study asks."""
        limits = limits or self.limits
        with reserved_port() as port:
            plan = self._plan(config, limits, port, warm=warm)
            return self._probe(plan, stop or self._precise)

    def _plan(self, config: Config, limits: ProbeSpec, port: int, *, warm: bool) -> ProbePlan:
        bench = self.workbench
        out_dir = next(self._out_dirs)
        slot = Slot(devices=bench.devices, out_dir=out_dir, port=port, limits=limits, variables=bench.variables)
        plan = (bench.trainer.warm_plan if warm else bench.trainer.plan)(self.case, config, slot)
        if plan is None:
            raise StudyError(f"{bench.trainer.name} has no sessions for {self.case.name}")
        return plan

    def _precise(self, so_far: ProbeResult | None) -> Answer:
        return settled(so_far, self.workbench.spec.objectives, self.limits) if so_far else Go()


@dataclass(frozen=True, slots=True)
class Reading:
    """The mean of a metric over probes of one config with its standard error, or the failure."""

    value: float | None = None
    error: float | None = None
    failure: str = ""

    @property
    def cells(self) -> list[str]:
        """The value or the failure, and the error, as two cells of a table."""
        number = self.failure if self.value is None else f"{self.value:.2f}"
        return [number, "" if self.error is None else f"{self.error:.2f}"]


def pooled(probes: Sequence[ProbeResult], objective: str) -> Reading:
    """Pool probes of one config. One failure among them is the failure of all."""
    for one in probes:
        if one.failure:
            return Reading(failure=one.failure.kind.value)
    values = [value(one, objective) or 0.0 for one in probes]
    return Reading(fmean(values), error_of_mean(values, [error(one, objective) for one in probes]))


def window_of(seconds: float) -> Stop:
    """Stop a probe once its window is this long."""
    return lambda so_far: Enough() if so_far and (so_far.window_s or 0.0) >= seconds else Go()


def chosen(space: Space, settings: Sequence[str]) -> list[Config]:
    """Return the space's first seed, changed by each setting in turn, such as `num_envs=1024,agent_variant=default`.

    Raises StudyError for a name or value that is not in the space.
    """
    return [_changed(space, setting) for setting in settings] or space.seeds(1)[:1]


def _changed(space: Space, setting: str) -> Config:
    changes = dict(part.split("=", 1) for part in setting.split(",") if "=" in part)
    known = {name: {str(value): value for value in space.values(name)} for name in space.names}
    try:
        wanted = {name: known[name][text] for name, text in changes.items()}
    except KeyError as error:
        raise StudyError(f"{setting}: {error} is not in the space of {', '.join(space.names)}") from error
    seed = space.seeds(1)[0]
    return space.draw(lambda parameter: wanted.get(parameter.name, seed.get(parameter.name, parameter.values[0])))


class Listening:
    """A source of devices that keeps the samples since `begin`, on the probe's clock."""

    def __init__(self, source: DeviceSource) -> None:
        self.label, self.devices, self.attach = source.label, source.devices, source.attach
        self._read: Callable[[float], Sequence[DeviceSample]] = source.sample
        self.samples: list[DeviceSample] = []

    def begin(self) -> None:
        self.samples = []

    def sample(self, t_s: float) -> Sequence[DeviceSample]:
        samples = self._read(t_s)
        self.samples += samples
        return samples
