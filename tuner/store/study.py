"""One case's study: ask for the next config, follow its probe, tell what came of it, take back what was dropped."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.kept.case import KeptCase, encode
from tuner.kept.names import CASE, CONFIRMS, ENDED, LEASE, ORIGIN, RUNGS
from tuner.kept.probe import KeptProbe
from tuner.kept.study import KeptStudy
from tuner.search.choosing import Choice, Done, Price, Strategy, Why, free
from tuner.search.frontier import Frontier
from tuner.search.history import History
from tuner.search.sampler import ask_for
from tuner.search.standing import incumbent
from tuner.search.trials import (
    failures_in_a_row,
    finished,
    frontier,
    has_failed,
    kept,
    readings,
    running,
    same_launch,
    suggest,
)
from tuner.search.verdict import Verdict
from tuner.store.database import Database
from tuner.store.dropped import Recovered, recover, tell_probe
from tuner.store.leases import BEAT_S, Lease
from tuner.store.opening import open_study
from tuner.store.records import usual_s
from tuner.study.space import Config, Space


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A trial that this process now runs."""

    number: int
    config: Config
    attempt: int
    """How often in a row its config will have failed by itself where it fails now."""
    cold: bool
    """Whether the trainer's plain command is to measure it, because a session has failed or shown it to be the best."""
    confirms: bool = False
    """Whether it measures again what a session has shown to be the best: to the end, whatever comes of it."""
    origin: str | None = None
    """The case in which this config is the best, where it comes from there."""


