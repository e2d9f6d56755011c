"""The metrics of a probe. Each metric is one row here, and tables, objectives and constraints use these rows."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import attrgetter
from statistics import fmean
from typing import Any

from tuner.errors import StudyError
from tuner.probe.probe_plan import Device
from tuner.probe.quantities import FULL_PCT, of_known
from tuner.probe.result import DeviceSummary, ProbeResult
from tuner.probe.summaries import NO_RATE
from tuner.study import INVERSES, StudySpec


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that is computed from a probe's result."""

    name: str
    unit: str
    value_of: Callable[[ProbeResult], float | None]
    """Returns the metric's value, or None when the result does not contain it."""
    error_of: Callable[[ProbeResult], float | None] | None = None
    """Returns the standard error of the value; None for a metric without one, which may not be an objective."""
    combine: Callable[[Sequence[float]], float] = fmean
    """Combines the values of several probes of one config into one value."""
    edge_of: Callable[[ProbeResult], float] = lambda _: 0.0
    """Returns the part of the standard error that more iterations of the same kind do not reduce."""


def _of_devices(
    combine: Callable[[Sequence[float]], float], value: Callable[[DeviceSummary], float | None]
) -> Callable[[ProbeResult], float | None]:
    """Return a function of a result that combines a `value` of each of its devices; None if no value is known."""
    return lambda result: of_known(combine, map(value, result.devices))


def spread(numbers: Sequence[float]) -> float:
    """Return the range of some numbers: the largest less the smallest."""
    return max(numbers) - min(numbers)


def _of_idlest(quantity: str) -> Metric:
    """Return the metric of a busy share on the device with the smallest share; `quantity` is `util` or `sm`."""
    mean = attrgetter(f"{quantity}_mean_pct")

    def of_idlest(statistic: str, unknown: float | None, result: ProbeResult) -> Any:
        """Return the `mean`, `se` (standard error) or `edge` (edge error) of the smallest share in a result.

        `unknown`: the answer if no device has the share.
        """
        idlest = min((device for device in result.devices if mean(device) is not None), key=mean, default=None)
        return getattr(idlest, f"{quantity}_{statistic}_pct") if idlest else unknown

    return Metric(
        f"min_avg_{quantity}",
        "%",
        partial(of_idlest, "mean", None),
        partial(of_idlest, "se", None),
        edge_of=partial(of_idlest, "edge", 0.0),
    )


def _headroom_pct(device: DeviceSummary) -> float | None:
    """Return the part of a device's memory that was free even at its peak; None if either is unknown."""
    if device.mem_peak_mib is None or not device.mem_total_mib:
        return None
    return 100.0 * (1.0 - device.mem_peak_mib / device.mem_total_mib)


def _quotient(number: float, divisor: float | None) -> float | None:
    """Return a number divided by another one; None if the divisor is unknown or 0."""
    return number / divisor if divisor else None


SAMPLES_PER_S = "samples_per_s"
SAMPLES_PER_JOULE = "samples_per_joule"
SAMPLES_PER_PRICE = "samples_per_price"
ITERATIONS_PER_S = "iterations_per_s"
"""Compares configs only where each iteration has the same samples in all of them."""

METRICS: tuple[Metric, ...] = (
    _of_idlest("util"),
    _of_idlest("sm"),
    Metric(SAMPLES_PER_S, "1/s", attrgetter("samples_per_s"), attrgetter("samples_per_s_se")),
    Metric(ITERATIONS_PER_S, "1/s", attrgetter("iterations_per_s"), attrgetter("iterations_per_s_se")),
    Metric("mfu", "%", attrgetter("mfu_pct")),
    Metric("util_spread", "%", _of_devices(spread, attrgetter("util_mean_pct"))),
    Metric("busy_spread", "%", attrgetter("busy_spread_pct")),
    Metric("min_avg_occupancy", "%", _of_devices(min, attrgetter("occupancy_mean_pct"))),
    Metric("min_avg_tensor", "%", _of_devices(min, attrgetter("tensor_mean_pct"))),
    Metric("min_avg_dram", "%", _of_devices(min, attrgetter("dram_mean_pct"))),
    Metric("mem_peak_mib", "MiB", _of_devices(max, attrgetter("mem_peak_mib")), combine=max),
    Metric("headroom_pct", "%", _of_devices(min, _headroom_pct), combine=min),
    Metric("alloc_retries", "", attrgetter("alloc_retries"), combine=max),
    Metric("power_mean_w", "W", _of_devices(sum, attrgetter("power_mean_w"))),
    Metric("energy_j", "J", _of_devices(sum, attrgetter("energy_j"))),
    Metric(SAMPLES_PER_JOULE, "1/J", attrgetter("samples_per_joule"), attrgetter("samples_per_joule_se")),
    Metric("joules_per_sample", "J/sample", lambda result: _quotient(1.0, result.samples_per_joule)),
    Metric(SAMPLES_PER_PRICE, "", attrgetter("samples_per_price"), attrgetter("samples_per_price_se")),
    Metric("cost_per_million_samples", "", lambda result: _quotient(1e6, result.samples_per_price)),
    Metric("start_up_s", "s", attrgetter("start_up_s")),
    Metric("window_s", "s", attrgetter("window_s")),
    Metric("trained_s", "s", attrgetter("trained_s")),
)

