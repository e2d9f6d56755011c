"""The study of one case: what its trials come to, the next config, a running probe, and the result."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.kept.case_record import KeptCase, KeptStudy, encode
from tuner.kept.stored import BATCH, CALIBRATES, CASE, CONFIRMS, ENDED, LEASE, ORIGIN, RUNGS, SOAKS, storable
from tuner.kept.trial import KeptProbe
from tuner.search.choosing import Choice, Done, History, Price, Strategy, Why, free
from tuner.search.needs import Frontier
from tuner.search.samplers import ask_for
from tuner.search.standing import Standing, best, incumbent, leads
from tuner.search.trials import (
    all_kept,
    failures_in_a_row,
    finished,
    frontier,
    has_failed,
    kept,
    running,
    since_mended,
    suggest,
)
from tuner.search.verdict import Verdict
from tuner.store.database import Database
from tuner.store.ending import TakenBack, take_back, tell_probe, usual_s
from tuner.store.leases import BEAT_S, Lease, Neighbour
from tuner.store.leases import running as running_now
from tuner.store.opening import check_unchanged, fixed, open_study
from tuner.study import LADDER, BatchFit, Config, Space, same_launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A trial that this process now runs."""

    number: int
    config: Config
    attempt: int
    """1 + the number of failures in a row that this config has had just before."""
    cold: bool
    """Whether the trainer's plain command measures the config: a session has failed, or has found the best config."""
    confirms: bool = False
    """Whether the trial measures the best config of the sessions again. Nothing ends such a probe early."""
    origin: str | None = None
    """The other case in which this config is the best, if the config comes from another case."""
    left: float | None = None
    """The trials after which the search probably ends, this trial included; None where nothing tells."""


def asked_for(trial: Trial, space: Space, choice: Choice, before: Sequence[FrozenTrial]) -> Asked:
    """Read the config of a trial that has just begun, and store in the trial why it was chosen.

    `before` are the study's trials without this one.
    """
    config = suggest(trial, space)
    confirms = choice.why is Why.CONFIRM
    if confirms:
        trial.set_user_attr(CONFIRMS, True)
    if choice.why is Why.CALIBRATE:
        trial.set_user_attr(CALIBRATES, True)
    if choice.why is Why.SOAK:
        trial.set_user_attr(SOAKS, True)
    if choice.origin:
        trial.set_user_attr(ORIGIN, choice.origin)
    return Asked(
        number=trial.number,
        config=config,
        attempt=1 + failures_in_a_row(before, config),
        cold=choice.cold,
        confirms=confirms,
        origin=choice.origin,
        left=choice.left,
    )


Answer = TypeVar("Answer")


class CaseTrials:
    """The trials of one case's study."""

    def __init__(self, database: Database, study: Study) -> None:
        self._database, self._study = database, study
        self._held_up = False
        """Whether nothing begins here until other probes on this machine have ended."""
        self._name = study.study_name
        self._several = len(study.directions) > 1
        self._trials: dict[int, Trial] = {}
        self._known: list[FrozenTrial] | None = None

    def _transact(self, work: Callable[[], Answer], *, alone: bool = False) -> Answer:
        return self._database.transact(work, alone=alone, again=self._forget)

    def _forget(self) -> None:
        """Forget what Optuna's trials keep in memory: it may be of a transaction that was never committed."""
        self._trials = {number: self._trial(number) for number in self._trials}

    def _trial(self, number: int) -> Trial:
        return Trial(self._study, self._database.storage.trial_id(self._name, number))

    def _read(self, *states: TrialState) -> list[FrozenTrial]:
        """Return the trials in the given states, or in any."""
        known = self._transact(lambda: since_mended(self._study)) if self._known is None else self._known
        return [one for one in known if one.state in states] if states else known

    @contextmanager
    def read_once(self) -> Iterator[None]:
        """Read the trials now; all questions about them inside are answered from that."""
        self._known = self._read()
        try:
            yield
        finally:
            self._known = None

    @property
    def finished(self) -> int:
        """How many trials have ended, without those that will be repeated and those that confirm another trial."""
        return finished(self._read())

    @property
    def running(self) -> int:
        """How many trials are leased, to this process or to others."""
        return running(self._read())

    @property
    def awaited(self) -> frozenset[int]:
        """The ids of the probes that may change what is left to do, and that other processes run now.

        These are the case's own probes. Where a confirmation waits for them, all others on this machine count, too.
        """
        running = self._transact(self._neighbours)
        return frozenset(one.trial for one in running if one.case == self._name or (self._held_up and one.is_here))

    def _neighbours(self) -> list[Neighbour]:
        return running_now(self._database.storage, self._name.split("/", 1)[0])

    @property
    def incumbent(self) -> float | None:
        """The best mean of an eligible config so far: see `standing.incumbent`. None with several objectives."""
        return None if self._several else incumbent(all_kept(self._read()))

    def leads(self, value: float | None) -> bool:
        """Return whether one config alone is the best so far, and this is its mean; see `standing.leads`."""
        return not self._several and leads(all_kept(self._read()), value)

    @property
    def best(self) -> Standing | None:
        """The best config so far: see `standing.leader`."""
        case = self.kept.case
        return best(all_kept(self._read()), case.defaults if case else ())

    @property
    def usual_s(self) -> float | None:
        """The median of the seconds that complete probes took; None where none is known."""
        return usual_s(self._read())

    @property
    def has_run(self) -> bool:
        """Whether a probe has measured the objective."""
        return bool(self._read(TrialState.COMPLETE))

    @property
    def failing_streak(self) -> int:
        """How many trials in a row, counted back from the last ended one, failed without fault of their config."""
        ended = (trial for trial in reversed(self._read()) if trial.state.is_finished())
        failed = (trial.state == TrialState.FAIL and has_failed(trial) for trial in ended)
        return sum(1 for _ in takewhile(bool, failed))

    @property
    def kept(self) -> KeptStudy:
        """What the study keeps beside its trials: the rungs of an `auto` ladder, for example."""
        return self._transact(lambda: KeptStudy(self._study.user_attrs))

    def frontier(self) -> Frontier:
        """Return what the study knows about where memory ends."""
        case = self.kept.case
        return frontier(self._read(), case.ladder if case else LADDER)

    def metrics_of(self, config: Config) -> Mapping[str, float | None]:
        """Return the metrics of the newest complete probe of this config; empty where there is none."""
        same = [trial for trial in self._read(TrialState.COMPLETE) if same_launch(trial.params, config)]
        return kept(same[-1]).metrics if same else {}


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
        """End the trials whose process is gone: see `tuner.store.ending`. `probes` holds the probes' folders."""
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
