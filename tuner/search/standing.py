"""What all trials of a study show about each config, and which config is the best. Pure.

A trial is one short run with a config, and what it measured is a reading of the config. It is cold if the trainer's
plain command made it, and warm if a session did: a started trainer that serves several trials. Sessions read values a
little too high. A soak is a long trial that shows whether memory lasts. A rung is a value of the parameter that decides
how much memory a config needs. A config is eligible if it may be the best.

This file alone holds three rules: which measurements of a config count, which config is the best, and what must still
be measured by the trainer's plain command.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import NamedTuple

from tuner.probe import Change, FailureKind, error_of_mean, of_known
from tuner.records.trial import (
    COMPLETE,
    FAIL,
    FINISHED,
    TrialRecord,
    error_with_disturbance,
    pooled,
    possible_loss,
    with_widened_errors,
)
from tuner.search.frontier import is_number
from tuner.study import LADDER, Config, grouped, launched

Values = tuple[float, ...]
"""The value of each objective. Larger values are better."""

BROKEN_AFTER = 3
"""If this many trials fail before the first one completes, the trainer was broken: its configs are not at fault."""
SURE = 2.0
"""From this many standard errors on, a config is faster than the default: chance alone shows 1 in 40 so much faster."""


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
    def launch_key(self) -> str:
        """The launch key, which is equal for measurements of the same config."""
        return self.trials[-1].launch_key

    @property
    def config(self) -> Config:
        """The config that was launched: without the pruner's patience, which the trainer does not read."""
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
    def widened_error(self) -> float | None:
        """The standard error of `value` to print: wider than `error` if other programs disturbed a reading.

        Choices between configs are made by `error`.
        """
        return error_with_disturbance(self.value, self.error, self.possible_loss)

    @property
    def widened_speed_error(self) -> float | None:
        """The standard error of `samples_per_s` to print; None if unknown. See `widened_error`."""
        return error_with_disturbance(self.samples_per_s or 0.0, self.speed_error, self.possible_loss)

    @property
    def printed_metrics(self) -> dict[str, float | None]:
        """The means of the metrics to print, with their standard errors: see `widened_error`."""
        return with_widened_errors(pooled(self.trials).probe.metrics, self.possible_loss)

    @property
    def possible_loss(self) -> float:
        """By how many times themselves the means may be larger without waits for a processor that others used."""
        return fmean(possible_loss(trial.probe.devices) for trial in self.trials)

    @property
    def is_warm(self) -> bool:
        """Whether only sessions have measured the config."""
        return self.trials[-1].warm

    @property
    def memory_share_pct(self) -> float | None:
        """The largest share of a device's memory in use, in percent; None if unknown."""
        return of_known(max, [trial.memory_share_pct for trial in self.trials])

    @property
    def sm_pct(self) -> float | None:
        """The mean share of active multiprocessors, in percent; None if unknown."""
        return of_known(fmean, [trial.probe.metrics.get("min_avg_sm") for trial in self.trials])


Standings = Mapping[str, Standing]
"""The launch key of each config → what is known of the config, in the order of the first measurements."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leader:
    """The best config, and what is to be said about the choice."""

    best: Standing
    instead_of: Standing | None = None
    """The config with the highest mean, if another one is the best because the two differ by less than their error."""
    unconfirmed: Standing | None = None
    """The config that the plain command must still measure: only sessions have, and it may be better than every other.

    It is the best itself, or a config that may turn out to be better.
    """


def ended(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that have ended."""
    return [trial for trial in trials if trial.state in FINISHED]


