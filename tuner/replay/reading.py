"""Recorded results as a search sees them: cut short, moved by noise, or as the plain command gives them. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tuner.probe.metrics import value
from tuner.probe.result import DeviceSummary, ProbeResult
from tuner.probe.steady import Block, standard_error
from tuner.probe.window import LEAST_SPAN_S

_OF_DEVICE = {"min_avg_util": ("util_mean_pct", "util_se_pct"), "min_avg_sm": ("sm_mean_pct", "sm_se_pct")}
"""Objective → the fields of a device's summary with the objective and its standard error.

Other objectives are fields of the result.
"""


def restated(result: ProbeResult, objective: str, number: float, error: float | None) -> ProbeResult:
    """Return the result with another objective value and standard error; all devices change by the same amount."""
    if objective not in _OF_DEVICE:
        return replace(result, **{objective: number, f"{objective}_se": error})
    mean, own_error = _OF_DEVICE[objective]
    by = number - (value(result, objective) or 0.0)

    def moved(device: DeviceSummary) -> DeviceSummary:
        before = getattr(device, mean)
        return device if before is None else replace(device, **{mean: before + by, own_error: error})

    return replace(result, devices=tuple(map(moved, result.devices)))


def cut_short(result: ProbeResult, iterations: int) -> ProbeResult:
    """Return the result as if its window had ended after this many iterations, all taken as equally long.

    Means stay those of the whole window.
    """
    share = iterations / result.iterations
    whole_s, trained_s = result.window_s or 0.0, (result.trained_s or 0.0) * share
    window_s = whole_s * share
    return replace(
        result,
        iterations=iterations,
        window_s=window_s,
        trained_s=trained_s,
        total_s=result.total_s - whole_s + window_s,
        samples=None,
        devices=tuple(
            replace(
                device,
                window_s=window_s,
                energy_j=None if device.power_mean_w is None else device.power_mean_w * trained_s,
            )
            for device in result.devices
        ),
    )


def made_whole(result: ProbeResult, warmup_iterations: int) -> ProbeResult:
    """Return the result as if each iteration, also in the warm-up, had taken as long as in training."""
    if result.window_s is None or result.trained_s is None or result.start_up_s is None:
        return result
    longer_s = (result.trained_s - result.window_s) / result.iterations
    return replace(
        result,
        start_up_s=result.start_up_s + longer_s,
        window_s=result.trained_s,
        total_s=result.total_s + longer_s * (warmup_iterations + result.iterations),
    )


def error_of(series: Sequence[float | None], iteration_s: float, *, full: float) -> float | None:
    """Estimate the standard error of the last mean of a series, as a live probe would.

    `series` holds the mean so far after each iteration; `full` is the largest value that the objective can have.
    """
    cuts = [(0, 0.0)]
    for count, mean in enumerate(series, start=1):
        if mean is not None and (count - cuts[-1][0]) * iteration_s >= LEAST_SPAN_S:
            cuts.append((count, count * mean))
    if len(cuts) == 1 and series and series[-1] is not None:
        cuts.append((len(series), len(series) * series[-1]))
    return standard_error(
        [
            Block((count - before) * iteration_s, (total - total_before) / (count - before))
            for (before, total_before), (count, total) in pairwise(cuts)
        ],
        full=full,
    )
