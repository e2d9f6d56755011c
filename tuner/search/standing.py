"""What all trials of a study show about each config, and which config is the best. Pure.

This file alone holds three rules: which measurements of a config count, which config is the best, and what must still
be measured by the trainer's plain command.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import NamedTuple

from tuner.probe import Change, FailureKind, error_of_mean, over
from tuner.records.trial import COMPLETE, FAIL, FINISHED, TrialRecord
from tuner.search.frontier import is_number
from tuner.study import LADDER, Config, grouped, launched

Values = tuple[float, ...]
"""The value of each objective. Larger values are better."""

TIE = 1e-4
"""Configs whose means of the first objective differ by no more than this share of the larger one count as equal."""
BROKEN_AFTER = 3
"""If this many trials fail before the first one completes, the trainer was broken: its configs are not at fault."""
ALIKE = 0.03
"""Peaks of memory that differ by at most this share may be those of equal needs."""
SURE = 2.0
"""From so many standard errors on, a config is faster than the default: chance alone shows one of 40 so much faster."""
FAR = 1.5
"""A rival makes at least this many times the samples/s of the best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is known of a config that has been measured."""

    trials: tuple[TrialRecord, ...]
    """The trials that count, in their order: either all cold or all warm."""
    values: Values
    """The means of the measurements."""
    error: float | None = None
    """The standard error of the first objective's mean."""
    samples_per_s: float | None = None
    """The mean of the measurements."""
    speed_error: float | None = None
    """The standard error of `samples_per_s`."""
    is_eligible: bool = True
    """Whether the config may be the best."""

    @property
    def trial(self) -> int:
        """The number of the newest trial."""
        return self.trials[-1].number

    @property
    def launch(self) -> str:
        """A key that is equal for measurements of the same config."""
        return self.trials[-1].launch

    @property
    def config(self) -> Config:
        """The config, without the pruner's patience."""
        return launched(self.trials[-1].config)

    @property
    def value(self) -> float:
        """The first objective."""
        return self.values[0]

    @property
    def readings(self) -> int:
        """How many trials `values` are the means of."""
        return len(self.trials)

    @property
    def told_error(self) -> float | None:
        """The error of the first objective, as a person is told."""
        return self._told(self.value, self.error)

    @property
    def told_speed_error(self) -> float | None:
        """The error of `samples_per_s`, as a person is told."""
        return self._told(self.samples_per_s or 0.0, self.speed_error)

    def _told(self, value: float, error: float | None) -> float | None:
        """Return an error that holds how far the next reading may be, where there is one reading beside others.

        Without its waits for a processor, a reading may be `1 / (1 - delayed)` times as large. Half of that difference
        counts, and at most the whole reading. Waits below 2 % are usual on a machine that runs nothing else. Several
        readings show by themselves how far they scatter, and choices wait for these.
        """
        delayed = self.trials[0].delayed
        if error is None or self.readings > 1 or delayed < 0.02:
            return error
        return math.hypot(error, value * min(1.0, delayed / (1.0 - delayed) / 2.0))

    @property
    def is_warm(self) -> bool:
        """Whether only sessions have measured the config."""
        return self.trials[-1].warm

    @property
    def memory_share_pct(self) -> float | None:
        """The largest share of a device's memory in use, in percent."""
        return over(max, [trial.memory_share_pct for trial in self.trials])

    @property
    def sm_pct(self) -> float | None:
        """The mean share of active multiprocessors, in percent."""
        return over(fmean, [trial.metrics.get("min_avg_sm") for trial in self.trials])


Standings = Mapping[str, Standing]
"""The launch key of each config → what is known of the config, in the order of the first measurements."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leader:
    """The best config, and what is to be said about the choice."""

    best: Standing
    instead_of: Standing | None = None
    """The config with the highest mean, if another one is the best because the two differ by less than their error."""
    unconfirmed: Standing | None = None
    """The config that the plain command must measure first, because it may be better than all that it has measured.

    This is the best itself where only sessions have measured it.
    """


def ended(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that have ended."""
    return [trial for trial in trials if trial.state in FINISHED]


