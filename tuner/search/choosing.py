"""Decides what a search probes next: choosers, asked in order, read what the study has probed so far."""

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

from tuner.probe import over
from tuner.records.trial import COMPLETE, FAIL, RUNNING, TrialRecord
from tuner.search.frontier import Frontier, OutOfMemory
from tuner.search.standing import (
    SURE,
    Standing,
    best,
    broken,
    ended,
    far_apart,
    front,
    incumbent,
    is_failure,
    leader,
    much_busier,
    ways,
)
from tuner.search.trials import since_mended, typed_trial
from tuner.study import Config, Space, launch_digest, same_launch

FIRST_TRIALS = 4
"""The trials that finish before a config's readings are repeated, unless the time is nearly over (chosen)."""
MOST_READINGS = 4
"""The most measurements of a config whose readings contradict each other: on a busy machine more would, too."""


class History:
    """What a study has probed so far; the trials are read once.

    A trial that ended before it had a whole config does not count where configs are chosen.
    """

    def __init__(self, study: Study, space: Space, *, asked: int | None = None) -> None:
        """`asked`: the number of the trial that is being asked for, if it has begun; the history leaves it out."""
        self.study = study
        self._space = space
        self._asked = asked

    @cached_property
    def trials(self) -> list[FrozenTrial]:
        """All trials of the study since its set-up was mended, if it was."""
        return [trial for trial in since_mended(self.study) if trial.number != self._asked]

    @property
    def number(self) -> int:
        """The number that the next trial has."""
        return len(self.study.get_trials(deepcopy=False)) if self._asked is None else self._asked

    @cached_property
    def signs(self) -> tuple[float, ...]:
        """1 for each objective that is maximised, -1 for each that is minimised."""
        return tuple(-1.0 if direction == StudyDirection.MINIMIZE else 1.0 for direction in self.study.directions)

    @cached_property
    def records(self) -> list[TrialRecord]:
        """All trials, as everybody reads them."""
        return list(map(typed_trial, self.trials))

    @cached_property
    def complete(self) -> list[TrialRecord]:
        """The trials that have measured the objectives."""
        return [trial for trial in self.records if trial.state == COMPLETE]

    @property
    def finished(self) -> int:
        """The number of trials that have ended, without those that will be repeated, that confirm or that soak."""
        return sum(not (trial.retry or trial.confirms or trial.soaks) for trial in ended(self.records))

    @property
    def running(self) -> int:
        """The number of trials that this process or others run now."""
        return sum(trial.state == RUNNING for trial in self.records)

    @property
    def failing_streak(self) -> int:
        """How many of the last trials that ended failed in a row, without fault of their config."""
        newest_first = reversed(ended(self.records))
        streak = takewhile(lambda trial: trial.state == FAIL and is_failure(trial.failure), newest_first)
        return sum(1 for _ in streak)

    @property
    def usual_s(self) -> float | None:
        """The median of the seconds that complete probes took; None where none is known."""
        return over(median, (trial.total_s for trial in self.complete))

    @property
    def confirmation_s(self) -> float:
        """The seconds of a probe by the plain command, where sessions serve the search; 0 where none does.

        The plain command starts anew, so it takes about as long as the slowest probe, which opened a session.
        """
        return over(max, (trial.total_s for trial in self.complete if trial.warm)) or 0.0

    @property
    def facts(self) -> Mapping[str, str]:
        """What is known of the newest measurement beside its config: see `ProbeNumbers.facts`; empty without any."""
        return self.complete[-1].probe.facts if self.complete else {}

    @property
    def incumbent(self) -> float | None:
        """The best mean of an eligible config so far: see `standing.incumbent`. None with several objectives."""
        return None if len(self.signs) > 1 else incumbent(self.records)

    def best(self, defaults: Sequence[Config]) -> Standing | None:
        """Return the best config so far; see `standing.best`."""
        return best(self.records, defaults)

    def newest(self, config: Config) -> TrialRecord | None:
        """Return the newest complete trial of this config; None where there is none."""
        return next((trial for trial in reversed(self.complete) if same_launch(trial.config, config)), None)

    @cached_property
    def _excused(self) -> set[int]:
        """The numbers of the failures of a trainer that was broken at first: see `standing.broken`."""
        return broken(ended(self.records))

    @cached_property
    def meaningful(self) -> list[FrozenTrial]:
        """All trials but the failures of a trainer that was broken at first."""
        return [trial for trial in self.trials if trial.number not in self._excused]

    @cached_property
    def _meaningful_records(self) -> list[TrialRecord]:
        """The trials of `meaningful` that have a config, without retries of a config that the space has lost."""
        launched = [trial for trial in self.records if trial.config and trial.number not in self._excused]
        return [trial for trial in launched if not trial.retry or trial.config in self._space]

    @cached_property
    def _probed(self) -> set[str]:
        """The digests of the configs that were launched."""
        return {trial.launch for trial in self._meaningful_records}

    @cached_property
    def frontier(self) -> Frontier:
        """Where memory ends: knows the configs that must run out of it."""
        records = self._meaningful_records
        failures = (OutOfMemory(trial.config, trial.missing_gib) for trial in records if trial.missing_gib > 0.0)
        return Frontier(failures, ladder=self._space.ladder)

    @cached_property
    def _ended(self) -> list[TrialRecord]:
        """The trials that have ended, each with values that are better the larger they are; a failure has none."""
        return [
            replace(trial, values=tuple(value * sign for value, sign in zip(trial.values, self.signs, strict=False)))
            for trial in ended(self._meaningful_records)
        ]

    def is_new(self, config: Config) -> bool:
        """Check whether a config of the space has never been launched and may fit into memory."""
        known = launch_digest(config) in self._probed
        return not known and self.frontier.beyond(config) is None and config in self._space

    def is_over(self, config: Config) -> bool:
        """Check whether the config has been probed and needs no retry, or cannot fit into memory."""
        is_probed = any(not trial.retry and same_launch(trial.config, config) for trial in self._ended)
        return is_probed or self.frontier.beyond(config) is not None

    def due_retry(self) -> TrialRecord | None:
        """Return the first failed trial that is marked for retry and has not been repeated.

        An interrupted confirmation is left to `Strategy.confirm`: only the plain command can confirm, and a retry may
        run in a session.
        """
        records = self._meaningful_records
        for place, trial in enumerate(records):
            later = records[place + 1 :]
            is_confirmation = trial.confirms and not is_failure(trial.failure)
            if (
                trial.retry
                and not is_confirmation
                and not any(same_launch(repeat.config, trial.config) for repeat in later)
            ):
                return trial
        return None

    def failed_before(self, config: Config) -> bool:
        """Check whether a probe of the config failed by itself and was marked for retry."""
        failed = (trial for trial in self.records if trial.retry and is_failure(trial.failure))
        return any(same_launch(trial.config, config) for trial in failed)

    def unconfirmed(self) -> Config | None:
        """Return the config that the plain command must still measure; None where there is none.

        With a single objective, this is the best config or one that may be better: see `standing.leader`. With several
        objectives, it is a member of the Pareto front that only sessions have measured.
        """
        if len(self.signs) > 1:
            standing = next((member for member in front(self._ended) if member.is_warm), None)
        else:
            first = leader(self._ended)
            standing = first.unconfirmed if first else None
        return dict(standing.trials[-1].config) if standing else None

    def contradictory(self, own: Config) -> Config | None:
        """Return the own config or the best if its readings must be made again before the two can be compared.

        That is so in two cases:

        1. The readings of the config are far apart.
        2. Other programs were much busier beside this config than beside the other of the two, and are calm now.

        A config with `MOST_READINGS` readings is left as it is: which of them are right stays unknown.

        Args:
            own: The user's own config.

        Returns:
            The config to measure again by the plain command; None where neither must be.
        """
        own_standing, best_standing = ways(self._ended).cold.get(launch_digest(own)), best(self._ended, [own])
        for standing, other in ((own_standing, best_standing), (best_standing, own_standing)):
            if standing is None or not self._may_be_repeated(standing):
                continue
            was_busier = other is not None and bool(much_busier(standing.trials, other.trials))
            newest = [trial for trial in self._ended if trial.others_pct is not None][-1:]
            is_calm_now = bool(much_busier(standing.trials, newest))
            if far_apart(standing.trials) or (was_busier and is_calm_now):  # 1 or 2
                return standing.config
        return None

    def _may_be_repeated(self, standing: Standing) -> bool:
        """Return whether the plain command has measured a config fewer than `MOST_READINGS` times.

        Readings that count no more are counted here, too.
        """
        measured = (trial for trial in self._ended if trial.values and not trial.warm)
        return sum(trial.launch == standing.launch for trial in measured) < MOST_READINGS

    def disturbed_own(self, own: Config) -> Config | None:
        """Return the own config if the disturbance of its only reading hides which config is faster; None if not.

        The own config and the best of the others are compared by the errors that people are told.
        """
        cold = dict(ways(self._ended).cold)
        own_standing = cold.pop(launch_digest(own), None)
        other = max(cold.values(), key=attrgetter("value"), default=None)
        if own_standing is None or other is None or own_standing.widened_error == own_standing.error:
            return None
        noise = hypot(own_standing.widened_error or 0.0, other.widened_error or 0.0)
        is_hidden = abs(other.value - own_standing.value) <= SURE * noise
        return own_standing.config if is_hidden and self._may_be_repeated(own_standing) else None

    def unsure_gain(self, own: Config) -> Config | None:
        """Return the config of which a second reading makes the gain over the user's own config sure; None without one.

        The own config often runs first, and another program may have been busy then. So it is measured again at the
        end. If the best is less than 1.3 times as good, the best is measured a second time, too.

        `own`: the user's own config.
        """
        own_standing, best_standing = ways(self._ended).cold.get(launch_digest(own)), best(self._ended, [own])
        if own_standing is None or best_standing is None or own_standing.value >= best_standing.value:
            return None  # there is no gain to tell
        is_small = best_standing.value < 1.3 * own_standing.value
        for standing in (own_standing, best_standing) if is_small else (own_standing,):
            if standing.readings == 1 and self._may_be_repeated(standing):
                return standing.config
        return None

    def confirmed(self) -> list[Config]:
        """Return the configs that the plain command has measured and that may be the best, the largest value first.

        They come without the pruner's patience.
        """
        cold = ways(self._ended).cold
        return [standing.config for standing in sorted(cold.values(), key=attrgetter("value"), reverse=True)]