OBJECTIVES = tuple(metric.name for metric in METRICS if metric.error_of)
_BY_NAME = {metric.name: metric for metric in METRICS}


def value(result: ProbeResult, objective: str) -> float | None:
    """Return the objective's value in a result; None if it is unknown. Raises KeyError for a name outside the table."""
    return _BY_NAME[objective].value_of(result)


def error(result: ProbeResult, objective: str) -> float | None:
    """Return the standard error of the objective's value in a result, in its unit; None if it is unknown."""
    error_of = _BY_NAME[objective].error_of
    return error_of(result) if error_of else None


def edge_error(result: ProbeResult, objective: str) -> float:
    """Return the part of the standard error that more iterations of the same kind do not reduce, in the unit."""
    return _BY_NAME[objective].edge_of(result)


def largest_value(objective: str) -> float:
    """Return the largest possible value of an objective, in its unit: 100 for a percentage, otherwise infinity."""
    return FULL_PCT if _BY_NAME[objective].unit == "%" else inf


def target_error(result: ProbeResult, objective: str, target_pct: float) -> float:
    """Return the standard error with which a value is precise enough, in the objective's unit.

    Args:
        result: A result with the objective's value.
        objective: The name of the objective.
        target_pct: The error that the study asks for: in percentage points where the objective is a percentage, and in
            percent of the value otherwise.
    """
    if _BY_NAME[objective].unit == "%":
        return target_pct
    return (value(result, objective) or 0.0) * target_pct / 100


def measured(result: ProbeResult) -> dict[str, float | None]:
    """Return all metrics of a result by name. The standard error of NAME follows it as NAME_se."""
    numbers: dict[str, float | None] = {}
    for metric in METRICS:
        numbers[metric.name] = metric.value_of(result)
        if metric.error_of:
            numbers[f"{metric.name}_se"] = metric.error_of(result)
    return numbers


def without_rough_speed(result: ProbeResult, needed: Collection[str] = ()) -> ProbeResult:
    """Return a result with a note in place of its samples/s if their standard error is above a tenth of them.

    Args:
        result: The result of a probe.
        needed: The metrics of the study's objectives and constraints. If samples/s, or a metric that is computed from
            it, is among them, the speed stays with its error, however large that is.
    """
    speed, standard_error = result.samples_per_s, result.samples_per_s_se
    is_needed = bool({SAMPLES_PER_S, *INVERSES, *INVERSES.values()} & {*needed})
    if is_needed or not speed or standard_error is None or standard_error <= 0.1 * speed:
        return result
    note = f"{NO_RATE}: {speed:.3g} ± {standard_error:.2g} is too unsure to compare"
    removed: dict[str, Any] = {}
    for name in (SAMPLES_PER_S, *INVERSES.values()):  # the latter are computed from the former
        removed |= {name: None, f"{name}_se": None}
    return replace(result, **removed, notes=(*result.notes, note))


def check_metrics(spec: StudySpec) -> None:
    """Raise StudyError that names every unknown objective, repeated objective, and constraint on an unknown metric."""
    counts = Counter(spec.objectives)
    unknown = [name for name in counts if name not in OBJECTIVES]
    priced = {SAMPLES_PER_PRICE, "cost_per_million_samples"} & {*spec.needed}
    errors = [
        *(f"objective {name!r} is unknown; known: {', '.join((*OBJECTIVES, *INVERSES))}" for name in unknown),
        *(f"objective {name!r} is named {count} times; name it once" for name, count in counts.items() if count > 1),
        *(
            f"constraints.{name}: no such metric; known: {', '.join(_BY_NAME)}"
            for name in spec.constraints
            if name not in _BY_NAME
        ),
        *(f"{name} needs `prices` in the study" for name in sorted(priced) if not spec.prices),
    ]
    if errors:
        raise StudyError("\n".join(errors))


BF16_TFLOPS = {
    "H200 NVL": 835.5,
    "H200": 989.4,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.5,
    "H100": 989.4,
    "H800": 989.4,
    "GH200": 989.4,
    "B200": 2250.0,
    "A100": 312.0,
    "A800": 312.0,
    "A30": 165.0,
    "A40": 149.7,
    "L40S": 362.1,
    "L40": 181.1,
    "L4": 121.0,
    "A10G": 70.0,
    "A10": 125.0,
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
    "RTX A6000": 154.8,
}
"""A part of a card's name → its peak in bf16 without sparsity, in TFLOP/s, from NVIDIA's data sheets and white papers.

The first whole words that fit count: an RTX A4000 is no A40.
"""


def mfu_pct(samples_per_s: float | None, flops_per_sample: float | None, devices: Sequence[Device]) -> float | None:
    """Return the share of the devices' bf16 peak that a training uses, in percent; None if anything is unknown.

    Args:
        samples_per_s: the samples of all ranks in a second.
        flops_per_sample: the floating-point operations of a training step for each of its samples.
        devices: the devices of the ranks.
    """
    peaks = [
        next((peak for part, peak in BF16_TFLOPS.items() if re.search(rf"\b{part}\b", device.model)), None)
        for device in devices
    ]
    if samples_per_s is None or flops_per_sample is None or not peaks or None in peaks:
        return None
    return 100.0 * samples_per_s * flops_per_sample / (1e12 * sum(peak or 0.0 for peak in peaks))
