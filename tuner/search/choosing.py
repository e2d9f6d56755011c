"""Decides what a search probes next: choosers, asked in order, read what the study has probed so far.

A probe is a short run of the training with one config, and a trial is its record. A session is a started trainer that
serves several probes, which saves their starts. To confirm a config is to measure it by the trainer's plain command,
outside any session. A reading is one measurement of a config, and its standing is what all its readings say: cold ones
of the plain command, or warm ones of sessions. A rung is a value of the parameter that decides the memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import takewhile
from math import hypot
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from tuner.probe import of_known
from tuner.records.trial import COMPLETE, RUNNING, TrialRecord
from tuner.search import standing
from tuner.search.frontier import Frontier, OutOfMemory
from tuner.search.standing import Standing
from tuner.search.trials import trials_that_count, typed_trial
from tuner.study import Config, Space, launch_digest, same_launch

FIRST_TRIALS = 4
"""The trials that finish before a config's readings are repeated, unless the time is nearly over (chosen)."""
MOST_READINGS = 4
"""The most measurements of a config whose readings contradict each other: more would not help on a busy machine."""


class History:
    """What a study has probed so far; the trials are read once.

    A trial that ended before it had a whole config does not count where configs are chosen.
    """

    def __init__(self, study: Study, space: Space, *, current_trial: int | None = None) -> None:
        """Read a study of the configs in `space`.

        `current_trial`: the number of the trial whose config is chosen now, if it has begun; the history leaves it out.
        """
        self.study = study
        self._space = space
        self._current_trial = current_trial

    @cached_property
    def trials(self) -> list[FrozenTrial]:
        """All trials of the study that count: see `trials_that_count`."""
        return [trial for trial in trials_that_count(self.study) if trial.number != self._current_trial]

    @property
    def number(self) -> int:
        """The number that the next trial has."""
        return len(self.study.get_trials(deepcopy=False)) if self._current_trial is None else self._current_trial

    @cached_property
    def signs(self) -> tuple[float, ...]:
        """1 for each objective that is maximised, -1 for each that is minimised."""
        return tuple(-1.0 if direction == StudyDirection.MINIMIZE else 1.0 for direction in self.study.directions)

    @cached_property
    def records(self) -> list[TrialRecord]:
        """All trials, in the typed form that the whole package reads."""
        return list(map(typed_trial, self.trials))

    @cached_property
    def complete(self) -> list[TrialRecord]:
        """The trials that have measured the objectives."""
        return [trial for trial in self.records if trial.state == COMPLETE]

    @property
    def finished(self) -> int:
        """The number of trials that count towards a search's target: ended ones that are not to be repeated.

        Confirmations and soaks do not count.
        """
        return sum(not (trial.retry or trial.confirms or trial.soaks) for trial in standing.ended(self.records))

    @property
    def running(self) -> int:
        """The number of trials that this process or others run now."""
        return sum(trial.state == RUNNING for trial in self.records)

    @property
    def failing_streak(self) -> int:
        """How many of the newest ended trials failed in a row, none of them by its config's fault."""
        newest_first = reversed(standing.ended(self.records))
        return sum(1 for _ in takewhile(standing.has_blameless_config, newest_first))

    @property
    def usual_s(self) -> float | None:
        """The median of the seconds that complete probes took; None where none is known."""
        return of_known(median, (trial.total_s for trial in self.complete))

    @property
    def confirmation_s(self) -> float:
        """The seconds of a probe by the plain command, where sessions serve the search; 0 where none does.

        The plain command starts anew, so it takes about as long as the slowest probe, which opened a session.
        """
        return of_known(max, (trial.total_s for trial in self.complete if trial.warm)) or 0.0

    @property
    def newest_facts(self) -> Mapping[str, str]:
        """What is known of machine and script, such as the driver, from the newest measurement; empty without any."""
        return self.complete[-1].probe.facts if self.complete else {}

    def best(self, defaults: Sequence[Config]) -> Standing | None:
        """Return the best config so far; None where no config may be the best. `defaults`: those of all rungs."""
        return standing.best(self.records, defaults)

    def newest(self, config: Config) -> TrialRecord | None:
        """Return the newest complete trial of this config; None where there is none."""
        return next((trial for trial in reversed(self.complete) if same_launch(trial.config, config)), None)

    @cached_property
    def _excused(self) -> set[int]:
        """The numbers of the failures of a trainer that was broken at first, which say nothing of their configs."""
        return standing.failures_of_broken_trainer(standing.ended(self.records))

    @cached_property
    def meaningful(self) -> list[FrozenTrial]:
        """All trials but the failures of a trainer that was broken at first."""
        return [trial for trial in self.trials if trial.number not in self._excused]

    @cached_property
    def _meaningful_records(self) -> list[TrialRecord]:
        """The trials of `meaningful` that have a config.

        A trial that is marked for retry is left out if the space has lost its config, because nothing can repeat it.
        """
        launched = [trial for trial in self.records if trial.config and trial.number not in self._excused]
        return [trial for trial in launched if not trial.retry or trial.config in self._space]

    @cached_property
    def _probed(self) -> set[str]:
        """The digests of the configs that were launched."""
        return {trial.launch_key for trial in self._meaningful_records}

    @cached_property
    def frontier(self) -> Frontier:
        """Says which configs must run out of memory: those that need at least as much as a config that did."""
        records = self._meaningful_records
        failures = (OutOfMemory(trial.config, trial.missing_gib) for trial in records if trial.missing_gib > 0.0)
        return Frontier(failures, ladder=self._space.ladder)

    @cached_property
    def _ended(self) -> list[TrialRecord]:
        """The trials that have ended. Objectives to minimise have the other sign, so larger values are better."""
        return [
            replace(trial, values=tuple(value * sign for value, sign in zip(trial.values, self.signs, strict=False)))
            for trial in standing.ended(self._meaningful_records)
        ]

    @cached_property
    def _cold(self) -> standing.Standings:
        """Launch key → what the plain command has measured of a config that may be the best."""
        return standing.cold_and_warm(self._ended).cold

    def is_new(self, config: Config) -> bool:
        """Return whether a config of the space has never been launched and may fit into memory."""
        known = launch_digest(config) in self._probed
        return not known and self.frontier.exceeded_failure(config) is None and config in self._space

    def is_over(self, config: Config) -> bool:
        """Return whether a config needs no further probe: a probe has ended for good, or it cannot fit into memory."""
        is_probed = any(not trial.retry and same_launch(trial.config, config) for trial in self._ended)
        return is_probed or self.frontier.exceeded_failure(config) is not None

    def due_retry(self) -> TrialRecord | None:
        """Return the first failed trial that is marked for retry and has not been repeated; None without one.

        An interrupted confirmation is left to `Strategy.confirm`: only the plain command can confirm, and a retry may
        run in a session.
        """
        records = self._meaningful_records
        for place, trial in enumerate(records):
            if not trial.retry or (trial.confirms and not standing.is_failure(trial.failure)):
                continue
            if not any(same_launch(repeat.config, trial.config) for repeat in records[place + 1 :]):
                return trial
        return None

    def failed_before(self, config: Config) -> bool:
        """Return whether a probe of the config failed by itself and was marked for retry."""
        failed = (trial for trial in self.records if trial.retry and standing.is_failure(trial.failure))
        return any(same_launch(trial.config, config) for trial in failed)

    def unconfirmed(self) -> Config | None:
        """Return the config that the plain command must still measure; None where there is none.

        Sessions measure values that are a little too high, so their best config is measured again. With a single
        objective, this is the best config or one that may be better: see `standing.leader`. With several objectives,
        it is a member of the Pareto front that only sessions have measured.
        """
        if len(self.signs) > 1:
            unconfirmed = next((member for member in standing.front(self._ended) if member.is_warm), None)
        else:
            leader = standing.leader(self._ended)
            unconfirmed = leader.unconfirmed if leader else None
        return dict(unconfirmed.trials[-1].config) if unconfirmed else None

    def incomparable_config(self, baseline: Config) -> Config | None:
        """Return which of two configs, `baseline` and the best, to measure again before they can be compared.

        The plain command measures a config again in two cases:

        1. The readings of the config are far apart.
        2. Other programs were much busier beside this config than beside the other of the two, and are calm now.

        A config with `MOST_READINGS` readings is left as it is: which of them are right stays unknown.

        Returns:
            The config; None where both can be compared as they are.
        """
        base_standing, best_standing = self._cold.get(launch_digest(baseline)), standing.best(self._ended, [baseline])
        with_others = [trial for trial in self._ended if trial.probe.others_pct is not None]
        newest = with_others[-1:]  # shows how busy other programs are now
        for subject, rival in ((base_standing, best_standing), (best_standing, base_standing)):
            if subject is None or not self._may_be_repeated(subject):
                continue
            was_busier = rival is not None and bool(standing.much_busier(subject.trials, rival.trials))
            is_calm_now = bool(standing.much_busier(subject.trials, newest))
            if standing.far_apart(subject.trials) or (was_busier and is_calm_now):  # 1 or 2
                return subject.config
        return None

    def _may_be_repeated(self, subject: Standing) -> bool:
        """Return whether the plain command has measured a config fewer than `MOST_READINGS` times.

        A standing leaves out readings that contradict the others. They are counted here, too.
        """
        measured = (trial for trial in self._ended if trial.values and not trial.warm)
        return sum(trial.launch_key == subject.launch_key for trial in measured) < MOST_READINGS

    def disturbed_baseline(self, baseline: Config) -> Config | None:
        """Return the user's own config if its only reading was disturbed so much that it must be repeated, else None.

        Other programs disturb a reading, and its error is then widened. It must be repeated if this error leaves open
        whether the own config or the best of the others is better. Only readings by the plain command are compared.
        """
        base_standing = self._cold.get(launch_digest(baseline))
        rivals = [measured for measured in self._cold.values() if measured is not base_standing]
        rival = max(rivals, key=attrgetter("value"), default=None)
        if base_standing is None or rival is None:
            return None
        was_disturbed = base_standing.readings == 1 and base_standing.widened_error != base_standing.error
        noise = hypot(base_standing.widened_error or 0.0, rival.widened_error or 0.0)
        is_hidden = abs(rival.value - base_standing.value) <= standing.SURE * noise
        return base_standing.config if was_disturbed and is_hidden and self._may_be_repeated(base_standing) else None

    def unsure_config(self, baseline: Config) -> Config | None:
        """Return a config to measure a second time, so that the gain over the user's own config is sure; else None.

        The user's own config often runs first, and another program may have been busy then. So it is measured again at
        the end. If the best is less than 1.3 times as good, the best is measured a second time, too. Only cold readings
        count: those of the plain command, outside any session.
        """
        base_standing, best_standing = self._cold.get(launch_digest(baseline)), standing.best(self._ended, [baseline])
        if base_standing is None or best_standing is None or base_standing.value >= best_standing.value:
            return None  # there is no gain
        is_small = best_standing.value < 1.3 * base_standing.value
        for subject in (base_standing, best_standing) if is_small else (base_standing,):
            if subject.readings == 1 and self._may_be_repeated(subject):
                return subject.config
        return None

    def to_compare(self, baseline: Config) -> Config | None:
        """Return a config to measure again once the search has ended, so that a gain is sure; else None.

        `baseline`: the user's own config, over which the best gains.
        """
        return self.incomparable_config(baseline) or self.disturbed_baseline(baseline) or self.unsure_config(baseline)

    def confirmed(self) -> list[Config]:
        """Return the configs that the plain command has measured and that may be the best, the largest value first."""
        return [cold.config for cold in sorted(self._cold.values(), key=attrgetter("value"), reverse=True)]


