"""The metrics of a probe: one row each; tables, objectives and report follow from here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuner.probe.result import DeviceSummary, ProbeResult


@dataclass(frozen=True, slots=True)
class Metric:
    """A number read off a result; None where the result does not hold it."""

    name: str
    unit: str
    of: Callable[[ProbeResult], float | None]
    objective: bool = False
    """Whether a study may maximise it."""


def _each(result: ProbeResult, value: Callable[[DeviceSummary], float | None]) -> list[float]:
    return [number for device in result.devices if (number := value(device)) is not None]


def _least(numbers: list[float]) -> float | None:
    return min(numbers, default=None)


def _most(numbers: list[float]) -> float | None:
    return max(numbers, default=None)


def _total(numbers: list[float]) -> float | None:
    return sum(numbers) if numbers else None


def _spread(numbers: list[float]) -> float | None:
    return max(numbers) - min(numbers) if numbers else None


METRICS: tuple[Metric, ...] = (
    Metric("min_avg_util", "%", lambda r: _least(_each(r, lambda d: d.util_mean_pct)), objective=True),
    Metric("min_avg_sm", "%", lambda r: _least(_each(r, lambda d: d.sm_mean_pct)), objective=True),
    Metric("samples_per_s", "1/s", lambda r: r.samples_per_s, objective=True),
    Metric("util_spread", "%", lambda r: _spread(_each(r, lambda d: d.util_mean_pct))),
    Metric("min_avg_occupancy", "%", lambda r: _least(_each(r, lambda d: d.occupancy_mean_pct))),
    Metric("min_avg_tensor", "%", lambda r: _least(_each(r, lambda d: d.tensor_mean_pct))),
    Metric("min_avg_dram", "%", lambda r: _least(_each(r, lambda d: d.dram_mean_pct))),
    Metric("mem_peak_mib", "MiB", lambda r: _most(_each(r, lambda d: d.mem_peak_mib))),
    Metric("power_mean_w", "W", lambda r: _total(_each(r, lambda d: d.power_mean_w))),
    Metric("energy_j", "J", lambda r: _total(_each(r, lambda d: d.energy_j))),
    Metric("start_up_s", "s", lambda r: r.start_up_s),
    Metric("window_s", "s", lambda r: r.window_s),
)

OBJECTIVES = tuple(metric.name for metric in METRICS if metric.objective)


def value(result: ProbeResult, objective: str) -> float | None:
    """Read the objective's number off a result. Raises KeyError for a name that is not in the table."""
    return next(iter(_named((objective,)))).of(result)


def measured(result: ProbeResult) -> dict[str, float | None]:
    """Read all metrics off a result."""
    return {metric.name: metric.of(result) for metric in METRICS}


def _named(names: Iterable[str]) -> list[Metric]:
    table = {metric.name: metric for metric in METRICS}
    return [table[name] for name in names]