Price = Callable[[Config], float]
"""Returns how many trainer starts a probe of a config takes now: 0 in an open session, otherwise 1."""

ALL_PROBED = "every config has been probed or cannot fit"
"""Why a search ends when no chooser has an answer."""


def free(config: Config) -> float:
    """Return the same price for every config: each probe starts its trainer."""
    return 1.0


class Why(Enum):
    """What a probe is for."""

    SOAK = "to see whether its memory lasts"
    TELL = "to keep that a training with it ran out of memory"
    SEARCH = "to learn about a config"
    CALIBRATE = "to make the rungs of an `auto` ladder, or an `auto` batch size"
    RETRY = "to repeat a failed probe"
    CONFIRM = "to measure by the trainer's plain command what the result hangs on"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The config to probe next."""

    config: Config
    why: Why = Why.SEARCH
    cold: bool = False
    """Whether the trainer's plain command is to measure it, outside any session."""
    mark: object = True
    """The value of the trial's attribute that says why the config was chosen, such as the settings of a soak."""
    origin: str | None = None
    """The case whose best config this is, where the config comes from another case."""
    takes_s: float | None = None
    """The expected seconds of the probe, where the chooser expects any."""
    left: float | None = None
    """The trials after which the search probably ends, this trial included; None where nothing tells."""