Starts = Callable[[Config], float]
"""Returns how many trainer starts a probe of a config takes now: 0 in an open session, otherwise 1."""

ALL_PROBED = "every config has been probed or cannot fit"
"""Why a search ends when no chooser has an answer."""


def one_start(config: Config) -> float:
    """Return 1, as every config needs where each probe starts its trainer; a `Starts`."""
    return 1.0


class Aim(Enum):
    """What a probe is for."""

    SOAK = "to see whether its memory lasts"
    REPORT = "to store a report that a training with it ran out of memory"
    SEARCH = "to learn about a config"
    CALIBRATE = "to make the rungs of an `auto` ladder, or an `auto` batch size"
    RETRY = "to repeat a failed probe"
    CONFIRM = "to measure again, by the trainer's plain command, a config that decides the result"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The config to probe next."""

    config: Config
    aim: Aim = Aim.SEARCH
    cold: bool = False
    """Whether the trainer's plain command is to measure it, outside any session."""
    details: object = True
    """What to store with the trial about its aim, such as the settings of a soak; True without details."""
    origin: str | None = None
    """The case whose best config this is, where the config comes from another case."""
    expected_s: float | None = None
    """The expected seconds of the probe, where the chooser expects any."""
    trials_left: float | None = None
    """How many trials the search probably has until it ends by itself, this one included; None where unknown."""