def with_newest_soaks(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials without the soaks that count no more.

    Once a soak has other flags, or another limit of memory, the soaks before it say nothing. Of several soaks of one
    config, the last one counts.
    """
    soaks = [trial for trial in trials if trial.soaks and trial.counts]
    kind = soaks[-1].soak.kind if soaks and soaks[-1].soak else None
    alike = [*takewhile(lambda trial: (trial.soak and trial.soak.kind) == kind, reversed(soaks))]
    newest = {trial.launch: trial.number for trial in reversed(alike)}.values()
    return [trial for trial in trials if not (trial.soaks and trial.counts) or trial.number in newest]


class Ways(NamedTuple):
    """What is known of each config that may be the best, by the way in which it was measured."""

    cold: Standings
    """From trials of the trainer's plain command."""
    warm: Standings
    """From trials in sessions."""


def ways(trials: Iterable[TrialRecord]) -> Ways:
    """Return what is known of each config that may be the best: from its cold trials, and from its warm trials.

    A config is left out if one of its trials was not eligible or has counted something else than the others, or if its
    last trial failed for good. If the cold trials leave a config out, its warm trials count no more. Once the memory of
    a config has not lasted in a soak, the only configs are those whose memory has lasted in one. Their soaks compare
    them: a soak may provoke what costs time, and some of them have no probe. A config that needs as much memory as one
    with which a training ran out of it, as a person told, is left out, too. Where that leaves none whose memory has
    lasted, the smaller ones count without a soak.

    Args:
        trials: All trials of a case, in their order.
    """
    known = with_newest_soaks(ended(trials))
    lasted = {trial.launch: trial.may_be_best for trial in known if trial.soaks and trial.counts}
    too_large = _too_large(known)
    known = [replace(trial, is_barred=True) if trial.number in too_large else trial for trial in known]
    excused = broken(known)
    cold: dict[str, list[TrialRecord]] = {}
    warm: dict[str, list[TrialRecord]] = {}
    for trial in known:
        if trial.counts and trial.number not in excused:
            (warm if trial.warm else cold).setdefault(trial.launch, []).append(trial)
    plain = {launch: standing for launch, same in cold.items() if (standing := _eligible(same))}
    if not all(lasted.values()):  # memory has been too short for a training: only configs whose memory lasts are left
        lasting = {
            launch: _averaged([trial for trial in cold[launch] if trial.soaks])
            for launch in plain
            if lasted.get(launch)
        }
        if lasting or not any(trial.grows_with for trial in known):
            return Ways(lasting, {})
    session = {
        launch: standing
        for launch, same in warm.items()
        if (launch in plain or launch not in cold) and (standing := _eligible(same))
    }
    return Ways(plain, session)


def _too_large(known: Sequence[TrialRecord]) -> set[int]:
    """Return the trials of configs that need as much memory as one that was told to run out of it."""
    short = [trial for trial in known if trial.grows_with is not None and trial.failed]
    peaks: dict[str, float] = {}
    for trial in known if short else ():
        if trial.memory_share_pct is not None and not trial.soaks:
            peaks[trial.launch] = max(trial.memory_share_pct, peaks.get(trial.launch, 0.0))
    return {trial.number for trial in known if any(_needs_as_much(trial, limit, peaks) for limit in short)}


def _needs_as_much(trial: TrialRecord, short: TrialRecord, peaks: Mapping[str, float]) -> bool:
    """Return whether a config needs as much memory as one that ran out, by its rung and by what probes have measured.

    A larger rung always does. A smaller one does where its probes have needed clearly more.
    """
    rung, limit = trial.config.get(short.grows_with or ""), short.config.get(short.grows_with or "")
    by = rung / limit if is_number(rung) and is_number(limit) and limit > 0 else 1.0
    peak, limit_peak = peaks.get(trial.launch), peaks.get(short.launch)
    if by > 1.0 or trial.launch == short.launch:
        return True
    if peak is not None and limit_peak is not None:
        return peak > (1.0 + ALIKE if by < 1.0 else 1.0 - ALIKE) * limit_peak
    sizes = [(trial.config.get(name), size) for name, size in short.config.items() if is_number(size)]
    return by == 1.0 and all(is_number(size) and size >= least for size, least in sizes)


def eligible(trials: Iterable[TrialRecord]) -> Standings:
    """Return what is known of each config that may be the best: from its cold trials, if it has any, or its warm ones.

    See `ways`.
    """
    cold, warm = ways(trials)
    return {**warm, **cold}


def all_measured(trials: Sequence[TrialRecord]) -> list[Standing]:
    """Return what is known of every config that was measured, also of those that may not be the best.

    The order is that of the first measurements.
    """
    may_be_best = eligible(trials)
    measured = (trial for trial in trials if trial.state == COMPLETE and trial.values)
    by_launch = grouped(measured, attrgetter("launch"))
    return [may_be_best.get(launch) or _barred(same) for launch, same in by_launch.items()]


def leader(trials: Iterable[TrialRecord], defaults: Sequence[Config] = ()) -> Leader | None:
    """Return the best config; None where none may be the best. `defaults`: the default config of each rung.

    The plain command decides, whose trials are cold. A config that only sessions have measured, which are warm, is the
    best only in two cases. Either nothing is cold, or in sessions the config has a higher value and more samples/s than
    the best, and than every other config that is both cold and warm.
    """
    cold, warm = ways(trials)
    waiting = [standing for launch, standing in warm.items() if launch not in cold]
    if not cold:
        return _led(waiting, defaults, unconfirmed=True) if waiting else None
    first = _led(list(cold.values()), defaults)
    own = warm.get(first.best.launch)
    measured_both_ways = [standing for launch, standing in warm.items() if launch in cold]
    ahead = [rival for rival in waiting if own and _beats(rival, own)]
    if ahead := [rival for rival in ahead if not any(_beats(each, rival) for each in measured_both_ways)]:
        return _led(ahead, defaults, unconfirmed=True)
    return replace(first, unconfirmed=_strongest(waiting, cold, warm))


def best(trials: Iterable[TrialRecord], defaults: Sequence[Config] = ()) -> Standing | None:
    """Return the best config; None where none may be the best. See `leader`."""
    first = leader(trials, defaults)
    return first.best if first else None


def rival(best: Standing, standings: Iterable[Standing]) -> Standing | None:
    """Return the eligible config with the most samples/s, if these are at least `FAR` times those of the best."""
    first = fastest(standings)
    far = FAR * (best.samples_per_s or math.inf)
    return first if first and _speed(first) >= far else None


def fastest(standings: Iterable[Standing]) -> Standing | None:
    """Return the eligible config with the most samples/s; None where no speed is known."""
    known = (standing for standing in standings if standing.is_eligible and standing.samples_per_s)
    return max(known, key=_speed, default=None)


def leads(trials: Iterable[TrialRecord], value: float | None) -> bool:
    """Return whether one config alone has the largest mean of the first objective, and this is about its mean."""
    means = sorted(map(_value, eligible(trials).values()), reverse=True)
    if value is None or not means:
        return False
    tie = TIE * means[0]
    return abs(means[0] - value) <= tie and (len(means) == 1 or means[0] - means[1] > tie)


def incumbent(trials: Iterable[TrialRecord]) -> float | None:
    """Return the largest mean of the first objective among the eligible configs; None where there are none.

    A running probe must beat this mean. It may come from a session, unlike the mean of the best config.
    """
    return max(map(_value, eligible(trials).values()), default=None)


def broken(trials: Sequence[TrialRecord]) -> set[int]:
    """Return the numbers of the trials that failed because the trainer was broken at first, and has been fixed since.

    These are the failures before the first complete trial, if there are at least `BROKEN_AFTER`.
    """
    first = next((place for place, trial in enumerate(trials) if trial.state == COMPLETE), 0)
    failed = {trial.number for trial in trials[:first] if trial.state == FAIL and is_failure(trial.failure)}
    return failed if len(failed) >= BROKEN_AFTER else set()


def is_failure(kind: str | None) -> bool:
    """Check whether a probe failed by itself: neither the user nor the end of the tuner stopped it."""
    return kind not in {None, FailureKind.INTERRUPTED}


def front(trials: Iterable[TrialRecord]) -> list[Standing]:
    """Return the Pareto front: the configs that no other config dominates, the largest first objective first.

    `counting` says which configs count, and with which values. The members have their own values.
    """
    return _undominated(counting(trials))


def _undominated(known: Iterable[tuple[Values, Standing]]) -> list[Standing]:
    """Return the configs whose values no other config's values dominate, the largest first value first."""
    members: list[tuple[Values, Standing]] = []
    for values, standing in sorted(known, key=itemgetter(0), reverse=True):
        if not any(dominates(member, values) for member, _ in members):  # sorted: none dominates one before it
            members.append((values, standing))
    return [standing for _, standing in members]


def counting(trials: Iterable[TrialRecord]) -> list[tuple[Values, Standing]]:
    """Return each config that may be the best, with the values to compare.

    Warm values count only until the config is measured cold. They are lowered by the share by which warm values exceed
    cold ones, on average over the configs that were measured in both ways. But a config that beats one of those in
    sessions counts as at least as good as that one is cold, unless another one of those beats it in sessions.
    """
    cold, warm = ways(trials)
    pairs = [(session.values, cold[launch].values) for launch, session in warm.items() if launch in cold]

    def counted(values: Values) -> Values:
        lowered = tuple(value * (1 - share) for value, share in zip(values, flattery, strict=True)) if pairs else values
        if any(dominates(read, values) for read, _ in pairs):
            return lowered
        beaten = [truth for read, truth in pairs if dominates(values, read)]
        return tuple(map(max, lowered, *beaten)) if beaten else lowered

    shares = [[1 - truth / read if read else 0.0 for read, truth in zip(*pair, strict=True)] for pair in pairs]
    flattery = [_shrunk(each) for each in zip(*shares, strict=True)]
    waiting = [standing for launch, standing in warm.items() if launch not in cold]
    measured = [(standing.values, standing) for standing in cold.values()]
    return measured + [(counted(standing.values), standing) for standing in waiting]


def dominates(values: Values, rivals: Values) -> bool:
    """Check whether no value is below its counterpart in `rivals`, and at least one is above."""
    pairs = list(zip(values, rivals, strict=True))
    return all(value >= rival for value, rival in pairs) and any(value > rival for value, rival in pairs)


def of_both(standings: Iterable[Standing]) -> list[Standing]:
    """Return the eligible configs that no other one dominates in the first objective and samples/s."""
    return _undominated(((each.value, _speed(each)), each) for each in standings if each.is_eligible)


def _led(rivals: Sequence[Standing], defaults: Sequence[Config], *, unconfirmed: bool = False) -> Leader:
    """Choose among configs that were all measured in the same way.

    Two means count as equal where they differ by no more than the standard error of their difference. Of the configs
    that equal the largest mean, the fastest is chosen; of equally fast ones the one with the least memory, then the
    nearest to its rung's default. A config that another one beats in both the first objective and samples/s is never
    chosen.

    Where samples/s are the objective, they say nothing beside it. Then the one that changes the fewest values of its
    default is chosen, and the default itself up to `SURE` standard errors, so that a command changes only for a gain.
    """
    is_speed = all(rival.value == rival.samples_per_s for rival in rivals)
    left = rivals if is_speed else _unbeaten(rivals)
    top = max(left, key=_value)
    tie = TIE * top.value
    equal = [rival for rival in left if top.value - rival.value <= max(tie, _noise(rival.error, top.error))]
    if is_speed:
        kept = [rival for rival in left if not _distance(rival.config, defaults)]
        equal += [rival for rival in kept if top.value - rival.value <= SURE * _noise(rival.error, top.error)]
        chosen = min(equal, key=lambda rival: (_distance(rival.config, defaults), -rival.value))
    else:
        first = max(equal, key=_speed)
        fast = [each for each in equal if _speed(first) - _speed(each) <= _noise(each.speed_error, first.speed_error)]
        chosen = min(
            fast,
            key=lambda rival: (round(rival.memory_share_pct or 0), _distance(rival.config, defaults), -rival.value),
        )
    return Leader(
        best=chosen,
        instead_of=top if top.value > chosen.value + tie else None,
        unconfirmed=chosen if unconfirmed else None,
    )


def _unbeaten(rivals: Sequence[Standing]) -> list[Standing]:
    """Return the configs that no other one beats, in their order."""
    fastest_at: dict[float, float] = {}
    for rival in rivals:
        fastest_at[rival.value] = max(_speed(rival), fastest_at.get(rival.value, 0.0))
    most, beaten_below = -math.inf, {}
    for value in sorted(fastest_at, reverse=True):
        beaten_below[value] = most
        most = max(most, fastest_at[value])
    return [rival for rival in rivals if _speed(rival) >= beaten_below[rival.value]]


def _beats(rival: Standing, standing: Standing) -> bool:
    """Check whether a rival has a higher first objective and more samples/s than a config."""
    return rival.value > standing.value and _speed(rival) > _speed(standing)


def _strongest(waiting: Sequence[Standing], cold: Standings, warm: Standings) -> Standing | None:
    """Return the best of the configs that only sessions measured, if it is better than all that were measured cold.

    From its mean the offset is subtracted by which sessions read too high: the mean difference over the configs that
    were measured in both ways. The offset also holds the luck of the config that looks best. The difference must be
    larger than its standard error, and the offset has an error of its own.
    """
    top = max(waiting, key=_value, default=None)
    if top is None:
        return None
    both = [(session, cold[launch]) for launch, session in warm.items() if launch in cold]
    differences = [session.value - plain.value for session, plain in both]
    errors = [_noise(session.error, plain.error) for session, plain in both]
    rival = max(cold.values(), key=_value)
    noise = math.hypot(top.error or 0.0, rival.error or 0.0, error_of_mean(differences, errors) or 0.0)
    return top if top.value - _shrunk(differences) > rival.value + noise else None


def _shrunk(differences: Sequence[float]) -> float:
    """Return the mean of some differences; half of it where there is one alone, which may be an exception."""
    return sum(differences) / max(len(differences), 2)


def _distance(config: Config, defaults: Sequence[Config]) -> int:
    """Return in how many parameters a config differs from the default of its rung."""
    default = next((default for default in defaults if default.get(LADDER) == config.get(LADDER)), {})
    return sum(default.get(name) != value for name, value in config.items())


def _noise(first: float | None, second: float | None) -> float:
    """Return the standard error of the difference of two values, from the standard error of each."""
    return math.hypot(first or 0.0, second or 0.0)


def _value(standing: Standing) -> float:
    return standing.value


def _speed(standing: Standing) -> float:
    return standing.samples_per_s or 0.0


def _eligible(same: Sequence[TrialRecord]) -> Standing | None:
    """Average a config's trials; None where the last trial failed, or where a trial was not eligible."""
    ran = [trial for trial in same if not trial.failed]
    if same[-1].failed or not all(trial.may_be_best for trial in ran):
        return None
    return _averaged([trial for trial in ran if not trial.soaks] or ran)


def _barred(same: Sequence[TrialRecord]) -> Standing:
    """Average the trials that gave a number, of a config that may not be the best."""
    return replace(_averaged([trial for trial in same if not trial.warm] or same), is_eligible=False)


def _averaged(ran: Sequence[TrialRecord]) -> Standing:
    """Average the readings that count."""
    ran = agreeing(ran)
    speeds = [(trial.samples_per_s, trial.probe.samples_per_s_se) for trial in ran]
    known = [(speed, error) for speed, error in speeds if speed is not None]
    return Standing(
        trials=tuple(ran),
        values=tuple(map(fmean, zip(*(trial.values for trial in ran), strict=True))),
        error=error_of_mean([trial.values[0] for trial in ran], [trial.error for trial in ran]),
        samples_per_s=fmean(speed for speed, _ in known) if known else None,
        speed_error=error_of_mean([speed for speed, _ in known], [error for _, error in known]),
    )


def unlike(first: Sequence[TrialRecord], second: Sequence[TrialRecord]) -> str | None:
    """Return why the speeds of two configs cannot be compared; None where nothing speaks against it.

    They cannot where two readings of one config are far apart, or where the speed of one config changed for good by a
    factor of 1.5 and the other has not come so far. A smaller change may have another cause than its iteration.

    Args:
        first: The trials of one config, in their order.
        second: Those of the other config.
    """
    for trials, rivals in ((first, second), (second, first)):
        if reason := far_apart(trials):
            return reason
        for trial in trials:
            change = trial.probe.change
            if change is None or max(change.times, 1.0 / change.times) < 1.5:
                continue
            if not any(_has_reached(rival, change, trial) for rival in rivals):
                at, short = f"iteration {change.iteration}, after {change.seconds:.1f} s", rivals[-1]
                end = f"#{short.number} ended at iteration {short.probe.iteration}, after {_trained_s(short):.1f} s"
                return f"#{trial.number} became {change.times:.2g} times as fast at {at}, and {end}"
    return None


def agreeing(readings: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """Return the readings of one config that count, in their order; all of them where none is far from another.

    One beside which other programs used the processors does not count if an undisturbed one is far from it. Of three
    and more, those that are far from the median do not count if most are near it.
    """
    calm = [trial for trial in readings if not trial.is_disturbed]
    counted = [
        trial for trial in readings if trial in calm or not any(far_apart((trial, undisturbed)) for undisturbed in calm)
    ]
    middle = sorted(counted, key=lambda trial: trial.samples_per_s or trial.probe.iterations_per_s or 0.0)
    central = [trial for trial in counted if not far_apart((trial, middle[len(middle) // 2]))]
    return central if len(counted) > 2 and 2 * len(central) > len(counted) else counted


def far_apart(trials: Sequence[TrialRecord]) -> str | None:
    """Return that two readings of one config differ by the factor 1.3 and three standard errors; None where not."""
    for unit, name in (("samples/s", "samples_per_s"), ("iterations/s", "iterations_per_s")):
        if known := [trial for trial in trials if getattr(trial.probe, name)]:
            ordered = sorted(known, key=lambda trial: getattr(trial.probe, name))
            slow, fast = (getattr(trial.probe, name) for trial in (ordered[0], ordered[-1]))
            error = math.hypot(*(getattr(trial.probe, f"{name}_se") or 0.0 for trial in (ordered[0], ordered[-1])))
            if fast < 1.3 * slow or fast - slow <= 3.0 * error:
                return None
            readings = f"#{ordered[0].number} and #{ordered[-1].number} read {slow:.4g} and {fast:.4g} {unit}"
            again = "rerun when the machine is quiet, or let `tuner verify` measure anew"
            return f"{readings} of one config, so another program may have been busy; {again}"
    return None


def _has_reached(trial: TrialRecord, change: Change, changed: TrialRecord) -> bool:
    """Return whether a trial has come as far as a change of another one: in iterations or samples, and in seconds."""
    iteration, samples = changed.probe.iteration, changed.probe.samples
    least = change.iteration * samples / iteration if samples and iteration else math.inf
    reached = trial.probe.iteration
    is_as_far = reached is None or reached >= change.iteration or (trial.probe.samples or 0) >= least
    return is_as_far and _trained_s(trial) >= change.seconds


def _trained_s(trial: TrialRecord) -> float:
    """Return the seconds from the first mark of a trial to its end."""
    return (trial.total_s or 0.0) - (trial.probe.start_up_s or 0.0)
