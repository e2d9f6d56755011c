"""What all trials of a study show about each config, and which config is the best. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.probe.kinds import FailureKind
from tuner.probe.steady import error_of_mean

Values = tuple[float, ...]
"""The value of each objective. Larger values are better."""

COMPLETE, PRUNED, FAIL = "COMPLETE", "PRUNED", "FAIL"
"""The states of trials that have ended, as Optuna names them."""
TIE = 0.01
"""Configs whose means of the first objective differ by no more than this, in its unit, count as equal."""
BROKEN_AFTER = 3
"""If this many trials fail before the first one completes, the trainer was broken: its configs are not at fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedTrial:
    """What one ended trial says about its config."""

    trial: int
    """The number by which the caller knows the trial."""
    launch: Hashable
    """A key that is equal for trials of the same config."""
    state: str = COMPLETE
    warm: bool = False
    """Whether a session served the probe."""
    beside: bool = False
    """Whether other probes ran on the same machine meanwhile, in a study that confirms alone."""
    failure: str | None = None
    """The kind of the failure; None for a probe that ran, even if the pruner stopped it."""
    retry: bool = False
    """Whether the probe failed and its config is to be probed again."""
    values: Values | None = None
    """None where the config may not be the best."""
    error: float | None = None
    """The standard error of the first objective."""
    samples_per_s: float | None = None

    @property
    def failed(self) -> bool:
        """Whether the config failed for good: by its own fault, or by the plain command and without a retry to come."""
        if self.state == FAIL:
            return not (self.warm or self.retry)
        return self.state == PRUNED and self.failure is not None

    @property
    def provisional(self) -> bool:
        """Whether the config must be measured again before it may be the best of the search."""
        return self.warm or self.beside

    @property
    def counts(self) -> bool:
        """Whether the trial says anything about its config. A failure that is not for good says nothing about it."""
        return self.failed or self.state != FAIL


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is known of a config that may be the best."""

    trials: tuple[int, ...]
    """The trials that measured the config, in their order: either all cold or all warm."""
    values: Values
    """The means of the measurements."""
    error: float | None
    """The standard error of the first objective's mean."""
    samples_per_s: float | None = None
    """The mean of the measurements."""


Standings = Mapping[Hashable, Standing]
"""The launch key of each config → what is known of the config, in the order of the first measurements."""


def counted(values: Sequence[float] | None, *, state: str, ineligible: bool) -> Values | None:
    """Return the values of a trial that is complete and whose config may be the best; None for any other trial."""
    return tuple(values) if values and state == COMPLETE and not ineligible else None


def ways(readings: Iterable[EndedTrial]) -> tuple[Standings, Standings]:
    """Return what is known of each config from its cold trials, and what is known from its warm trials.

    In a study that confirms alone, a cold trial that ran beside other probes counts as a warm one.

    `readings` come in the order of the trials. A config is left out if one of its trials was not eligible, or if its
    last trial failed for good. If the cold trials leave a config out, its warm trials count no more.
    """
    ended = list(readings)
    excused = broken(ended)
    cold: dict[Hashable, list[EndedTrial]] = {}
    warm: dict[Hashable, list[EndedTrial]] = {}
    for one in ended:
        if one.counts and one.trial not in excused:
            (warm if one.provisional else cold).setdefault(one.launch, []).append(one)
    known = _known(cold)
    return known, {launch: one for launch, one in _known(warm).items() if launch in known or launch not in cold}


def eligible(readings: Iterable[EndedTrial]) -> Standings:
    """Return what is known of each config that may be the best: from its cold trials, if it has any, or its warm ones.

    See `ways`.
    """
    cold, warm = ways(readings)
    return {**warm, **cold}


def best(readings: Iterable[EndedTrial]) -> Standing | None:
    """Return the config with the largest first objective; None where none may be the best.

    Among configs within `TIE` of the largest, the fastest is returned, and the earliest among equally fast ones.
    Warm trials count only while no config has been measured cold.
    """
    cold, warm = ways(readings)
    rivals = list((cold or warm).values())
    most = max((one.values[0] for one in rivals), default=0.0)
    return max((one for one in rivals if one.values[0] >= most - TIE), key=_speed, default=None)


def fastest(readings: Iterable[EndedTrial]) -> Standing | None:
    """Return the eligible config with the most samples/s; None where no speed is known."""
    return max((one for one in eligible(readings).values() if one.samples_per_s), key=_speed, default=None)


def leads(readings: Iterable[EndedTrial], value: float | None) -> bool:
    """Return whether one config alone has the largest mean of the first objective, and this is about its mean."""
    means = sorted((one.values[0] for one in eligible(readings).values()), reverse=True)
    if value is None or not means:
        return False
    return abs(means[0] - value) <= TIE and (len(means) == 1 or means[0] - means[1] > TIE)


def incumbent(readings: Iterable[EndedTrial]) -> float | None:
    """Return the largest mean of the first objective among the eligible configs; None where there are none.

    A running probe must beat this mean. It may come from a session, unlike the mean of the best config.
    """
    return max((one.values[0] for one in eligible(readings).values()), default=None)


def broken(readings: Sequence[EndedTrial]) -> set[int]:
    """Return the trials that failed because the trainer was broken at first, and has been fixed since.

    These are the failures before the first complete trial, if there are at least `BROKEN_AFTER`.
    """
    first = next((place for place, one in enumerate(readings) if one.state == COMPLETE), 0)
    failed = {one.trial for one in readings[:first] if one.state == FAIL and is_failure(one.failure)}
    return failed if len(failed) >= BROKEN_AFTER else set()


def is_failure(kind: str | None) -> bool:
    """Check whether a probe failed by itself: neither the user nor the end of the tuner stopped it."""
    return kind not in {None, FailureKind.INTERRUPTED}


def _speed(one: Standing) -> float:
    return one.samples_per_s or 0.0


def _known(readings: Mapping[Hashable, Sequence[EndedTrial]]) -> Standings:
    """Leave out the configs that may not be the best."""
    return {launch: one for launch, same in readings.items() if (one := _standing(same))}


def _standing(same: Sequence[EndedTrial]) -> Standing | None:
    """Average a config's trials; None where the last trial failed, or where a trial was not eligible."""
    ran = [one for one in same if not one.failed]
    values = [one.values for one in ran if one.values is not None]
    if same[-1].failed or len(values) < len(ran):
        return None
    if len(same) == 1:  # as most configs of a long study
        (one,) = same
        return Standing(trials=(one.trial,), values=values[0], error=one.error, samples_per_s=one.samples_per_s)
    speeds = [one.samples_per_s for one in ran if one.samples_per_s is not None]
    return Standing(
        trials=tuple(one.trial for one in ran),
        values=tuple(map(fmean, zip(*values, strict=True))),
        error=error_of_mean([each[0] for each in values], [one.error for one in ran]),
        samples_per_s=fmean(speeds) if speeds else None,
    )