class Done(NamedTuple):
    """Nothing is left to probe."""

    reason: str


Chooser = Callable[[History, Starts], Choice | Done | None]
"""Chooses from a study's history, and from the starts that each config needs now. None: the next chooser decides.

A chooser remembers nothing between two calls, except for its random numbers: all that it knows is in the history. A
chooser to which all configs cost the same names its second argument `_starts_needed`.
"""


def first_answer(choosers: Sequence[Chooser], history: History, starts_needed: Starts) -> Choice | Done | None:
    """Return the answer of the first chooser that has one; None where none has."""
    answers = (choose(history, starts_needed) for choose in choosers)
    return next((answer for answer in answers if answer is not None), None)


def retry(history: History, _starts_needed: Starts) -> Choice | None:
    """Choose the config of the first failed trial that is due again; None without one."""
    failed = history.due_retry()
    if failed is None:
        return None
    return Choice(config=dict(failed.config), aim=Aim.RETRY, origin=failed.origin)


def confirmation(config: Config) -> Choice:
    """Return the choice to measure a config again by the trainer's plain command."""
    return Choice(config=config, aim=Aim.CONFIRM, cold=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """All choosers of a search."""

    choosers: Sequence[Chooser]
    """They choose until the search ends, the most urgent chooser first."""
    confirm: Callable[[History, Starts], Config | None] = lambda history, _starts_needed: history.unconfirmed()
    """Returns the config that the plain command must measure again once the search has ended; None if it need not."""
    predicts_end: bool = False
    """Whether `Choice.trials_left` is known after some trials; it then includes the probes that `confirm` adds."""

    def choose(self, history: History, starts_needed: Starts) -> Choice | Done:
        """Choose what to probe next.

        A config that failed by itself is probed outside any session now: the session may have caused the failure.
        """
        answer = first_answer(self.choosers, history, starts_needed) or Done(reason=ALL_PROBED)
        if isinstance(answer, Choice) and history.failed_before(answer.config):
            return replace(answer, cold=True)
        return answer