class Done(NamedTuple):
    """Nothing is left to probe."""

    reason: str


Chooser = Callable[[History, Price], Choice | Done | None]
"""Chooses from a study's history and the prices of now. None means that the next chooser decides.

A chooser keeps nothing that the history does not show, except for its random numbers.
"""


def first_answer(choosers: Sequence[Chooser], history: History, price: Price) -> Choice | Done | None:
    """Return the answer of the first chooser that has one; None where none has."""
    answers = (choose(history, price) for choose in choosers)
    return next((answer for answer in answers if answer is not None), None)


def retry(history: History, price: Price) -> Choice | None:
    """Choose the config of the first failed trial that is due again."""
    failed = history.due_retry()
    if failed is None:
        return None
    return Choice(config=dict(failed.config), why=Why.RETRY, origin=failed.origin)


def confirm_measured(history: History, price: Price) -> Choice | None:
    """Choose the config with the best measurement, if only sessions have measured it: see `History.unconfirmed`."""
    return confirmation(history.unconfirmed())


def confirmation(config: Config | None) -> Choice | None:
    """Return the choice that measures a config again by the trainer's plain command."""
    return None if config is None else Choice(config=config, why=Why.CONFIRM, cold=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """All choosers of a search."""

    choosers: Sequence[Chooser]
    """They choose until the search ends, the most urgent chooser first."""
    confirm: Callable[[History, Price], Choice | None] = confirm_measured
    """Chooses once the search has ended: the best config, unless the plain command has measured it."""

    def choose(self, history: History, price: Price) -> Choice | Done:
        """Choose what to probe next. A config whose probe has failed is retried outside any session."""
        answer = first_answer(self.choosers, history, price) or Done(reason=ALL_PROBED)
        if isinstance(answer, Choice) and history.failed_before(answer.config):
            return replace(answer, cold=True)
        return answer
