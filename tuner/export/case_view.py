"""What the trials of a case come to: the one view that every table, sentence and picture of a case reads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

from tuner.export.bound import Bound, Profile, bound
from tuner.probe import LOADED, SAMPLES_PER_S, duration, over
from tuner.records.case_record import RECORDED, CaseRecord, RunRecord, StudyAttributes, newest_scored
from tuner.records.schema import INELIGIBLE
from tuner.records.trial import INTERRUPTED, OK, PRUNED, RUNNING, TrialRecord, pooled
from tuner.search.comparable import unlike
from tuner.search.scores import ahead, counted, means
from tuner.search.standing import (
    Leader,
    Standing,
    Standings,
    all_measured,
    ended,
    fastest,
    front,
    is_failure,
    leader,
    ways,
)
from tuner.search.standing import rival as find_rival
from tuner.study import LADDER, Config, grouped, launch_digest, launched, rung_of

NO_TRIALS = "no_trials"
BUSY = ("min_avg_util", "min_avg_sm")
"""The objectives of a study that looks for busy devices, not for speed."""


@dataclass(frozen=True, kw_only=True)
class CaseView:
    """One case of a study; `kept` is empty where the database holds no record of the case."""

    study_id: int = 0
    name: str
    kept: CaseRecord = field(default_factory=CaseRecord)
    facts: StudyAttributes = field(default_factory=lambda: StudyAttributes({}))
    """What the study keeps beside the trials."""
    trials: Sequence[TrialRecord] = ()
    """All trials, in the order of their numbers."""
    left_out: int = 0
    """The trials that do not count: another program added them, or their records are damaged."""

    @property
    def method(self) -> str:
        """The learning method."""
        return self.kept.method or self.name.split("_", 1)[0]

    @property
    def objective(self) -> str:
        """The metric that the study maximises; several metrics are separated by commas."""
        return self.kept.objective or "value"

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the metrics that the study maximises. A trial's `value` is the first of them."""
        return tuple(self.objective.split(","))

    @property
    def replay_of(self) -> str | None:
        """The table that stood in for trainer and devices; None for a real run. Each case has a table of its name."""
        recorded = self.kept.trainer.get(RECORDED)
        return f"{self.name}.parquet of {recorded}" if recorded else None

    @cached_property
    def race(self) -> tuple[RunRecord, ...]:
        """The runs of the case's race. Where a study has changed what it takes as the score, those of the newest."""
        return tuple(newest_scored(self.facts.race))

    @cached_property
    def configs(self) -> tuple[Standing, ...]:
        """Every measured config, with the means of its measurements, in the order of the first measurements."""
        return tuple(all_measured(self.trials))

    @cached_property
    def front(self) -> tuple[Standing, ...]:
        """The Pareto front, the largest first objective first; empty in a study of one objective."""
        return tuple(front(self.trials)) if len(self.objectives) > 1 else ()

    @cached_property
    def chosen(self) -> Leader | None:
        """The best config, and what is to be said about the choice; None where no config may be the best.

        With several objectives, the best is the member of the front with the largest first objective.
        """
        if len(self.objectives) == 1:
            return leader(self.trials, self.kept.defaults)
        unconfirmed = next((member for member in self.front if member.is_warm), None)
        return Leader(best=self.front[0], unconfirmed=unconfirmed) if self.front else None

    @property
    def best(self) -> Standing | None:
        """The best config; None where no config may be the best."""
        return self.chosen.best if self.chosen else None

    @cached_property
    def rival(self) -> Standing | None:
        """The fastest config, if it makes far more samples/s than the best; None in a study that maximises them.

        The two are compared as they were measured in the same way.
        """
        if self.fastest is None or SAMPLES_PER_S in self.objectives:
            return None
        pair = self.alike(self.fastest)
        return self.fastest if pair and find_rival(pair.best, [pair.config]) else None

    @cached_property
    def fastest_as_default(self) -> Standing | None:
        """The fastest config that learns what the default does; None where busy devices alone are not the objective.

        None also where it makes no more samples/s than the best, as both were measured in the same way.
        """
        if not {*self.objectives} <= {*BUSY}:
            return None
        first = fastest(config for config in self.configs if not self.changes_learning(config.config))
        pair = self.alike(first) if first and self.best and first.launch != self.best.launch else None
        if pair is None or (pair.config.samples_per_s or 0.0) <= (pair.best.samples_per_s or 0.0):
            return None
        return first

    @property
    def race_of_both(self) -> str | None:
        """What a race has told of the best and `fastest_as_default`, as a sentence; None where it has not run both."""
        best, second = self.best, self.fastest_as_default
        runs = grouped(self.race, lambda run: launch_digest(run.config))
        both = {each.launch: runs.get(each.launch, ()) for each in (best, second) if each}
        seconds = min((max((run.seconds for run in counted(made)), default=0.0) for made in both.values()), default=0.0)
        scores = means(both, seconds) if seconds else {}
        if best is None or second is None or len(scores) < 2:
            return None
        busiest, faster = scores[best.launch], scores[second.launch]
        lead = ahead(faster, busiest)
        if lead is None or not lead.is_clear:
            which = "which learns more is not clear"
        else:
            which = f"the {'faster' if lead.errors > 0 else 'busier'} one learns more"
        told = (f"{mean.value:.3g}{f' ± {mean.error:.2g}' if mean.error else ''}" for mean in (faster, busiest))
        return f"after {duration(seconds)} of a race {which}: scores {' against '.join(told)}"

    def alike(self, standing: Standing) -> "BesideBest | None":
        """Return a config and the best, both as the plain command measured them, or both as sessions did.

        The two ways may read differently, so one of each says nothing. None where there is no such pair.
        """
        best = self.best
        if best is None or standing.is_warm == best.is_warm:
            return BesideBest(standing, best) if best else None
        config, best = self._in_sessions.get(standing.launch), self._in_sessions.get(best.launch)
        return BesideBest(config, best) if config and best else None

    @cached_property
    def _in_sessions(self) -> Standings:
        """The configs as sessions measured them."""
        return ways(self.trials).warm

    @property
    def fastest(self) -> Standing | None:
        """The fastest eligible config; None where no speed is known."""
        return fastest(self.configs)

    @cached_property
    def default(self) -> Standing | None:
        """The default config of the best's rung; where it was not measured, the one that was measured first.

        The latter is the user's own command where `tuner init` wrote the study.
        """
        measured = {standing.launch: standing for standing in self.configs}
        at_rung = self.default_for(self.best.config) if self.best else {}
        if at_rung and (default := measured.get(launch_digest(at_rung))):
            return default
        defaults = {launch_digest(config) for config in self.kept.defaults}
        return next((standing for launch, standing in measured.items() if launch in defaults), None)

    def unlike_best(self, standing: Standing | None) -> str | None:
        """Return why the speed of a config cannot be compared with that of the best; None where it can."""
        return unlike(standing.trials, self.best.trials) if standing and self.best else None

    @cached_property
    def failed_again(self) -> str | None:
        """That the default config ran, and failed when it was measured again; None where it did not."""
        of_default = [trial for trial in ended(self.trials) if self.default and trial.launch == self.default.launch]
        if not of_default or not is_failure(of_default[-1].status):
            return None
        first, last = of_default[0], of_default[-1]
        failure = last.probe.failure
        return f"#{last.number} failed with the config of #{first.number}: {failure.detail}" if failure else None

    @cached_property
    def loaded(self) -> str | None:
        """That other processes worked beside the best or the default, so that their speeds may be wrong."""
        compared = [standing for standing in (self.default, self.best) if standing]
        notes = {
            trial.number: note
            for standing in compared
            for trial in standing.trials
            for note in trial.probe.notes
            if LOADED in note
        }
        return f"{', '.join(f'#{number}' for number in sorted(notes))}: {notes[max(notes)]}" if notes else None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why some measurements cannot be compared, or may be wrong, as sentences."""
        return tuple(filter(None, [self.unlike_best(self.default), self.failed_again, self.loaded]))

    def rung(self, config: Mapping[str, Any]) -> int | None:
        """Return the rung of a config; None where there is no ladder."""
        return rung_of(config, self.kept.ladder)

    def default_for(self, config: Mapping[str, Any]) -> Config:
        """Return the default config of a config's rung, with which it is compared; empty where it is unknown."""
        rung = self.rung(config)
        return next((default for default in self.kept.defaults if self.rung(default) == rung), {})

    def changes_learning(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that change what is learnt and whose values differ from the default of the rung."""
        default, learning = self.default_for(config), self.kept.learning
        return tuple(name for name in config if name in learning and config[name] != default.get(name))

    def vs_default(self, standing: Standing) -> float | None:
        """Return the ratio of a config's samples/s to those of the default config at its rung.

        None where one of the two is unknown, or where they were not measured in the same way. A default with several
        probes counts with their mean, also the probes that the pruner stopped.
        """
        config = self.default_for(standing.config)
        default = launched(config) if config else None
        for way in dict.fromkeys((standing.is_warm, True)):
            own = standing if way == standing.is_warm else self._in_sessions.get(standing.launch)
            ran = (trial for trial in self._ran if trial.warm == way and launched(trial.config) == default)
            speeds = [trial.samples_per_s or 0.0 for trial in ran]
            if own and own.samples_per_s and any(speeds):
                return own.samples_per_s / fmean(speeds)
        return None

    @cached_property
    def _ran(self) -> list[TrialRecord]:
        """The trials whose samples/s are known."""
        return [
            trial
            for trial in ended(self.trials)
            if trial.probe.status in {OK, PRUNED} and trial.samples_per_s is not None
        ]

    @property
    def largest_ok(self) -> int | None:
        """The largest `num_envs` at which an eligible config has run."""
        eligible = (self.rung(config.config) for config in self.configs if config.is_eligible)
        return max((rung for rung in eligible if rung is not None), default=None)

    @cached_property
    def counts(self) -> Counter[str]:
        """How many trials ended how: status → number. A trial that ran but may not be the best is `ineligible`."""
        return Counter(_end(trial) for trial in ended(self.trials))

    @property
    def finished(self) -> int:
        """How many trials have ended."""
        return self.counts.total()

    @property
    def commonest_failure(self) -> str | None:
        """The most frequent failure kind, the first by name among equals. An interruption counts only if alone.

        A stop by the pruner is not a failure.
        """
        failed = sorted(status for status in self.counts if status not in {OK, PRUNED})
        return max(failed, key=lambda kind: (kind != INTERRUPTED, self.counts[kind]), default=None)

    @property
    def status(self) -> str:
        """`ok` if there is a best; otherwise the commonest failure, `pruned` or `no_trials`."""
        without = self.commonest_failure or (PRUNED if self.counts[PRUNED] else NO_TRIALS)
        return OK if self.best else without

    @property
    def probe_s(self) -> float:
        """The seconds of all probes."""
        return sum(trial.total_s or 0.0 for trial in self.trials)

    @cached_property
    def profile(self) -> Profile | None:
        """How busy the parts of the devices were with the best config."""
        if self.best is None:
            return None
        trial = pooled(self.best.trials)
        others_pct = over(max, (device.others_mean_pct for device in trial.devices))
        shares = trial.probe.training.shares if trial.probe.training else None
        return Profile.of(
            trial.metrics,
            on_gpu=self.kept.source in {"nvml", "amdsmi"},
            others_pct=others_pct,
            data_pct=100.0 * shares.data if shares else None,
        )


class BesideBest(NamedTuple):
    """A config and the best, both measured in the same way."""

    config: Standing
    best: Standing


def _end(trial: TrialRecord) -> str:
    """Return how a trial ended; one that ran but may not be the best is `ineligible`."""
    return INELIGIBLE if trial.probe.ineligible is not None else trial.status or INTERRUPTED


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
    total_batch: float | None = None
    """The samples of one step of the optimizer on all ranks together, where the study says it."""
    measured: str = "cold"
    """`warm` where only sessions have measured the config."""
    times: float | None = None
    """Its samples/s in multiples of those of the best, both measured in the same way."""
    beside_best: tuple[float, float] | None = None
    """Its value and that of the best, both measured in the same way; None where they were not."""


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
    faster: ConfigRow | None = None
    """The rival: a config that makes far more samples/s than the best."""
    fastest: ConfigRow | None = None
    """The fastest config that learns what the default does, where the study looks for busy devices; else None."""
    race: str | None = None
    """What a race has told of the best and the `fastest`, as a sentence; None where it has not run both."""
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
    def without_success(self) -> bool:
        """Whether trials have ended, but none of them may be the best."""
        return self.best is None and self.status not in {NO_TRIALS, INTERRUPTED}


def summary(case: CaseView) -> CaseSummary:
    """Return the state of a case, as scripts read it."""
    counts, chosen = case.counts, case.chosen
    failed = sum(count for status, count in counts.items() if status not in {OK, INELIGIBLE, PRUNED, INTERRUPTED})
    where = (trial.measured_on for trial in ended(case.trials) if _end(trial) in {OK, INELIGIBLE} and trial.measured_on)
    return CaseSummary(
        case=case.name,
        status=case.status,
        objective=case.objectives[0],
        ladder=case.kept.ladder,
        best=_row(case, case.best),
        ok=counts[OK] + counts[INELIGIBLE],
        pruned=counts[PRUNED],
        failed=failed,
        interrupted=counts[INTERRUPTED],
        running=sum(trial.state == RUNNING for trial in case.trials),
        measured_on=dict(Counter(where)),
        instead_of=_row(case, chosen.instead_of if chosen else None),
        unconfirmed=_row(case, chosen.unconfirmed if chosen else None),
        default=_row(case, case.default),
        faster=_row(case, case.rival),
        fastest=_row(case, case.fastest_as_default),
        race=case.race_of_both,
        doubts=case.doubts,
        profile=case.profile,
        bound=bound(case.profile) if case.profile else None,
        probe_s=case.probe_s,
        left_out=case.left_out,
        replay_of=case.replay_of,
    )


def _row(case: CaseView, standing: Standing | None) -> ConfigRow | None:
    """Return a measured config as scripts read it; None where there is none."""
    pair = case.alike(standing) if standing and not case.unlike_best(standing) else None
    speed, best_speed = (pair.config.samples_per_s, pair.best.samples_per_s) if pair else (None, None)
    return standing and ConfigRow(
        trial=standing.trial,
        value=standing.value,
        error=standing.told_error,
        readings=standing.readings,
        config=standing.config,
        samples_per_s=standing.samples_per_s,
        vs_default=case.vs_default(standing),
        changes_learning=case.changes_learning(standing.config),
        total_batch=standing.trials[-1].probe.total_batch,
        measured="warm" if standing.is_warm else "cold",
        times=speed / best_speed if speed and best_speed else None,
        beside_best=(pair.config.value, pair.best.value) if pair else None,
    )