class CaseStudy:
    """The study of one case, resumed where it exists.

    `strategy` makes what chooses configs from the number of trials so far. `objectives` are named in the order in which
    they are told; of several the best is a Pareto front, and no probe is pruned. `identity` is what must not change
    while the study goes on: space, trainer, pruner, objective, what measures. `confirm`: whether the best is to be
    measured again by the trainer's plain command where a session has measured it.
    Raises StoreError naming what differs from the study in the database.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        space: Space,
        strategy: Callable[[int], Strategy],
        pruner: BasePruner,
        identity: dict[str, Any],
        case: KeptCase,
        objectives: Sequence[str] = ("value",),
        confirm: bool = True,
    ) -> None:
        self._database = database
        self._confirm = confirm
        self._several = len(objectives) > 1
        self._space = space
        self._trials: dict[int, Trial] = {}
        self._beat_s = 0.0
        with database.reported(), database.lock():
            self._study = open_study(database, name, objectives=objectives, pruner=pruner, identity=identity)
            self._study.set_user_attr(CASE, encode(case))
            self._strategy = strategy(len(self._study.get_trials(deepcopy=False)))

    @property
    def finished(self) -> int:
        """How many trials have ended, but for those that are asked again or confirm another."""
        with self._database.reported():
            return finished(self._study.get_trials(deepcopy=False))

    @property
    def running(self) -> int:
        """How many trials are leased, to this process or to others."""
        with self._database.reported():
            return running(self._study.get_trials(deepcopy=False))

    @property
    def incumbent(self) -> float | None:
        """The best mean of an eligible config so far, as `standing.incumbent` gives it; None of several objectives."""
        if self._several:
            return None
        with self._database.reported():
            trials = self._study.get_trials(deepcopy=False)
        return incumbent(readings(trials))

    @property
    def has_run(self) -> bool:
        """Whether a probe has given a number."""
        with self._database.reported():
            return bool(self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))

    @property
    def failing_streak(self) -> int:
        """How many of the last ended trials failed through no fault of their config, one after another."""
        with self._database.reported():
            ended = [trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished()]
        failed = (trial.state == TrialState.FAIL and has_failed(trial) for trial in reversed(ended))
        return sum(1 for _ in takewhile(bool, failed))

    @property
    def rungs(self) -> tuple[int, ...] | None:
        """The rungs of an `auto` ladder; None until they are fixed."""
        with self._database.reported():
            return KeptStudy(self._study.user_attrs).rungs

    def fix_rungs(self, make: Callable[[Sequence[FrozenTrial]], tuple[int, ...]]) -> tuple[int, ...]:
        """Give the rungs of an `auto` ladder: what the study holds or, for good, what `make` gives for its trials."""
        with self._database.reported(), self._database.lock():
            if (rungs := self.rungs) is None:
                rungs = make(self._study.get_trials(deepcopy=False))
                self._study.set_user_attr(RUNGS, rungs)
        return rungs

    def frontier(self) -> Frontier:
        """Give what the study knows about where memory ends."""
        with self._database.reported():
            return frontier(self._study.get_trials(deepcopy=False))

    def metrics_of(self, config: Config) -> Mapping[str, float | None]:
        """Give the metrics of the newest probe that came to a number for this config, empty where none has."""
        with self._database.reported():
            complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        same = [trial for trial in complete if same_launch(trial.params, config)]
        probe = kept(same[-1]).probe if same else None
        return probe.metrics if probe else {}

    def recover(self, probes: Path) -> Recovered:
        """End the trials whose process is gone: see `tuner.store.dropped`. Below `probes` lie their folders."""
        with self._database.reported(), self._database.lock():
            return recover(self._study, probes)

    def ask(
        self, target: int | None, price: Price = free, has_time: Callable[[float | None], bool] = lambda _: True
    ) -> Asked | None:
        """Give the next config, leased to this process; `price` says what probing one costs now.

        None, too, where `has_time` says no to the seconds that the case's probes take as a rule.
        Once `target` trials have ended or are running, or when nothing is left to probe, that is the config which a
        session has shown to be the best, to be confirmed; None when that has been done.
        """
        with self._database.reported(), self._database.lock():
            history = History(self._study, self._space)
            choice = self._choice(history, target, price)
            if choice is None or not has_time(usual_s(history.trials)):
                return None
            trial = ask_for(self._study, self._space, choice.config)
            trial.set_user_attr(LEASE, Lease.mine().write())
            self._trials[trial.number] = trial
            if KeptStudy(self._study.user_attrs).ended:
                self._study.set_user_attr(ENDED, None)
            return self._asked(trial, choice, history)

    def _choice(self, history: History, target: int | None, price: Price) -> Choice | None:
        """Choose a config to search with or, once the search has ended and nobody probes any more, to confirm."""
        busy = running(history.trials)
        if target is None or finished(history.trials) + busy < target:
            answer = self._strategy.choose(history, price)
            if isinstance(answer, Choice):
                return answer
        return self._strategy.confirm(history, price) if self._confirm and not busy else None

    def _asked(self, trial: Trial, choice: Choice, before: History) -> Asked:
        config = suggest(trial, self._space)
        confirms = choice.why is Why.CONFIRM
        if confirms:
            trial.set_user_attr(CONFIRMS, True)
        if choice.origin:
            trial.set_user_attr(ORIGIN, choice.origin)
        return Asked(
            number=trial.number,
            config=config,
            attempt=1 + failures_in_a_row(before.trials, config),
            cold=choice.cold,
            confirms=confirms,
            origin=choice.origin,
        )

    def end(self, *, keep: bool = True) -> str | None:
        """Return the reason why nothing is left to probe; None while something is.

        The study keeps it until the next trial is asked for, unless others still probe or `keep` says otherwise.
        """
        with self._database.reported(), self._database.lock():
            answer = self._strategy.choose(History(self._study, self._space), free)
            why = answer.reason if isinstance(answer, Done) else None
            if keep and not self.running:
                self._study.set_user_attr(ENDED, why)
        return why

    def report(self, asked: Asked, iteration: int, value: float) -> bool:
        """Report the objective so far after an iteration; tell whether the pruner would stop the probe.

        Of several objectives Optuna takes no reports.
        """
        if self._several:
            return False
        trial = self._trials[asked.number]
        with self._database.reported():
            trial.report(value, iteration)
            return trial.should_prune()

    def beat(self, asked: Asked) -> None:
        """Give a sign of life now and then, for workers on other hosts."""
        if time.monotonic() - self._beat_s >= BEAT_S:
            self._beat_s = time.monotonic()
            with self._database.reported():
                self._trials[asked.number].set_user_attr(LEASE, Lease.mine().write())

    def tell(self, asked: Asked, verdict: Verdict, probe: KeptProbe) -> None:
        """Tell the verdict and keep the record; what is told survives anything that follows."""
        with self._database.reported():
            tell_probe(self._study, self._trials.pop(asked.number), verdict, probe)
