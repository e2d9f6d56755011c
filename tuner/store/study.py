"""The study of one case: it chooses the next config, reports a running probe, and stores the result."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from tuner.kept.case import KeptCase, encode
from tuner.kept.names import BATCH, CASE, ENDED, LEASE, RUNGS
from tuner.kept.probe import KeptProbe
from tuner.kept.storable import storable
from tuner.kept.study import KeptStudy
from tuner.search.choosing import Choice, Done, Price, Strategy, Why, free
from tuner.search.history import History
from tuner.search.sampler import ask_for
from tuner.search.trials import (
    finished,
    running,
)
from tuner.search.verdict import Verdict
from tuner.store.asked import Asked, asked_for
from tuner.store.case_trials import CaseTrials
from tuner.store.database import Database
from tuner.store.dropped import TakenBack, take_back, tell_probe
from tuner.store.fixed import fixed
from tuner.store.leases import BEAT_S, Lease
from tuner.store.opening import check_unchanged, open_study
from tuner.store.records import usual_s
from tuner.study.batch import BatchFit
from tuner.study.space import Space

Answer = TypeVar("Answer")


class CaseStudy(CaseTrials):
    """The study of one case. A study that exists in the database is resumed.

    - `strategy` makes the strategy from the number of trials so far.
    - `objectives` are the names of a trial's values, in their order. With several objectives, the best is a Pareto
      front and no probe is pruned.
    - `identity` holds the settings that must not change while the study goes on: space, trainer, pruner, objective,
      source of utilisation.
    - `confirm`: whether the trainer's plain command measures the best again if a session has measured it.

    Raises StoreError that names what differs from the study in the database.
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
        def opened() -> tuple[Study, int]:
            study = open_study(database, name, objectives=objectives, pruner=pruner, identity=identity)
            study.set_user_attr(CASE, encode(case))
            return study, len(study.get_trials(deepcopy=False))

        study, count = database.transact(opened, alone=True)
        super().__init__(database, study)
        self._confirm = confirm
        self._space = space
        self._beat_s = 0.0
        self._reported: dict[int, int] = {}
        self._identity = storable(identity)
        self._strategy = strategy(count)

    def fix_rungs(self, make: Callable[[Sequence[FrozenTrial]], tuple[int, ...]]) -> tuple[int, ...]:
        """Return the rungs of an `auto` ladder. If the study has none, `make` makes them from the trials, for good."""
        return self._transact(
            lambda: fixed(self._study, RUNGS, lambda kept: kept.rungs, lambda: make(self._read()), tuple), alone=True
        )

    def fix_batch(self, make: Callable[[Sequence[FrozenTrial]], BatchFit | None]) -> BatchFit | None:
        """Return the batch size that is `auto`. If the study has none, `make` makes it from the trials, for good."""
        return self._transact(
            lambda: fixed(self._study, BATCH, lambda kept: kept.batch, lambda: make(self._read()), asdict), alone=True
        )

    def take_back(self, probes: Path) -> TakenBack:
        """End the trials whose process is gone: see `tuner.store.dropped`. `probes` holds the probes' folders."""
        taken_back, files = self._transact(lambda: take_back(self._database.storage, self._study, probes), alone=True)
        for file in files:
            file.unlink(missing_ok=True)
        return taken_back

    def ask(
        self, target: int | None, price: Price = free, has_time: Callable[[float | None], bool] = lambda _: True
    ) -> Asked | None:
        """Begin a trial of the next config, with a lease of this process. None where there is nothing to probe.

        The search ends once `target` trials have ended or are running, or when nothing is left to probe. The best
        config of the sessions, if any, is then confirmed. A confirmation waits until no other probe of the study runs
        on this machine, and no other probe of a search begins here while it runs.

        `price` says what a probe of a config costs now. `has_time` says whether a probe of so many seconds may begin.
        The seconds are those that the strategy expects, else the median of the case's probes, else None.
        """

        def leased() -> tuple[Trial, Asked] | None:
            check_unchanged(self._database, self._study, self._identity)
            history = History(self._study, self._space)
            here = [one for one in self._neighbours() if one.is_here] if self._confirm else []
            self._held_up = any(one.confirms for one in here)
            choice = None if self._held_up else self._choice(history, target, price)
            if choice is not None and choice.why is Why.CONFIRM and here:
                self._held_up, choice = True, None
            if choice is None or not has_time(choice.takes_s or usual_s(history.trials)):
                return None
            trial = ask_for(self._study, self._space, choice.config)
            trial.set_user_attr(LEASE, Lease.mine().write())
            if KeptStudy(self._study.user_attrs).ended:
                self._study.set_user_attr(ENDED, None)
            return trial, asked_for(trial, self._space, choice, history.trials)

        answer = self._transact(leased, alone=True)
        if answer is None:
            return None
        trial, asked = answer
        self._trials[trial.number] = trial
        return asked

    def _choice(self, history: History, target: int | None, price: Price) -> Choice | None:
        """Choose the next config of the search. Once the search has ended and no probe runs, choose one to confirm."""
        busy = running(history.trials)
        if target is None or finished(history.trials) + busy < target:
            answer = self._strategy.choose(history, price)
            if isinstance(answer, Choice):
                return answer
        return self._strategy.confirm(history, price) if self._confirm and not busy else None

    def end(self, *, keep: bool = True) -> str | None:
        """Return why nothing is left to probe; None while something is.

        With `keep`, the study keeps the reason until its next trial begins. While other workers still probe, it does
        not.
        """

        def ended() -> str | None:
            answer = self._strategy.choose(History(self._study, self._space), free)
            why = answer.reason if isinstance(answer, Done) else None
            if keep and not self.running:
                self._study.set_user_attr(ENDED, why)
            return why

        return self._transact(ended, alone=True)

    def report(self, asked: Asked, iteration: int, value: float) -> bool:
        """Report the objective so far after an iteration; return whether the pruner would stop the probe.

        Optuna takes no reports in studies with several objectives, and one report per iteration. A window that begins
        anew after a change of level has fewer iterations; nothing is reported until it has more than were reported.
        """
        if self._several or iteration <= self._reported.get(asked.number, 0):
            return False
        self._reported[asked.number] = iteration

        def reported() -> bool:
            trial = self._trials[asked.number]
            trial.report(value, iteration)
            return trial.should_prune()

        return self._transact(reported)

    def beat(self, asked: Asked) -> None:
        """Renew the lease every `BEAT_S` seconds, so that workers on other hosts know that this process lives."""
        if time.monotonic() - self._beat_s >= BEAT_S:
            self._beat_s = time.monotonic()
            self._transact(lambda: self._trials[asked.number].set_user_attr(LEASE, Lease.mine().write()))

    def tell(self, asked: Asked, verdict: Verdict, probe: KeptProbe) -> None:
        """Store the verdict and the record of the probe."""

        self._transact(lambda: tell_probe(self._study, self._trials[asked.number], verdict, probe))
        del self._trials[asked.number]
