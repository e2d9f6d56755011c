"""All trials of a case as parallel coordinates: an axis for each parameter and result, a line for each trial."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tuner.export import figure, in_words, with_error
from tuner.records.trial import OK, RUNNING, TrialRecord
from tuner.report.facts import CaseFacts
from tuner.study import Value, launched, value_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis. Places go from 0, the bottom, to 1, the top."""

    name: str
    places: list[float | None]
    """The place of each trial; None where the trial has no such result."""
    ticks: list[tuple[float, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """The axes, and what the lines between them are."""

    axes: list[Axis]
    kinds: list[str]
    """Of each trial: `best`, `ok` or `failed`."""
    words: list[str]
    """What the pointer shows of each trial."""


def parallel(case: CaseFacts) -> Parallel | None:
    """Return the picture of a case's trials; None where there are fewer than two trials or axes."""
    trials = [trial for trial in case.view.trials if trial.state != RUNNING and trial.config]
    if len(trials) < 2:
        return None
    configs = [launched(trial.config) for trial in trials]
    names = dict.fromkeys(name for config in configs for name in config)
    axes = [_parameter_axis(name, [config.get(name) for config in configs]) for name in names]
    axes.append(_result_axis(case.summary.objective, [trial.value if trial.status == OK else None for trial in trials]))
    if case.summary.objective != "samples_per_s":
        axes.append(_result_axis("samples/s", [trial.samples_per_s for trial in trials]))
    kinds = ["ok" if trial.status == OK else "failed" for trial in trials]
    for place, trial in enumerate(trials):
        if case.view.best and trial.launch_key == case.view.best.launch_key:
            kinds[place] = "best"
    with_several_values = [axis for axis in axes if len(axis.ticks) > 1]
    if len(with_several_values) < 2:
        return None
    return Parallel(axes=with_several_values, kinds=kinds, words=list(map(_hover_text, trials)))


def _parameter_axis(name: str, values: Sequence[Value | None]) -> Axis:
    """Return the axis of a parameter: its values at equal distances, numbers in ascending order.

    `values`: that of each trial; None, the lowest place of the axis, where a trial does not use the parameter.
    """
    known = [value for value in dict.fromkeys(values) if value is not None]
    if not any(isinstance(value, str) for value in known):
        known.sort(key=float)
    ordered: list[Value | None] = [None, *known] if None in values else [*known]
    last = max(1, len(ordered) - 1)
    place_of = {value: index / last for index, value in enumerate(ordered)}
    labels = ["-" if value is None else value_text(value) for value in ordered]
    step = ceil(len(ordered) / 12)  # at most 12 labels can be read beside each other
    first = (len(ordered) - 1) % step  # so that the largest value has a label
    ticks = list(zip(place_of.values(), labels, strict=True))[first::step]
    return Axis(name=name, places=[place_of[value] for value in values], ticks=ticks)


def _result_axis(name: str, values: Sequence[float | None]) -> Axis:
    """Return the axis of a result, with five labels; without places and labels where all trials have one value."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    width = high - low
    if not width:
        return Axis(name=name, places=[None] * len(values), ticks=[])
    places = [None if value is None else round((value - low) / width, 4) for value in values]
    ticks = [(place, figure(low + place * width)) for place in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return Axis(name=name, places=places, ticks=ticks)


def _hover_text(trial: TrialRecord) -> str:
    """Return what is shown of a trial while the pointer is on its line."""
    value = "" if trial.value is None else f" {with_error(trial.value, trial.widened_error)}"
    return f"#{trial.number} {trial.status}{value}: {in_words(launched(trial.config))}"
