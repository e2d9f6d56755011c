"""What a study knows of each config, from all its trials, and which may be the best. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.probe.kinds import FailureKind
from tuner.probe.steady import error_of_mean

Values = tuple[float, ...]
"""Each objective, maximised."""

COMPLETE, PRUNED, FAIL = "COMPLETE", "PRUNED", "FAIL"
"""The states of trials that have ended, as Optuna names them."""
BROKEN_AFTER = 3
"""This many failures before anything has run say that the trainer was broken, and nothing of the configs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one trial that has ended has shown of its config."""

    trial: int
    """Whatever number its reader knows it by."""
    launch: Hashable
    """What trials of the same config have in common."""
    state: str = COMPLETE
    warm: bool = False
    """Whether a session served it."""
    failure: str | None = None
    """The kind of its failure; None where the probe ran, be it until the pruner stopped it."""
    retry: bool = False
    """Whether it failed and its config is asked again."""
    values: Values | None = None
    """None where the config cannot be the best."""
    error: float | None = None
    """Standard error of the first objective."""

    @property
    def failed(self) -> bool:
        """Whether it failed for good: by its config's own fault, or by the plain command and is not asked again."""
        if self.state == FAIL:
            return not (self.warm or self.retry)
        return self.state == PRUNED and self.failure is not None

    @property
    def counts(self) -> bool:
        """Whether it says anything of its config: a failure through no fault of that and not for good does not."""
        return self.failed or self.state != FAIL


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


def counted(values: Sequence[float] | None, *, state: str, ineligible: bool) -> Values | None:
    """Return the values of a trial that is complete and whose config may be the best; None for any other trial."""
    return tuple(values) if values and state == COMPLETE and not ineligible else None


def ways(readings: Iterable[Reading]) -> tuple[Standings, Standings]:
    """Give what is known of each config from its cold readings, and what from those of sessions.

    Readings come in the order of their trials. One that was not eligible in a single reading is not among them, nor one
    that failed for good and gave no number since; nor among those of sessions where the cold readings say so.
    """
    told = list(readings)
    excused = broken(told)
    cold: dict[Hashable, list[Reading]] = {}
    warm: dict[Hashable, list[Reading]] = {}
    for one in told:
        if one.counts and one.trial not in excused:
            (warm if one.warm else cold).setdefault(one.launch, []).append(one)
    known = _known(cold)
    return known, {launch: one for launch, one in _known(warm).items() if launch in known or launch not in cold}


def eligible(readings: Iterable[Reading]) -> Standings:
    """Give what is known of each config that may be the best.

    That is from its cold readings or, before it has any, from those of sessions.
    """
    cold, warm = ways(readings)
    return {**warm, **cold}


def best(readings: Iterable[Reading]) -> Standing | None:
    """Give the config with most of the first objective, the earliest among equals; None where none may be the best.

    What sessions have read counts only where nothing was read cold.
    """
    cold, warm = ways(readings)
    return max((cold or warm).values(), key=lambda one: one.values[0], default=None)


def incumbent(readings: Iterable[Reading]) -> float | None:
    """Give the highest mean of the first objective among the eligible; None where there are none.

    It is what a running probe has to beat, not yet what is called the best.
    """
    return max((one.values[0] for one in eligible(readings).values()), default=None)


def broken(readings: Sequence[Reading]) -> set[int]:
    """Give the failures from before a trainer that was broken at first had been mended; none before a first run."""
    first = next((place for place, one in enumerate(readings) if one.state == COMPLETE), 0)
    failed = {one.trial for one in readings[:first] if one.state == FAIL and is_failure(one.failure)}
    return failed if len(failed) >= BROKEN_AFTER else set()


def is_failure(kind: str | None) -> bool:
    """Tell whether a probe failed by itself: neither the user nor the end of the tuner stopped it."""
    return kind not in {None, FailureKind.INTERRUPTED}


def _known(readings: Mapping[Hashable, Sequence[Reading]]) -> Standings:
    """Leave out what may not be the best."""
    return {launch: one for launch, same in readings.items() if (one := _standing(same))}


def _standing(same: Sequence[Reading]) -> Standing | None:
    """Take the mean of a config's readings; None where the last one failed, or one was not eligible."""
    ran = [one for one in same if not one.failed]
    values = [one.values for one in ran if one.values is not None]
    if same[-1].failed or len(values) < len(ran):
        return None
    return Standing(
        trials=tuple(one.trial for one in ran),
        values=tuple(map(fmean, zip(*values, strict=True))),
        error=error_of_mean([each[0] for each in values], [one.error for one in ran]),
    )
