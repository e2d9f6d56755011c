"""What the trials of a case come to: the one view that every table, sentence and picture of a case reads.

A config is measured by the plain command (cold), which starts the trainer for it, or in a session (warm): a trainer
that is started once for many configs. A standing is a measured config, with the means of its measurements. A rung is a
value of the ladder, mostly a number of environments. A race trains some configs for the same time and compares scores.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from typing import Any, NamedTuple

from tuner.export.bound import Profile
from tuner.probe import LOADED, SAMPLES_PER_S, Blame, FailureKind, duration
from tuner.records.case_record import RECORDED, STOPPED_EARLY, CaseRecord, RunRecord, StudyAttributes, newest_scored
from tuner.records.schema import INELIGIBLE
from tuner.records.trial import INTERRUPTED, OK, PRUNED, RUNNING, TrialRecord, pooled
from tuner.search.scores import RaceStanding, lead_of, means, runs_that_count, standings
from tuner.search.standing import (
    Leader,
    Standing,
    Standings,
    all_measured,
    cold_and_warm,
    ended,
    fastest,
    front,
    is_failure,
    leader,
    why_incomparable,
)
from tuner.search.standing import rival as find_rival
from tuner.study import Config, grouped, launch_digest, rung_of

NO_TRIALS = "no_trials"


@dataclass(frozen=True, kw_only=True)
class CaseView:
    """One case of a study; `record` is empty where the database holds no record of the case."""

    study_id: int = 0
    name: str
    record: CaseRecord = field(default_factory=CaseRecord)
    attributes: StudyAttributes = field(default_factory=lambda: StudyAttributes({}))
    """What the study keeps beside the trials."""
    trials: Sequence[TrialRecord] = ()
    """All trials, in the order of their numbers."""
    own: Config | None = None
    """The values of a typed command, with which the best is then compared; None where they are not known."""
    left_out: int = 0
    """The trials that do not count: another program added them, or their records are damaged."""

    @property
    def method(self) -> str:
        """The learning method."""
        return self.record.method or self.name.split("_", 1)[0]

    @property
    def objective(self) -> str:
        """The metric that the study maximises; several metrics are separated by commas."""
        return self.record.objective or "value"

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the metrics that the study maximises. A trial's `value` is the first of them."""
        return tuple(self.objective.split(","))

    @property
    def replay_of(self) -> str | None:
        """The table that stood in for trainer and devices; None for a real run. Each case has a table of its name."""
        recorded = self.record.trainer.get(RECORDED)
        return f"{self.name}.parquet of {recorded}" if recorded else None

    @property
    def stopped(self) -> str | None:
        """How the search stopped before its end, and how to go on with it, as text; None if it did not, or is unknown.

        A process that was killed stores no such text, but its newest trial counts as interrupted.
        """
        if self.attributes.ended or any(trial.state == RUNNING for trial in self.trials):
            return None
        is_cut = bool(self.trials) and self.trials[-1].status == INTERRUPTED
        return self.attributes.stopped or (STOPPED_EARLY if is_cut else None)

    @cached_property
    def race(self) -> tuple[RunRecord, ...]:
        """The runs of the case's race. Where a study has changed what it takes as the score, those of the newest."""
        return tuple(newest_scored(self.attributes.race))

    @cached_property
    def race_by_config(self) -> dict[str, list[RunRecord]]:
        """The runs of the case's race, by the digest of their config."""
        return grouped(self.race, lambda run: launch_digest(run.config))

    @cached_property
    def race_standings(self) -> list[RaceStanding[str]]:
        """Where each config of the case's race stands, by the digest of the config, the best first."""
        return standings(self.race_by_config)

    @cached_property
    def ended(self) -> list[TrialRecord]:
        """The trials that have ended, in the order of their numbers."""
        return ended(self.trials)

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

        With several objectives, the best is the member of the front with the largest first objective. A member that
        only sessions have measured is unconfirmed: the plain command must measure it, too.
        """
        if len(self.objectives) == 1:
            return leader(self.trials, self.record.defaults)  # a default stays where a gain is not sure
        unconfirmed = next((member for member in self.front if member.is_warm), None)
        return Leader(best=self.front[0], unconfirmed=unconfirmed) if self.front else None

    @property
    def best(self) -> Standing | None:
        """The best config; None where no config may be the best."""
        return self.chosen.best if self.chosen else None

    @cached_property
    def rival(self) -> Standing | None:
        """The fastest config, if it makes far more samples/s than the best: see `standing.rival`. Otherwise None.

        Their speeds are compared as the plain command, or as sessions, have measured both. It is None in a study that
        maximises samples/s, where the best is the fastest.
        """
        if self.fastest is None or SAMPLES_PER_S in self.objectives:
            return None
        pair = self.comparable_pair(self.fastest)
        is_rival = pair is not None and find_rival(pair.second, [pair.first]) is not None
        return self.fastest if is_rival else None

    @cached_property
    def faster_than_busiest(self) -> Standing | None:
        """The fastest config that learns what the default does, in a study that looks for the busiest devices.

        None in other studies, and where it makes no more samples/s than the best: see `comparable_pair`.
        """
        if not {*self.objectives} <= {"min_avg_util", "min_avg_sm"}:
            return None
        first = fastest(config for config in self.configs if not self.changes_learning(config.config))
        if first is None or self.best is None or first.launch_key == self.best.launch_key:
            return None
        pair = self.comparable_pair(first)
        is_faster = pair is not None and (pair.first.samples_per_s or 0.0) > (pair.second.samples_per_s or 0.0)
        return first if is_faster else None

    @property
    def race_with_faster(self) -> str | None:
        """Which of the best and `faster_than_busiest` learns more in the race, as a sentence with their scores.

        The scores are those after the longest time for which both have trained. None where the race has not run both.
        """
        best, second = self.best, self.faster_than_busiest
        if best is None or second is None:
            return None
        runs_of_both = {
            standing.launch_key: self.race_by_config.get(standing.launch_key, ()) for standing in (best, second)
        }
        trained_s = [max((run.seconds for run in runs_that_count(runs)), default=0.0) for runs in runs_of_both.values()]
        seconds = min(trained_s)
        scores = means(runs_of_both, seconds) if seconds else {}
        if len(scores) < 2:
            return None
        busier, faster = scores[best.launch_key], scores[second.launch_key]
        lead = lead_of(faster, busier)  # above 0 where the faster config has the greater score
        if lead is None or not lead.is_clear:
            which = "which learns more is not clear"
        else:
            which = f"the {'faster' if lead.errors > 0 else 'busier'} one learns more"
        texts = (f"{mean.value:.3g}{f' ± {mean.error:.2g}' if mean.error else ''}" for mean in (faster, busier))
        return f"after {duration(seconds)} of a race {which}: scores {' against '.join(texts)}"

    def comparable_pair(self, first: Standing, second: Standing | None = None) -> "ComparablePair | None":
        """Return two configs as they were measured in the same way: by the plain command, or in sessions.

        The two ways may measure other values of the same config, so values of both ways cannot be compared. `second`:
        the best of the case, unless another config is given. None where no way has measured both.
        """
        second = second or self.best
        if second is None:
            return None
        if first.is_warm == second.is_warm:
            return ComparablePair(first, second)
        # the plain command has measured only one of them; sessions may have measured both
        warm, warm_second = self.warm_standings.get(first.launch_key), self.warm_standings.get(second.launch_key)
        return ComparablePair(warm, warm_second) if warm and warm_second else None

    @cached_property
    def warm_standings(self) -> Standings:
        """The configs as sessions measured them, also those that the plain command has measured, too."""
        return cold_and_warm(self.trials).warm

    @property
    def fastest(self) -> Standing | None:
        """The fastest eligible config; None where no speed is known."""
        return fastest(self.configs)

    @cached_property
    def default(self) -> Standing | None:
        """The measured default config whose rung is nearest to that of the best; None where none was measured.

        Of a typed command it is always the first default: the user's own values.
        """
        defaults = {launch_digest(config) for config in (self.record.defaults if self.own is None else (self.own,))}
        measured = [standing for standing in self.configs if standing.launch_key in defaults]
        best_rung = self.rung(self.best.config) if self.best else None
        if not measured or not best_rung or self.record.trainer_name == "command":
            return next(iter(measured), None)
        # ladders grow by factors, so the distance of two rungs is their ratio
        return min(measured, key=lambda standing: abs(log((self.rung(standing.config) or 1) / best_rung)))

    def unlike_best(self, standing: Standing | None) -> str | None:
        """Return in words why the speed of a config cannot be compared with that of the best; None where it can."""
        return why_incomparable(standing.trials, self.best.trials) if standing and self.best else None

    @cached_property
    def failed_again_text(self) -> str | None:
        """A sentence that the default config was measured and failed later, in its newest trial; otherwise None.

        A failure counts only where neither the set-up is at fault, such as a missing package, nor a busy machine.
        """
        if self.default is None:
            return None
        silent = {kind for kind in FailureKind if kind.blame is Blame.SETUP or kind.says_nothing}  # about the config
        of_default = [trial for trial in self.ended if trial.launch_key == self.default.launch_key]
        newest = [trial for trial in of_default if trial.status not in silent][-1]
        if newest.probe.failure is None or not is_failure(newest.status):  # an interruption is no failure
            return None
        return f"#{newest.number} failed with the config of #{of_default[0].number}: {newest.probe.failure.detail}"

    @cached_property
    def loaded_text(self) -> str | None:
        """A sentence, if other programs were busy beside the best or the default and may have slowed it; else None."""
        trials = [trial for standing in (self.default, self.best) if standing for trial in standing.trials]
        notes = {trial.number: note for trial in trials for note in trial.probe.notes if LOADED in note}
        numbers = ", ".join(f"#{number}" for number in sorted(notes))
        return f"{numbers}: {notes[max(notes)]}" if notes else None  # the note of the newest stands for all

    @cached_property
    def slowing_text(self) -> str | None:
        """A sentence, if the default and another config slowed for good at different iterations, and none was steady.

        Otherwise None. With such a slowing, iterations may get longer all the time, as with growing sequences. The
        faster config gets further in a probe, so it is measured on longer iterations.
        """
        newest = [config.trials[-1] for config in self.configs]
        slowed_at = {trial.number: at for trial in newest if (at := _late_slowing(trial)) is not None}
        default_number = self.default.trials[-1].number if self.default else None
        if default_number not in slowed_at:
            return None
        later = 1.25 * slowed_at[default_number]  # chosen
        if any((trial.probe.iteration or 0) >= later for trial in newest if trial.number not in slowed_at):  # steady
            return None
        for number, iteration in slowed_at.items():
            if iteration >= later:
                return (
                    f"#{default_number} slowed for good at iteration {slowed_at[default_number]}, #{number} at "
                    f"{iteration}: if iterations get longer with time, #{number} looks slower than it is"
                )
        return None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why some measurements cannot be compared, or may be wrong, as sentences."""
        incomparable = [self.unlike_best(self.default), self.failed_again_text]
        return tuple(filter(None, [*incomparable, self.loaded_text, self.slowing_text]))

    @property
    def default_name(self) -> str:
        """What people call the config with which the best is compared, with its rung if that is not the best's."""
        if self.record.trainer_name == "command":
            return "your command"
        rung = self.rung(self.default.config) if self.default else None
        is_of_rung = rung is None or self.best is None or rung == self.rung(self.best.config)
        return "the default" if is_of_rung else f"the default at {self.record.ladder}={rung}"

    def rung(self, config: Mapping[str, Any]) -> int | None:
        """Return the rung of a config; None where there is no ladder."""
        return rung_of(config, self.record.ladder)

    def default_for(self, config: Mapping[str, Any]) -> Config:
        """Return the default config of a config's rung, with which it is compared; empty where it is unknown."""
        rung = self.rung(config)
        return next((default for default in self.record.defaults if self.rung(default) == rung), {})

    def changes_learning(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that change what is learnt, as far as they differ from the default of the rung."""
        default = self.default_for(config)
        return tuple(name for name in config if name in self.record.learning and config[name] != default.get(name))

    @property
    def largest_ok(self) -> int | None:
        """The largest `num_envs` at which an eligible config has run; None where none has."""
        eligible = (self.rung(config.config) for config in self.configs if config.is_eligible)
        return max((rung for rung in eligible if rung is not None), default=None)

    @cached_property
    def counts(self) -> Counter[str]:
        """Status → how many trials ended with it. A trial that ran but may not be the best is `ineligible`."""
        return Counter(end_of(trial) for trial in self.ended)

    @cached_property
    def failures(self) -> tuple[TrialRecord, ...]:
        """The newest trial of each config that has failed and was never measured, in the order of the numbers."""
        measured = {standing.launch_key for standing in self.configs}
        newest = {trial.launch_key: trial for trial in self.ended if trial.launch_key not in measured}
        failed = [trial for trial in newest.values() if is_failure(trial.failure)]
        return tuple(sorted(failed, key=lambda trial: trial.number))

    @property
    def commonest_failure(self) -> str | None:
        """The most frequent failure kind, the first by name among equals; an interruption only where nothing failed.

        A stop by the pruner is not a failure.
        """
        return _commonest_failure(self.counts)

    @property
    def status(self) -> str:
        """`ok` if there is a best; otherwise the commonest failure, `pruned` or `no_trials`.

        But if the set-up is at fault for the newest failure, that is the status, for it stopped the case. If it is not,
        earlier failures by its fault do not count: a person has repaired the set-up since.
        """
        if self.best:
            return OK
        of_set_up = {kind.value for kind in FailureKind if kind.blame is Blame.SETUP}
        newest = self.failures[-1].failure if self.failures else None
        if newest in of_set_up:
            return str(newest)
        of_probes = Counter({kind: count for kind, count in self.counts.items() if kind not in of_set_up})
        return _commonest_failure(of_probes) or (PRUNED if self.counts[PRUNED] else NO_TRIALS)

    @property
    def probe_s(self) -> float:
        """The seconds of all probes."""
        return sum(trial.total_s or 0.0 for trial in self.trials)

    @cached_property
    def profile(self) -> Profile | None:
        """How busy the parts of the devices were with the best config; None without a best."""
        if self.best is None:
            return None
        probe = pooled(self.best.trials).probe
        metrics, shares = probe.metrics, probe.training.shares if probe.training else None
        headroom_pct = metrics.get("headroom_pct")
        return Profile(
            util_pct=metrics.get("min_avg_util"),
            sm_pct=metrics.get("min_avg_sm"),
            tensor_pct=metrics.get("min_avg_tensor"),
            dram_pct=metrics.get("min_avg_dram"),
            power_w=metrics.get("power_mean_w"),
            joules_per_sample=metrics.get("joules_per_sample"),
            mem_share_pct=None if headroom_pct is None else 100.0 - headroom_pct,
            on_gpu=self.record.source in {"nvml", "amdsmi"},
            others_pct=probe.others_pct,
            data_pct=100.0 * shares.data if shares else None,
        )


class ComparablePair(NamedTuple):
    """Two configs, measured in the same way."""

    first: Standing
    second: Standing


def _late_slowing(trial: TrialRecord) -> int | None:
    """Return the iteration at which a trial slowed for good, at least 5 s (chosen) after its first; None otherwise."""
    change = trial.probe.change
    return change.iteration if change and change.times < 1.0 and change.seconds >= 5.0 else None


def _commonest_failure(counts: Counter[str]) -> str | None:
    """Return the failure kind with the largest count; None without one. See `CaseView.commonest_failure`."""
    failed = sorted(kind for kind in counts if kind not in {OK, PRUNED})  # `max` takes the first
    return max(failed, key=lambda kind: (kind != INTERRUPTED, counts[kind]), default=None)


def end_of(trial: TrialRecord) -> str:
    """Return how a trial ended; one that ran but may not be the best is `ineligible`."""
    return INELIGIBLE if trial.probe.ineligible is not None else trial.status or INTERRUPTED
