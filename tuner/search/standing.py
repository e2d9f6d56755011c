"""What a study knows of each config, from all its readings. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.probe.steady import error_of_mean

Values = tuple[float, ...]
"""Each objective, maximised."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one trial has shown of its config."""

    trial: int
    """Whatever number its reader knows it by."""
    launch: Hashable
    """What trials of the same config have in common."""
    warm: bool
    """Whether a session served it."""
    values: Values | None
    """None where the config cannot be the best."""
    error: float | None = None
    """Standard error of the first objective."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is known of a config that may be the best."""

    trials: tuple[int, ...]
    """Its readings in their order, all of them cold or all of sessions."""
    values: Values
    """Their mean."""
    error: float | None
    """Standard error of the first mean."""


Standings = Mapping[Hashable, Standing]
"""By launch, in the order in which they were first read."""


def ways(readings: Iterable[Reading]) -> tuple[Standings, Standings]:
    """Give what is known of each config from its cold readings, and what from those of sessions.

    One that could not be the best in a single reading is not among them, nor among those of sessions where a cold
    reading said so.
    """
    cold: dict[Hashable, list[Reading]] = {}
    warm: dict[Hashable, list[Reading]] = {}
    for one in readings:
        (warm if one.warm else cold).setdefault(one.launch, []).append(one)
    known = _known(cold)
    return known, {launch: one for launch, one in _known(warm).items() if launch in known or launch not in cold}


def best(readings: Iterable[Reading]) -> Standing | None:
    """Give the config with most of the first objective, the earliest among equals; None where none may be the best.

    What sessions have read counts only where nothing was read cold.
    """
    cold, warm = ways(readings)
    return max((cold or warm).values(), key=lambda one: one.values[0], default=None)


def incumbent(readings: Iterable[Reading]) -> float | None:
    """Give the highest mean of the first objective; None where no config may be the best.

    A config counts by its cold readings or, before it has any, by those of sessions: it is what a running probe has to
    beat, not yet what is called the best.
    """
    cold, warm = ways(readings)
    return max((one.values[0] for one in {**warm, **cold}.values()), default=None)


def _known(readings: Mapping[Hashable, Sequence[Reading]]) -> Standings:
    """Leave out what could not be the best, and take the mean of the rest."""
    return {
        launch: _mean(same, [one.values for one in same if one.values is not None])
        for launch, same in readings.items()
        if all(one.values is not None for one in same)
    }


def _mean(readings: Sequence[Reading], values: Sequence[Values]) -> Standing:
    first = [each[0] for each in values]
    return Standing(
        trials=tuple(one.trial for one in readings),
        values=tuple(map(fmean, zip(*values, strict=True))),
        error=error_of_mean(first, [one.error for one in readings]),
    )
