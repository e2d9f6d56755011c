"""What several trials of one config come to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from tuner.export.records import TrialRecord
from tuner.probe.metrics import METRICS
from tuner.probe.steady import error_of_mean

Rules = Mapping[str, Callable[[Sequence[float]], float]]
"""Name of a number → what several of them come to."""

_OF_METRICS: Rules = {metric.name: metric.over for metric in METRICS}
_OF_DEVICE: Rules = {"util_mean_pct": fmean, "util_max_pct": max, "mem_peak_mib": max, "power_max_w": max}
_OF_PROBE: Rules = {"samples_per_s": fmean}


def pooled(trials: Sequence[TrialRecord]) -> TrialRecord:
    """Give the newest of several trials of one config, with what all of them come to in place of its numbers.

    That is the mean of what was measured over a window, with its standard error, and the extreme of an extreme. Times,
    counts and files stay those of the newest.
    """
    newest = trials[-1]
    if len(trials) == 1:
        return newest
    metrics = [trial.metrics for trial in trials]
    probe = {
        **newest.probe,
        **_together(_OF_PROBE, [trial.probe for trial in trials]),
        "metrics": {**newest.metrics, **_together(_OF_METRICS, metrics), **dict(_errors(metrics))},
        "devices": [
            {**same[-1], **_together(_OF_DEVICE, same)}
            for same in zip(*(trial.devices for trial in trials), strict=True)
        ],
    }
    value = fmean(trial.value for trial in trials if trial.value is not None)
    return replace(newest, value=value, probe=probe, readings=len(trials))


def _together(rules: Rules, records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Give every number that there is a rule for, of the records that know it."""
    known = {name: [each[name] for each in records if each.get(name) is not None] for name in rules}
    return {name: rules[name](numbers) for name, numbers in known.items() if numbers}


def _errors(metrics: Sequence[Mapping[str, float | None]]) -> Iterator[tuple[str, float | None]]:
    for name in (metric.name for metric in METRICS if metric.error_of):
        known = [(value, each.get(f"{name}_se")) for each in metrics if (value := each.get(name)) is not None]
        yield f"{name}_se", error_of_mean([value for value, _ in known], [error for _, error in known])
