"""What the work on a study needs beside its bench: what it is for, who watches it, and the time that it may take."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import StudyError
from tuner.probe import HOUR_S, Answer, Clock, MonotonicClock, ProbePlan, Prober, ProbeResult, Stop
from tuner.running.events import Watcher
from tuner.running.workbench import Workbench
from tuner.search.calibration import BatchToFit, of_batch, of_ladder
from tuner.search.choosing import Strategy
from tuner.search.strategies import Siblings, in_order, recovery, searching
from tuner.store.database import Database
from tuner.store.opening import check_study
from tuner.study import REASON, Case, Config, ProbeSpec, Space, StudySpec
from tuner.trainers.base import Trainer

StrategyOf = Callable[[Space, StudySpec, int, Siblings], Strategy]
"""Makes a strategy from the space, the case's settings, the number of trials so far, and the case's siblings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Purpose:
    """How configs are chosen for a case, and when its work is over."""

    strategy: StrategyOf
    limited: bool = True
    """Whether the work ends at a number of finished trials; otherwise it ends when the strategy has nothing left."""
    competing: bool = True
    """Whether configs compete: a clear loser ends early, and the best is measured again cold."""
    keeps_end: bool = True
    """Whether the study keeps the reason why the work ended. It keeps none if other work on the case follows."""
    ineligible: Callable[[ProbeResult], str | None] = lambda _: None
    """Returns why a config that ran for this purpose may not be the best; None where it may."""
    settled: Callable[[ProbeResult], Answer] | None = None
    """Returns whether a probe goes on; None where the objectives decide, with the study's limits and headroom."""
    limits: Callable[[ProbeSpec], ProbeSpec] = lambda limits: limits
    """Returns the limits of a probe, from those of the study."""
    trainer: Trainer | None = None
    """The trainer that plans the probes by its plain command; None for the study's."""


SEARCH = Purpose(strategy=searching)
"""Find the best config."""
RECOVER = Purpose(strategy=lambda space, *_: recovery(space), limited=False, keeps_end=False)
"""Find one config that runs, for a case that has had no success."""
CALIBRATE = Purpose(strategy=lambda space, *_: of_ladder(space), limited=False, competing=False, keeps_end=False)
"""Probe small rungs, from which the rungs of an `auto` ladder are made."""


def fit_batch(batch: BatchToFit) -> Purpose:
    """Return the purpose of probing small batch sizes, from which the batch size that is `auto` is worked out."""
    return Purpose(
        strategy=lambda *_: of_batch(batch),
        limited=False,
        competing=False,
        keeps_end=False,
        ineligible=lambda _: REASON,
    )


def record(configs: Sequence[Config], *, limited: bool = True) -> Purpose:
    """Return the purpose of measuring all configs of a list fully."""
    return Purpose(strategy=lambda space, *_: in_order(configs, space.ladder), limited=limited, competing=False)


Probe = Callable[[ProbePlan, Stop], ProbeResult]
"""Probes once; the second argument may end the probe early."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulse:
    """How often a watcher hears of the running probe."""

    every_s: float
    clock: Clock
    utilisation: Callable[[], Sequence[float | None]] = tuple
    """Returns how busy each device was since the last call; see `Prober.utilisation`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the work on a study needs: its bench, its database, a prober, a watcher, and what may stop it."""

    bench: Workbench
    database: Database
    probe: Probe
    interrupted: Callable[[], bool]
    """Returns whether the user wants to stop, or the time is over."""
    is_late: Callable[[], bool] = lambda: False
    """Returns whether the time is over: then a probe that has measured something gives its rough value."""
    watcher: Watcher = lambda _: None
    pulse: Pulse | None = None
    """How often the watcher hears of the running probe; None where it does not."""
    has_time: Callable[[float | None], bool] = lambda _: True
    """Returns whether a probe of so many expected seconds may begin; None stands for an unknown length."""
    left_s: Callable[[], float] = lambda: math.inf
    """Returns the seconds that are left; infinite where the time has no limit."""
    purpose: Purpose = SEARCH
    trials: int | None = None
    """The number of finished trials per case; None for the study's own number."""
    open_session: Callable[[], str | None] = lambda: None
    """Returns the key of the open session; None where no session is open."""
    wait: Callable[[], None] | None = None
    """Waits a moment for the probes of other workers; None where the work ends while they still probe."""
    simulated: bool = False
    """Whether probes take no time, because a recorded table answers them."""
    recording: Mapping[str, Any] | None = None
    """How the case is recorded, where it is: the JSON of `Circumstances`, which the case's study keeps."""

    def target(self, spec: StudySpec) -> int | None:
        """Return the number of finished trials that ends the work on a case; None where no number does."""
        return (self.trials or spec.search.trials) if self.purpose.limited else None


def check(job: Job, case: Case) -> None:
    """Check whether a case can be searched and its study be resumed; this begins nothing.

    Raises StudyError with the case's name where no sampler can be made, and StoreError where the case's study in the
    database differs. The search itself makes a new sampler later, when the cases before it have shown their best.
    """
    check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    space, spec = job.bench.space_for(case), job.bench.spec_for(case)
    try:
        job.purpose.strategy(space, spec, 0, tuple)
    except StudyError as error:
        raise StudyError(f"case {case.name}: {error}") from error


class Budget:
    """The time that probes may take: `hours` from now on, or no limit where `hours` is None."""

    def __init__(self, clock: Clock, hours: float | None) -> None:
        self._clock = clock
        self.whole_s = math.inf if hours is None else hours * HOUR_S
        self._end_s = clock.now() + self.whole_s
        self.short: tuple[float, float] | None = None
        """The seconds that the next probe needed and the seconds that were left, where these ended the budget."""

    def left_s(self) -> float:
        """Return the seconds that are left; infinite where there is no limit."""
        return self._end_s - self._clock.now()

    def over(self) -> bool:
        """Return whether the time is over, or the rest is too short for a probe."""
        return self.short is not None or self.left_s() <= 0.0

    def allows(self, probe_s: float | None) -> bool:
        """Return whether the rest is enough for a probe of so many seconds; if it is not, the budget is over."""
        left_s = self.left_s()
        if probe_s is not None and probe_s > left_s:
            self.short = probe_s, left_s
        return self.short is None


def within(job: Job, budget: Budget) -> Job:
    """Return the job that ends when its budget is over, and that begins no probe that the budget is too short for.

    A simulated probe takes no time, so its length is ignored.
    """
    limited = replace(job, interrupted=lambda: job.interrupted() or budget.over(), is_late=budget.over)
    return limited if job.simulated else replace(limited, has_time=budget.allows, left_s=budget.left_s)


@contextmanager
def open_job(
    bench: Workbench,
    url: str,
    prober: Prober,
    *,
    watcher: Watcher = lambda _: None,
    interrupted: Callable[[], bool] = lambda: False,
    every_s: float | None = None,
) -> Iterator[Job]:
    """Yield a job that works on the database at `url`; close prober and database afterwards.

    `every_s`: how many seconds apart the watcher hears of a running probe; None where it does not.
    Raises StoreError where the database cannot be used.
    """
    pulse = None
    if every_s is not None:
        pulse = Pulse(every_s=every_s, clock=MonotonicClock(), utilisation=prober.utilisation)
    with closing(prober), closing(Database(url)) as database:
        yield Job(
            bench=bench,
            database=database,
            probe=prober,
            interrupted=interrupted,
            watcher=watcher,
            pulse=pulse,
            open_session=lambda: prober.open_session,
        )