def with_newest_soaks(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials without outdated soaks: of each config, only the last soak of the newest kind stays.

    The kind of a soak is its flags and its limit of memory. They decide how much memory a config takes. So once a soak
    of another kind has ended, all soaks before it are outdated.
    """
    newest_kind, newest = None, dict[str, int]()  # launch key → number of the last soak
    for trial in trials:
        if trial.soak and trial.counts:
            if trial.soak.kind != newest_kind:
                newest_kind, newest = trial.soak.kind, {}
            newest[trial.launch_key] = trial.number
    up_to_date = set(newest.values())
    return [trial for trial in trials if trial.number in up_to_date or not (trial.soaks and trial.counts)]


class ColdAndWarm(NamedTuple):
    """What is known of each config that may be the best, from its cold and from its warm measurements alone."""

    cold: Standings
    """From trials of the trainer's plain command."""
    warm: Standings
    """From trials in sessions."""

    @property
    def pairs(self) -> list[tuple[Standing, Standing]]:
        """Each config that was measured both warm and cold: what its warm trials say, and what its cold trials say."""
        return [(warm, self.cold[launch]) for launch, warm in self.warm.items() if launch in self.cold]

    @property
    def only_warm(self) -> list[Standing]:
        """What is known of each config that only sessions have measured."""
        return [standing for launch, standing in self.warm.items() if launch not in self.cold]


def cold_and_warm(trials: Iterable[TrialRecord]) -> ColdAndWarm:
    """Return what is known of each config that may be the best: from its cold trials, and from its warm trials.

    - A config is left out if one of its trials was not eligible, or if its last trial failed for good. If the cold
      trials leave a config out, its warm trials count no more.
    - Once the memory of a config has not lasted in a soak, only configs whose memory has lasted in a soak are left.
      Their soaks compare them: a soak may provoke what costs time, and some of these configs have no probe.
    - If the user has reported that a training ran out of memory, configs that need as much memory are left out. If no
      config is left whose memory has lasted in a soak, configs that need less memory count without a soak.

    Args:
        trials: All trials of a case, in their order.
    """
    known = with_newest_soaks(ended(trials))
    has_lasted = {trial.launch_key: trial.may_be_best for trial in known if trial.soaks and trial.counts}
    too_large = _numbers_of_too_large(known)
    known = [replace(trial, is_barred=True) if trial.number in too_large else trial for trial in known]

    # Group the trials that count by their config, in each way.
    excused = failures_of_broken_trainer(known)
    counted = [trial for trial in known if trial.counts and trial.number not in excused]
    cold_trials = grouped((trial for trial in counted if not trial.warm), attrgetter("launch_key"))
    warm_trials = grouped((trial for trial in counted if trial.warm), attrgetter("launch_key"))
    cold = _eligible_standings(cold_trials)

    # Once memory has been too short in a soak, only configs are left whose memory has lasted in a soak.
    if not all(has_lasted.values()):
        soaked = [launch for launch in cold if has_lasted.get(launch)]
        by_soak = {launch: _averaged([trial for trial in cold_trials[launch] if trial.soaks]) for launch in soaked}
        is_reported = any(trial.grows_with for trial in known)  # by the user: such a failure names a parameter
        if by_soak or not is_reported:  # after a report, smaller configs count without a soak
            return ColdAndWarm(by_soak, {})

    # Where the cold trials leave a config out, its warm trials count no more.
    for launch in cold_trials.keys() - cold.keys():
        warm_trials.pop(launch, None)
    return ColdAndWarm(cold, _eligible_standings(warm_trials))


def _numbers_of_too_large(trials: Sequence[TrialRecord]) -> set[int]:
    """Return the numbers of the trials whose configs need too much memory for a training.

    They need at least as much as a config with which a training ran out of memory, as the user has reported.
    """
    limits = [trial for trial in trials if trial.grows_with is not None and trial.failed]  # the reported failures
    if not limits:  # reading all peaks takes time
        return set()
    peaks: dict[str, float] = {}
    for trial in trials:
        if trial.memory_share_pct is not None and not trial.soaks:
            peaks[trial.launch_key] = max(trial.memory_share_pct, peaks.get(trial.launch_key, 0.0))
    return {trial.number for trial in trials if any(_needs_as_much(trial, limit, peaks) for limit in limits)}


def _needs_as_much(trial: TrialRecord, limit: TrialRecord, peaks: Mapping[str, float]) -> bool:
    """Return whether a config needs as much memory as that of `limit`, whose training ran out; it then cannot be best.

    1. The same config does, and so does every config on a larger rung.
    2. Where probes measured both, their peaks decide. On a smaller rung, the config must need clearly more.
    3. Without these, a config on the same rung does where none of its sizes is smaller.

    Args:
        trial: A trial of the config.
        limit: A trial of the config that ran out; its `grows_with` names the parameter whose values are the rungs.
        peaks: Launch key → the largest share of memory that probes have measured, in percent.
    """
    rung = trial.config.get(limit.grows_with or "")
    limit_rung = limit.config.get(limit.grows_with or "")
    ratio = rung / limit_rung if is_number(rung) and is_number(limit_rung) and limit_rung > 0 else 1.0
    # 1
    if ratio > 1.0 or trial.launch_key == limit.launch_key:
        return True
    # 2
    peak, limit_peak = peaks.get(trial.launch_key), peaks.get(limit.launch_key)
    if peak is not None and limit_peak is not None:
        factor = 1.03 if ratio < 1.0 else 0.97  # peaks within 3 % may be those of equal needs (chosen)
        return peak > factor * limit_peak
    # 3
    sizes = [(trial.config.get(name), least) for name, least in limit.config.items() if is_number(least)]
    return ratio == 1.0 and all(is_number(size) and size >= least for size, least in sizes)


def eligible(trials: Iterable[TrialRecord]) -> Standings:
    """Return what is known of each config that may be the best: by its cold trials, or else by its warm trials.

    See `cold_and_warm`.
    """
    cold, warm = cold_and_warm(trials)
    return {**warm, **cold}


def all_measured(trials: Sequence[TrialRecord]) -> list[Standing]:
    """Return what is known of every config that was measured, also of those that may not be the best.

    The order is that of the first measurements. `trials`: all trials of a case.
    """
    may_be_best = eligible(trials)
    measured = (trial for trial in trials if trial.state == COMPLETE and trial.values)
    by_launch = grouped(measured, attrgetter("launch_key"))
    return [may_be_best.get(launch) or _barred(own_trials) for launch, own_trials in by_launch.items()]


def leader(trials: Iterable[TrialRecord], defaults: Sequence[Config] = ()) -> Leader | None:
    """Return the best config, and what is to be said about the choice; None where no config may be the best.

    Cold trials decide. A config that only sessions have measured is the best in two cases only:

    1. No config was measured cold.
    2. In sessions it beats the config that is the best of the cold ones: it has a higher value and more samples/s. And
       no config that was measured in both ways beats it in sessions.

    Args:
        trials: All trials of a case, in their order.
        defaults: The default config of each rung, which is preferred where a gain is not sure.
    """
    measured = cold_and_warm(trials)
    # 1
    if not measured.cold:
        return _leader_of(measured.only_warm, defaults, unconfirmed=True) if measured.warm else None
    # 2
    best_of_cold = _leader_of(list(measured.cold.values()), defaults)
    in_session = measured.warm.get(best_of_cold.best.launch_key)
    if in_session:
        ahead = [rival for rival in measured.only_warm if _beats(rival, in_session)]
        if ahead := [rival for rival in ahead if not any(_beats(warm, rival) for warm, _ in measured.pairs)]:
            return _leader_of(ahead, defaults, unconfirmed=True)
    return replace(best_of_cold, unconfirmed=_warm_challenger(measured))


def best(trials: Iterable[TrialRecord], defaults: Sequence[Config] = ()) -> Standing | None:
    """Return the best config; None where none may be the best. See `leader`."""
    chosen = leader(trials, defaults)
    return chosen.best if chosen else None


def rival(best: Standing, standings: Iterable[Standing]) -> Standing | None:
    """Return the config that people may prefer to the best: the fastest, if it is at least 1.5 times as fast.

    None where none of the configs is so fast, or where speeds are unknown.
    """
    first = fastest(standings)
    if first is None or not best.samples_per_s:
        return None
    return first if _speed(first) >= 1.5 * best.samples_per_s else None


def fastest(standings: Iterable[Standing]) -> Standing | None:
    """Return the eligible config with the most samples/s; None where no speed is known."""
    known = (standing for standing in standings if standing.is_eligible and standing.samples_per_s)
    return max(known, key=_speed, default=None)


def incumbent(trials: Iterable[TrialRecord]) -> float | None:
    """Return the largest mean of the first objective among the eligible configs; None where there are none.

    A running probe must beat this mean. It may come from a session, unlike the mean of the best config.
    """
    return max((standing.value for standing in eligible(trials).values()), default=None)


def failures_of_broken_trainer(trials: Sequence[TrialRecord]) -> set[int]:
    """Return the numbers of the failed trials that say nothing of their configs, because the trainer was broken then.

    If at least `BROKEN_AFTER` trials failed before the first trial completed, the trainer was broken until then. No
    trial is returned while none has completed: the configs may be at fault.
    """
    failed: set[int] = set()
    for trial in trials:
        if trial.state == COMPLETE:
            return failed if len(failed) >= BROKEN_AFTER else set()
        if has_blameless_config(trial):
            failed.add(trial.number)
    return set()


def has_blameless_config(trial: TrialRecord) -> bool:
    """Return whether a trial failed and its config is not to blame; if it is, the trial is pruned or too slow."""
    return trial.state == FAIL and is_failure(trial.failure) and trial.failure != FailureKind.TOO_SLOW


def is_failure(kind: str | None) -> bool:
    """Return whether a probe failed by itself: neither the user nor the end of the tuner stopped it."""
    return kind not in {None, FailureKind.INTERRUPTED}


def counts_against_config(kind: str | None) -> bool:
    """Return whether a probe failed by itself, and its config may be the cause; otherwise it is simply probed again."""
    return is_failure(kind) and kind not in _WITHOUT_BLAME


_WITHOUT_BLAME = {kind for kind in FailureKind if kind.says_nothing}
"""The failures that show nothing about a config."""


def front(trials: Iterable[TrialRecord]) -> list[Standing]:
    """Return the Pareto front: the configs that no other config dominates, the largest first objective first.

    They are compared by `values_to_compare`, which may differ from the values that their standings hold.
    """
    return _undominated(values_to_compare(trials))


def _undominated(known: Iterable[tuple[Values, Standing]]) -> list[Standing]:
    """Return the configs that no other config dominates, sorted by the first value, the largest first.

    `known`: the values by which each config is compared, and what is known of the config.
    """
    members: list[tuple[Values, Standing]] = []
    for values, standing in sorted(known, key=itemgetter(0), reverse=True):
        # in this order, no config is dominated by a later one
        if not any(dominates(member, values) for member, _ in members):
            members.append((values, standing))
    return [standing for _, standing in members]


def values_to_compare(trials: Iterable[TrialRecord]) -> list[tuple[Values, Standing]]:
    """Return, for each config that may be the best, the values by which it is compared, and what is known of it.

    A config that was measured cold is compared by its cold values. The values of any other config are `_corrected`.
    """
    measured = cold_and_warm(trials)
    pairs = [(warm.values, cold.values) for warm, cold in measured.pairs]
    of_cold = [(standing.values, standing) for standing in measured.cold.values()]
    return of_cold + [(_corrected(standing.values, pairs), standing) for standing in measured.only_warm]


def _corrected(values: Values, pairs: Sequence[tuple[Values, Values]]) -> Values:
    """Return the values that the plain command would probably measure of a config that only sessions have measured.

    Each value is lowered by the mean share by which sessions read too high. But if the config dominates some configs of
    `pairs` in sessions, it counts as at least as good as their cold values, unless another config of `pairs` dominates
    it in sessions: see `dominates`.

    Args:
        values: The warm values of the config.
        pairs: The warm and the cold values of each config that was measured in both ways.
    """
    if not pairs:
        return values
    lowered: list[float] = []
    for place, value in enumerate(values):
        of_objective = [(warm[place], cold[place]) for warm, cold in pairs]
        excess_shares = [1 - cold_value / warm_value if warm_value else 0.0 for warm_value, cold_value in of_objective]
        lowered.append(value * (1 - _shrunk_mean(excess_shares)))
    if any(dominates(warm, values) for warm, _ in pairs):
        return tuple(lowered)
    beaten = [cold for warm, cold in pairs if dominates(values, warm)]
    return tuple(map(max, zip(lowered, *beaten, strict=True)))


def dominates(values: Values, rivals: Values) -> bool:
    """Return whether no value is below its counterpart in `rivals`, and at least one is above."""
    pairs = list(zip(values, rivals, strict=True))
    return all(value >= rival for value, rival in pairs) and any(value > rival for value, rival in pairs)


def undominated_in_value_and_speed(standings: Iterable[Standing]) -> list[Standing]:
    """Return the eligible configs that no other config dominates in both first objective and samples/s."""
    return _undominated(((each.value, _speed(each)), each) for each in standings if each.is_eligible)


def _leader_of(rivals: Sequence[Standing], defaults: Sequence[Config], *, unconfirmed: bool = False) -> Leader:
    """Return the best of some configs that were all measured in the same way.

    Two means count as equal where they differ by no more than the standard error of their difference.

    1. Samples/s are the objective: of the configs that equal the largest mean, the config that changes the fewest
       values of its default is the best. A default equals it up to `SURE` standard errors, so that a command changes
       only for a gain.
    2. Any other objective: of the configs that equal the largest mean, the fastest is the best. Of equally fast
       configs, it is the config with the least memory, then the config nearest to its rung's default. A config that
       another config beats in both the first objective and samples/s is never the best.

    Args:
        rivals: The configs, at least one.
        defaults: The default config of each rung.
        unconfirmed: Whether the plain command must still measure the best.
    """
    is_speed = all(rival.value == rival.samples_per_s for rival in rivals)
    candidates = rivals if is_speed else _unbeaten(rivals)
    top = max(candidates, key=attrgetter("value"))
    tie = 1e-4 * top.value  # a smaller difference counts as none (chosen)
    equal = [rival for rival in candidates if top.value - rival.value <= max(tie, _noise(rival.error, top.error))]
    # 1
    if is_speed:
        unchanged = [rival for rival in candidates if not _distance(rival.config, defaults)]
        equal += [rival for rival in unchanged if top.value - rival.value <= SURE * _noise(rival.error, top.error)]
        chosen = min(equal, key=lambda rival: (_distance(rival.config, defaults), -rival.value))
    # 2
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
    """Return the configs that no other config beats in both the first objective and samples/s, in their order.

    To compare all pairs would take too long with thousands of configs. So each config is compared only with the fastest
    of all configs with a higher value.
    """
    fastest_at: dict[float, float] = {}  # value → the most samples/s of a config with this value
    for rival in rivals:
        fastest_at[rival.value] = max(_speed(rival), fastest_at.get(rival.value, 0.0))
    fastest_above: dict[float, float] = {}  # value → the most samples/s of a config with a higher value
    fastest_yet = -math.inf
    for value in sorted(fastest_at, reverse=True):
        fastest_above[value] = fastest_yet
        fastest_yet = max(fastest_yet, fastest_at[value])
    return [rival for rival in rivals if _speed(rival) >= fastest_above[rival.value]]


def _beats(rival: Standing, standing: Standing) -> bool:
    """Return whether a rival has a higher first objective and more samples/s than a config."""
    return rival.value > standing.value and _speed(rival) > _speed(standing)


def _warm_challenger(measured: ColdAndWarm) -> Standing | None:
    """Return the best config that only sessions have measured, if it may be better than every cold one, else None.

    Sessions read values that are too high. This offset is estimated from the configs that were measured both warm and
    cold (see `_shrunk_mean`), and subtracted. The config must then be better than the best cold config by more than the
    standard error of their difference, which includes the error of the offset.
    """
    top = max(measured.only_warm, key=attrgetter("value"), default=None)
    if top is None:
        return None
    differences = [warm.value - cold.value for warm, cold in measured.pairs]
    errors = [_noise(warm.error, cold.error) for warm, cold in measured.pairs]
    offset, offset_error = _shrunk_mean(differences), error_of_mean(differences, errors)
    best_cold = max(measured.cold.values(), key=attrgetter("value"))
    noise = math.hypot(top.error or 0.0, best_cold.error or 0.0, offset_error or 0.0)
    return top if top.value - offset > best_cold.value + noise else None


def _shrunk_mean(differences: Sequence[float]) -> float:
    """Return the mean of some differences, shrunk to half where there is only one, as it may be an exception; or 0."""
    return sum(differences) / max(len(differences), 2)


def _distance(config: Config, defaults: Sequence[Config]) -> int:
    """Return in how many parameters a config differs from the default of its rung."""
    of_rung = (default for default in defaults if default.get(LADDER) == config.get(LADDER))
    default = next(of_rung, {})  # without a default, every parameter differs
    return sum(default.get(name) != value for name, value in config.items())


def _noise(first: float | None, second: float | None) -> float:
    """Return the standard error of the difference of two values, from the standard error of each."""
    return math.hypot(first or 0.0, second or 0.0)


def _speed(standing: Standing) -> float:
    """Return the samples/s; 0 where they are unknown."""
    return standing.samples_per_s or 0.0


def _eligible_standings(trials_of: Mapping[str, Sequence[TrialRecord]]) -> Standings:
    """Return what the trials of each config show together, without the configs that may not be the best.

    These are the configs whose last trial failed, and those of which a trial was not eligible.

    `trials_of`: the launch key of a config → its trials, in their order.
    """
    standings: dict[str, Standing] = {}
    for launch, own_trials in trials_of.items():
        ran = [trial for trial in own_trials if not trial.failed]
        if not own_trials[-1].failed and all(trial.may_be_best for trial in ran):
            probes = [trial for trial in ran if not trial.soaks]
            standings[launch] = _averaged(probes or ran)  # soaks count only where there is no probe
    return standings


def _barred(own_trials: Sequence[TrialRecord]) -> Standing:
    """Return what the complete trials of a config that may not be the best show together: the cold ones, if any."""
    cold = [trial for trial in own_trials if not trial.warm]
    return replace(_averaged(cold or own_trials), is_eligible=False)


def _averaged(trials: Sequence[TrialRecord]) -> Standing:
    """Return what some trials of one config show together: the means of the readings that count, with their errors."""
    readings = agreeing(trials)
    values = [trial.values for trial in readings]
    speeds = [(trial.samples_per_s, trial.probe.samples_per_s_se) for trial in readings]
    known = [(speed, error) for speed, error in speeds if speed is not None]
    return Standing(
        trials=tuple(readings),
        values=tuple(fmean(of_objective) for of_objective in zip(*values, strict=True)),
        error=error_of_mean([first for first, *_ in values], [trial.error for trial in readings]),
        samples_per_s=fmean(speed for speed, _ in known) if known else None,
        speed_error=error_of_mean([speed for speed, _ in known], [error for _, error in known]),
    )


REMEASURE = "rerun when the machine is quiet, or let `tuner verify` measure anew"
"""Advice about readings that other programs have disturbed: to measure the configs anew."""


def why_incomparable(first: Sequence[TrialRecord], second: Sequence[TrialRecord]) -> str | None:
    """Return in words why the speeds of two configs cannot be compared; None where they can.

    They cannot in three cases:

    1. Two readings of one config are far apart.
    2. Other programs were much busier beside one of the configs.
    3. The speed of one config changed for good by at least a factor of 1.5, and all trials of the other config ended
       before they would have shown such a change. A smaller change may have another cause.

    Args:
        first: The trials of one config, in their order.
        second: The trials of the other config, likewise.
    """
    # 1 and 2
    if reason := far_apart(first) or far_apart(second) or much_busier(first, second) or much_busier(second, first):
        return reason
    return _changed_alone(first, second)  # 3


def _changed_alone(first: Sequence[TrialRecord], second: Sequence[TrialRecord]) -> str | None:
    """Return a sentence if the speed of one config changed for good, and the other's trials were too short to show it.

    Each config is given by its trials. A change by less than a factor of 1.5 does not count; None without one.
    """
    for trials, rivals in ((first, second), (second, first)):
        for trial in trials:
            change = trial.probe.change
            if change is None or max(change.times, 1.0 / change.times) < 1.5:
                continue
            if not any(_has_reached(rival, change, trial) for rival in rivals):
                newest = rivals[-1]
                at = f"iteration {change.iteration}, after {change.seconds:.1f} s"
                end = f"#{newest.number} ended at iteration {newest.probe.iteration}, after {_trained_s(newest):.1f} s"
                return f"#{trial.number} went on at {change.times:.2g} times its speed from {at}, and {end}"
    return None


def least_times(best: Standing, baseline: Standing, *, is_speed: bool) -> float | None:
    """Return how many times as fast as `baseline` the best probably is at least; None where that is unknown.

    `is_speed`: whether the first objective is the speed to compare; otherwise it is samples/s.

    Other programs only slow a training down. So the best is at least as fast as its slowest reading, and `baseline` at
    most as fast as its fastest reading would be without the waits for processors that others used. Both have `SURE`
    standard errors. The ratio is unknown if only one of the two has shown a change of speed, or if sessions
    measured only one.
    """
    if best.is_warm != baseline.is_warm or _changed_alone(best.trials, baseline.trials):
        return None
    slow = [_speed_apart(trial, -SURE, is_speed=is_speed) for trial in best.trials]
    fast = [_speed_apart(trial, SURE, is_speed=is_speed, with_waits=False) for trial in baseline.trials]
    least, most = (of_known(pick, speeds) for pick, speeds in ((min, slow), (max, fast)))
    return None if None in [*slow, *fast] or least is None or not most else least / most


def _speed_apart(trial: TrialRecord, errors: float, *, is_speed: bool, with_waits: bool = True) -> float | None:
    """Return a trial's speed plus so many of its standard errors; None where they are unknown.

    `is_speed`: whether the first objective is the speed; otherwise it is samples/s. With `with_waits` false, waits for
    processors that others used are taken out; unknown if the rank hardly ran.
    """
    of_samples = trial.samples_per_s, trial.probe.samples_per_s_se
    speed, error = (trial.value, trial.error) if is_speed else of_samples
    if speed is None or error is None:
        return None
    bound = speed + errors * error
    if with_waits:
        return bound
    waits_pct = of_known(max, [device.delayed_mean_pct for device in trial.probe.devices])
    is_unknown = trial.probe.is_disturbed if waits_pct is None else waits_pct >= 90.0  # chosen
    return None if is_unknown else bound * (1.0 + possible_loss(trial.probe.devices))


def much_busier(first: Sequence[TrialRecord], second: Sequence[TrialRecord]) -> str | None:
    """Return a sentence if other programs were much busier beside the first config than beside the second.

    Each config is given by its trials, of which the quietest counts. None if other programs were not much busier, or
    if that is not known, as on GPUs.
    """
    known = [
        [(trial.probe.others_pct, trial.number) for trial in trials if trial.probe.others_pct is not None]
        for trials in (first, second)
    ]
    if not all(known):
        return None
    (busy_pct, busy_number), (calm_pct, calm_number) = map(min, known)
    if busy_pct - calm_pct < 30.0:  # percent of the processors (chosen)
        return None
    return (
        f"other programs used {busy_pct:.0f} % of the processors beside #{busy_number}, and {calm_pct:.0f} % beside "
        f"#{calm_number}; {REMEASURE}"
    )


def agreeing(readings: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """Return the readings of one config that its means are made of: without those that contradict the others.

    1. A reading during which other programs used the processors does not count if an undisturbed reading is far off.
    2. Where more than half of three or more readings are near their median, the others do not count.
    """
    # 1
    calm = [trial for trial in readings if not trial.probe.is_disturbed]
    counted = [trial for trial in readings if trial in calm or not any(far_apart((trial, quiet)) for quiet in calm)]
    # 2
    by_speed = sorted(counted, key=lambda trial: trial.samples_per_s or trial.probe.iterations_per_s or 0.0)
    median = by_speed[len(by_speed) // 2]
    typical = [trial for trial in counted if not far_apart((trial, median))]
    is_majority = len(counted) >= 3 and 2 * len(typical) > len(counted)
    return typical if is_majority else counted


def far_apart(trials: Sequence[TrialRecord]) -> str | None:
    """Return a sentence if the readings of one config contradict each other; None if they do not.

    They do if the fastest is 1.3 times as fast as the slowest, and faster by more than three standard errors. Samples/s
    are compared where any are known, otherwise iterations/s.
    """
    name, unit = "samples_per_s", "samples/s"
    if not any(trial.probe.samples_per_s for trial in trials):
        name, unit = "iterations_per_s", "iterations/s"
    known = [trial for trial in trials if getattr(trial.probe, name)]
    if not known:
        return None
    slowest = min(known, key=lambda trial: getattr(trial.probe, name))
    fastest = max(reversed(known), key=lambda trial: getattr(trial.probe, name))  # of equal readings, the newest
    slow, slow_error = getattr(slowest.probe, name), getattr(slowest.probe, f"{name}_se")
    fast, fast_error = getattr(fastest.probe, name), getattr(fastest.probe, f"{name}_se")
    if fast < 1.3 * slow or fast - slow <= 3.0 * _noise(slow_error, fast_error):
        return None
    readings = f"#{slowest.number} and #{fastest.number} read {slow:.4g} and {fast:.4g} {unit}"
    return f"{readings} of one config, so another program may have been busy; {REMEASURE}"


def _has_reached(trial: TrialRecord, change: Change, changed: TrialRecord) -> bool:
    """Return whether a trial ran so long that it would show the change of speed that the trial `changed` shows.

    It must have made as many iterations or samples, and have trained for as many seconds. A trial whose iterations are
    unknown is judged by the seconds alone.
    """
    if _trained_s(trial) < change.seconds:
        return False
    reached = trial.probe.iteration
    if reached is None or reached >= change.iteration:
        return True
    iterations, samples = changed.probe.iteration, changed.probe.samples
    # with larger batches, as many samples take fewer iterations
    samples_at_change = change.iteration * samples / iterations if samples and iterations else math.inf
    return (trial.probe.samples or 0) >= samples_at_change


def _trained_s(trial: TrialRecord) -> float:
    """Return the seconds from the first mark of a trial to its end."""
    return (trial.total_s or 0.0) - (trial.probe.start_up_s or 0.0)
