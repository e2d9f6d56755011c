"""The state of a case as scripts read it: a row per case, from which tables and sentences are made."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.export.bound import Bound, Profile, bound
from tuner.export.case_view import NO_TRIALS, CaseView, end_of
from tuner.export.speed_gain import BestGain, gain, least_gain, times_default, unmeasured
from tuner.records.schema import INELIGIBLE
from tuner.records.trial import INTERRUPTED, OK, PRUNED, RUNNING
from tuner.search.standing import Standing
from tuner.study import LADDER, Config, rung_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigRow:
    """A measured config, as scripts read it."""

    trial: int
    """The newest of its trials."""
    value: float
    """The first objective: the mean of all trials that count."""
    error: float | None
    """The standard error of `value`."""
    readings: int
    """The number of trials that `value` is the mean of."""
    config: Config
    """The config without the pruner's patience."""
    samples_per_s: float | None
    vs_default: float | None
    """The ratio of samples/s to the default config at the same rung; None where the default was not measured."""
    changes_learning: tuple[str, ...]
    """The parameters that change what is learnt and whose values differ from the default's."""
    measured: str = "cold"
    """`warm` where only sessions have measured the config."""
    times: float | None = None
    """Its samples/s in multiples of those of the best, both measured in the same way."""
    beside_best: tuple[float, float] | None = None
    """The value of this config and that of the best, both measured in the same way; None where they were not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseSummary:
    """The state of one case, as scripts read it. The counts are numbers of trials."""

    case: str
    status: str
    """`ok` if there is a best; otherwise the commonest failure, `pruned` or `no_trials`."""
    objective: str
    """The first objective."""
    best: ConfigRow | None
    ok: int
    pruned: int
    """The trials that the pruner stopped."""
    failed: int
    interrupted: int
    running: int
    measured_on: Mapping[str, int]
    """Devices → the number of trials that they measured, as far as the devices are known."""
    instead_of: ConfigRow | None = None
    """The config with the highest value, if the best is as good within the standard error."""
    unconfirmed: ConfigRow | None = None
    """The config that the plain command must measure before the best is sure: the best itself, or a stronger one."""
    default: ConfigRow | None = None
    """The default config of the best's rung or, where it was not measured, of another rung."""
    default_name: str = "the default"
    """What people call it."""
    gain: BestGain | None = None
    """What the best gains over the default; None where there is none, where it is the best, and where it is unknown."""
    least_gain: float | None = None
    """How many times as fast as the default the best probably is at least, where `gain` is unknown; else None."""
    faster: ConfigRow | None = None
    """The rival: a config that makes far more samples/s than the best."""
    fastest: ConfigRow | None = None
    """The fastest config that learns what the default does, where the study looks for busy devices; else None."""
    race: str | None = None
    """What a race says of the best and the `fastest`, as a sentence; None where it has not run both."""
    stopped: str | None = None
    """How the search stopped before its end, and how to go on with it; None if it did not, or is unknown."""
    doubts: tuple[str, ...] = ()
    """Why some measurements cannot be compared, as sentences."""
    profile: Profile | None = None
    """How busy the parts of the devices were with the best config."""
    bound: Bound | None = None
    """What limits the best config; None where the profile does not tell."""
    probe_s: float = 0.0
    """The seconds of all probes."""
    left_out: int = 0
    """The trials that do not count: another program added them, or their records are damaged."""
    ladder: str | None = LADDER
    """The parameter whose values are the rungs; None where there is no ladder."""
    replay_of: str | None = None
    """The table that stood in for trainer and devices; None for a real run."""

    @property
    def times_default(self) -> float | None:
        """The best's samples/s in multiples of those of the default at its rung; None where they are unknown.

        Any config makes more samples/s at a larger rung, so a default at another rung would mislead.
        """
        if self.best is None:
            return None
        if self.default and rung_of(self.default.config, self.ladder) == rung_of(self.best.config, self.ladder):
            return self.gain.times if self.gain else None
        return self.best.vs_default

    @property
    def is_default_best(self) -> bool:
        """Whether the best is the default itself."""
        return bool(self.best and self.default and self.best.config == self.default.config)

    @property
    def has_none_eligible(self) -> bool:
        """Whether trials have ended by themselves, but none of them may be the best."""
        return self.best is None and self.status not in {NO_TRIALS, INTERRUPTED}


def summary(case: CaseView) -> CaseSummary:
    """Return the state of a case, as scripts read it: counts of its trials, its best, and what is known beside it."""
    counts, chosen = case.counts, case.chosen
    is_no_failure = {OK, INELIGIBLE, PRUNED, INTERRUPTED}  # each other status is a kind of failure
    failed = sum(count for status, count in counts.items() if status not in is_no_failure)
    gained = gain(case)
    successes = [trial for trial in case.ended if end_of(trial) in {OK, INELIGIBLE}]
    return CaseSummary(
        case=case.name,
        status=case.status,
        objective=case.objectives[0],
        ladder=case.record.ladder,
        best=_row(case, case.best),
        ok=counts[OK] + counts[INELIGIBLE],
        pruned=counts[PRUNED],
        failed=failed,
        interrupted=counts[INTERRUPTED],
        running=sum(trial.state == RUNNING for trial in case.trials),
        measured_on=dict(Counter(trial.measured_on for trial in successes if trial.measured_on)),
        instead_of=_row(case, chosen.instead_of if chosen else None),
        unconfirmed=_row(case, chosen.unconfirmed if chosen else None),
        default=_row(case, case.default),
        default_name=case.default_name,
        gain=gained,
        least_gain=least_gain(case),
        faster=_row(case, case.rival),
        fastest=_row(case, case.faster_than_busiest),
        race=case.race_with_faster,
        stopped=case.stopped,
        doubts=(*case.doubts, *(unmeasured(case) if gained else ())),
        profile=case.profile,
        bound=bound(case.profile) if case.profile else None,
        probe_s=case.probe_s,
        left_out=case.left_out,
        replay_of=case.replay_of,
    )


def _row(case: CaseView, standing: Standing | None) -> ConfigRow | None:
    """Return the row of a measured config, with its comparison with the best of the case; None without a config."""
    if standing is None:
        return None
    # the config and the best, both measured in the same way; None where they cannot be compared
    pair = None if case.unlike_best(standing) else case.comparable_pair(standing)
    vs_default, times = times_default(case, standing), None
    if pair and pair.first.samples_per_s and pair.second.samples_per_s:
        times = pair.first.samples_per_s / pair.second.samples_per_s
    return ConfigRow(
        trial=standing.trial,
        value=standing.value,
        error=standing.widened_error,
        readings=standing.readings,
        config=standing.config,
        samples_per_s=standing.samples_per_s,
        vs_default=vs_default and vs_default.value,
        changes_learning=case.changes_learning(standing.config),
        measured="warm" if standing.is_warm else "cold",
        times=times,
        beside_best=(pair.first.value, pair.second.value) if pair else None,
    )
