"""What the trials of a case come to so far: each question reads the database anew, or several together read it once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import TypeVar

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.kept.study import KeptStudy
from tuner.search.frontier import Frontier
from tuner.search.standing import Standing, best, incumbent, leads
from tuner.search.trials import all_kept, finished, frontier, has_failed, kept, running, since_mended
from tuner.store import neighbours
from tuner.store.database import Database
from tuner.store.neighbours import Neighbour
from tuner.store.records import usual_s
from tuner.study.launch import same_launch
from tuner.study.space import LADDER, Config

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
        return neighbours.running(self._database.storage, self._name.split("/", 1)[0])

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
