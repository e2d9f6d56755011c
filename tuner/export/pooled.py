"""Pools the measurements of several trials of one config."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from tuner.export.records import TrialRecord
from tuner.probe.metrics import METRICS
from tuner.probe.result import DeviceSummary
from tuner.probe.steady import error_of_mean

Rules = Mapping[str, Callable[[Sequence[float]], float]]
"""Name of a number → the function that pools several such numbers."""

_OF_METRICS: Rules = {metric.name: metric.over for metric in METRICS}


def pooled(trials: Sequence[TrialRecord]) -> TrialRecord:
    """Return the newest of several trials of one config, with the numbers of all of them pooled.

    A number that was measured over a window becomes the mean, with its standard error. An extreme becomes the extreme
    of all. Times, counts and files stay those of the newest trial.
    """
    newest = trials[-1]
    if len(trials) == 1:
        return newest
    metrics = [trial.metrics for trial in trials]
    probe = replace(
        newest.probe,
        samples_per_s=_over(fmean, [trial.probe.samples_per_s for trial in trials]),
        metrics={**newest.metrics, **_together(_OF_METRICS, metrics), **dict(_errors(metrics))},
        devices=tuple(map(_device, zip(*(trial.devices for trial in trials), strict=True))),
    )
    value = fmean(trial.value for trial in trials if trial.value is not None)
    return replace(newest, value=value, probe=probe, readings=len(trials))


def _device(same: Sequence[DeviceSummary]) -> DeviceSummary:
    return replace(
        same[-1],
        util_mean_pct=_over(fmean, [one.util_mean_pct for one in same]),
        util_max_pct=_over(max, [one.util_max_pct for one in same]),
        mem_peak_mib=_over(max, [one.mem_peak_mib for one in same]),
        power_max_w=_over(max, [one.power_max_w for one in same]),
    )


def _together(rules: Rules, records: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """Return every number that a rule is for, pooled over the records that know the number."""
    pooled = {name: _over(rule, [each.get(name) for each in records]) for name, rule in rules.items()}
    return {name: number for name, number in pooled.items() if number is not None}


def _over(rule: Callable[[Sequence[float]], float], numbers: Sequence[float | None]) -> float | None:
    """Apply a rule to the numbers that are known; None where none is known."""
    known = [number for number in numbers if number is not None]
    return rule(known) if known else None


def _errors(metrics: Sequence[Mapping[str, float | None]]) -> Iterator[tuple[str, float | None]]:
    for name in (metric.name for metric in METRICS if metric.error_of):
        known = [(value, each.get(f"{name}_se")) for each in metrics if (value := each.get(name)) is not None]
        yield f"{name}_se", error_of_mean([value for value, _ in known], [error for _, error in known])
