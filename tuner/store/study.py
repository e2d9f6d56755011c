"""One case's study: ask for the next config, follow its probe, tell what came of it, take back what was dropped."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.errors import StoreError
from tuner.search.frontier import Frontier
from tuner.search.sampler import ELIGIBLE, MEMORY, RETRY, ConfigSampler, frontier, suggest
from tuner.search.verdict import State, Verdict
from tuner.store.database import Database
from tuner.store.leases import BEAT_S, Lease
from tuner.store.records import CASE, IDENTITY, LEASE, PROBE
from tuner.study.space import Config, Space, config_digest
from tuner.study.spec import SearchSpec

_STATES = {State.COMPLETE: TrialState.COMPLETE, State.PRUNED: TrialState.PRUNED, State.FAIL: TrialState.FAIL}
_DROPPED = {"status": "interrupted", "launched": True, "metrics": {}, "devices": []}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A trial that this process now runs."""

    number: int
    config: Config
    attempt: int
    """How often this config has been asked for, this time included."""


class CaseStudy:
    """The study of one case, resumed where it exists.

    `identity` is what must not change while it goes on: space, trainer, pruner, objective, what measures.
    Raises StoreError naming what differs from the study in the database.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        space: Space,
        search: SearchSpec,
        pruner: BasePruner,
        identity: dict[str, Any],
        case: dict[str, Any],
    ) -> None:
        self._database = database
        self._space = space
        self._trials: dict[int, Trial] = {}
        self._beat_s = 0.0
        with database.reported(), database.lock():
            self._study = optuna.create_study(
                study_name=name, storage=database.storage, direction="maximize", pruner=pruner, load_if_exists=True
            )
            self._check(identity)
            self._study.set_user_attr(CASE, case)
            self._sampler = ConfigSampler(space, search, resumed_at=len(self._study.get_trials(deepcopy=False)))
            self._study.sampler = self._sampler

    @property
    def finished(self) -> int:
        """How many trials have ended, but for those that are asked again."""
        with self._database.reported():
            trials = self._study.get_trials(deepcopy=False)
        return sum(trial.state.is_finished() and not trial.user_attrs.get(RETRY) for trial in trials)

    @property
    def running(self) -> int:
        """How many trials are leased, to this process or to others."""
        with self._database.reported():
            return len(self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))

    @property
    def incumbent(self) -> float | None:
        """The best objective of an eligible config so far."""
        with self._database.reported():
            complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        eligible = [trial for trial in complete if not trial.user_attrs.get(PROBE, {}).get("ineligible")]
        return max((trial.value for trial in eligible if trial.value is not None), default=None)

    @property
    def failing_streak(self) -> int:
        """How many of the last ended trials failed through no fault of their config, one after another."""
        with self._database.reported():
            ended = [trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished()]
        failed = (
            trial.state == TrialState.FAIL and trial.user_attrs.get(PROBE, {}).get("status") != "interrupted"
            for trial in reversed(ended)
        )
        return sum(1 for _ in takewhile(bool, failed))

    def frontier(self) -> Frontier:
        """Give what the study knows about where memory ends."""
        with self._database.reported():
            return frontier(self._study.get_trials(deepcopy=False))

    def recover(self) -> int:
        """Take back the trials whose process is gone, to be asked again; give how many there were."""
        dropped = 0
        with self._database.reported(), self._database.lock():
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                lease = Lease.read(trial.user_attrs.get(LEASE))
                if lease is None or not lease.held():
                    self._take_back(trial)
                    dropped += 1
        return dropped

    def ask(self, target: int) -> Asked | None:
        """Give the next config, leased to this process.

        None once `target` trials have ended or are running, or when nothing is left to probe.
        """
        with self._database.reported(), self._database.lock():
            if self.finished + self.running >= target or self._sampler.exhausted(self._study):
                return None
            trial = self._study.ask()
            config = suggest(trial, self._space)
            trial.set_user_attr(LEASE, Lease.mine().write())
            attempt = sum(one.params == config for one in self._study.get_trials(deepcopy=False))
        self._trials[trial.number] = trial
        return Asked(number=trial.number, config=config, attempt=attempt)

    def report(self, asked: Asked, iteration: int, value: float) -> bool:
        """Report the objective so far after an iteration; tell whether the pruner would stop the probe."""
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

    def tell(self, asked: Asked, verdict: Verdict, record: dict[str, Any]) -> None:
        """Tell the verdict and keep the record; what is told survives anything that follows."""
        trial = self._trials.pop(asked.number)
        with self._database.reported():
            trial.set_user_attr(PROBE, record)
            if verdict.retry:
                trial.set_user_attr(RETRY, True)
            if verdict.constraint is not None:
                trial.set_constraint(MEMORY, verdict.constraint)
            if verdict.ineligible:
                trial.set_constraint(ELIGIBLE, 1.0)
            self._study.tell(asked.number, verdict.value, state=_STATES[verdict.state])

    def _take_back(self, trial: FrozenTrial) -> None:
        storage = self._database.storage
        record = {**_DROPPED, "config": trial.params, "digest": config_digest(trial.params)}
        storage.set_trial_user_attr(trial._trial_id, PROBE, record)
        storage.set_trial_user_attr(trial._trial_id, RETRY, True)
        self._study.tell(trial.number, state=TrialState.FAIL)

    def _check(self, identity: dict[str, Any]) -> None:
        known = self._study.user_attrs.get(IDENTITY)
        if known is None:
            self._study.set_user_attr(IDENTITY, identity)
            return
        changed = list(_changes(known, identity))
        if changed:
            raise StoreError(
                f"study {self._study.study_name} in {self._database.shown_url} was started with other settings:\n"
                + "\n".join(changed)
                + "\nrestore them to resume it, or give the study file another `name:` to start anew"
            )


def _changes(known: object, now: object, where: str = "") -> Iterator[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        for name in sorted(known.keys() | now.keys()):
            yield from _changes(known.get(name), now.get(name), f"{where}.{name}".lstrip("."))
    elif known != now:
        yield f"  {where}: was {known!r}, is {now!r}"
