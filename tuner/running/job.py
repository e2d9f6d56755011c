"""The work on a study beside its bench: its purpose, its listener, and the time that it may take.

- The bench is the study with its trainer, devices and folder. A case is one training of the study.
- The purpose is why configs of a case are probed: to find the best, to find any that runs, to record all, or to work
  out values that are `auto`: the rungs of a ladder, which is the parameter that decides memory, or a batch size.
- A session is a started trainer that serves several probes. The plain command starts the trainer for a single probe.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tuner import probe
from tuner.errors import StudyError
from tuner.records.case_record import OUT_OF_HOURS, STOPPED_EARLY
from tuner.running.events import Listener
from tuner.running.workbench import Workbench
from tuner.search.calibration import ladder_calibration
from tuner.search.choosing import Strategy
from tuner.search.strategies import Siblings, in_order, recovery, searching
from tuner.store.database import Database
from tuner.store.opening import check_study
from tuner.study import Case, Config, ProbeSpec, Space, StudySpec
from tuner.trainers.base import Trainer

StrategyOf = Callable[[Space, StudySpec, int, Siblings], Strategy]
"""Makes what chooses configs from the space, the case's settings, the number of trials so far, and similar cases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Purpose:
    """How configs are chosen for a case, and when its work is over."""

    strategy: StrategyOf
    has_target: bool = True
    """Whether the work ends at a number of finished trials; otherwise it ends when the strategy has nothing left."""
    configs_compete: bool = True
    """Whether configs compete: a clear loser ends early, and the plain command measures the best of sessions again."""
    stores_ending: bool = True
    """Whether the database keeps why the work ended. It does not where other work on the case follows."""
    ineligible: Callable[[probe.ProbeResult], str | None] = lambda _: None
    """Returns why a config that ran for this purpose may not be the best; None where it may."""
    next_answer: Callable[[probe.ProbeResult], probe.Answer] | None = None
    """Returns whether a probe goes on; None where the precision of the study's objectives decides."""
    limits: Callable[[ProbeSpec], ProbeSpec] = lambda limits: limits
    """Returns the limits of a probe, from those of the study."""
    trainer: Trainer | None = None
    """The trainer that plans the probes by its plain command; None for the study's."""


SEARCH = Purpose(strategy=searching)
"""Find the best config."""
RECOVER = Purpose(strategy=lambda space, *_: recovery(space), has_target=False, stores_ending=False)
"""Find one config that runs, for a case in which none has run yet."""
CALIBRATE = Purpose(
    strategy=lambda space, *_: ladder_calibration(space), has_target=False, configs_compete=False, stores_ending=False
)
"""Probe small rungs, from which the rungs of an `auto` ladder are made."""


def purpose_of_recording(configs: Sequence[Config], *, has_target: bool = True) -> Purpose:
    """Return the purpose of measuring all configs of a list fully, in this order; for `has_target` see `Purpose`."""
    return Purpose(
        strategy=lambda space, *_: in_order(configs, space.ladder), has_target=has_target, configs_compete=False
    )


Probe = Callable[[probe.ProbePlan, probe.Stop], probe.ProbeResult]
"""Probes once; the second argument may end the probe early."""


class Pulse(NamedTuple):
    """How often a listener hears of the running probe."""

    every_s: float
    """Seconds between two events."""
    clock: probe.Clock
    utilisation: Callable[[], Sequence[float | None]] = tuple
    """Returns how busy each device was since the last call, in percent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the work on a study needs: its bench, its database, a prober, a listener, and what may stop it."""

    bench: Workbench
    database: Database
    probe: Probe
    interrupted: Callable[[], bool]
    """Returns whether the user wants to stop, or the time is over."""
    is_late: Callable[[], bool] = lambda: False
    """Returns whether the time is over: an interrupted probe that has measured long enough then gives a rough value."""
    listener: Listener = lambda _: None
    pulse: Pulse | None = None
    """How often the listener hears of the running probe; None where it does not."""
    has_time: Callable[[float | None], bool] = lambda _: True
    """Returns whether a probe of so many expected seconds may begin; None stands for an unknown length."""
    left_s: Callable[[], float] = lambda: math.inf
    """Returns the seconds that are left; infinite where the time has no limit."""
    purpose: Purpose = SEARCH
    trials: int | None = None
    """The number of finished trials per case; None for the number in the study file."""
    open_session: Callable[[], str | None] = lambda: None
    """Returns the key of the open session; None where no session is open."""
    wait: Callable[[], None] | None = None
    """Waits a moment for the probes of other workers; None where the work ends while they still probe."""
    simulated: bool = False
    """Whether probes take no time, because a recorded table answers them."""
    recording: Mapping[str, Any] | None = None
    """For a recording, the JSON of its `Circumstances`, which the case's study keeps; None for other work."""

    @property
    def early_end(self) -> str:
        """Why a search stops before its end, and how it goes on, as a sentence."""
        return OUT_OF_HOURS if self.is_late() else STOPPED_EARLY

    def target(self, spec: StudySpec) -> int | None:
        """Return the number of finished trials that ends the work on a case; None where no number does."""
        return (self.trials or spec.search.trials) if self.purpose.has_target else None


def check_case(job: Job, case: Case) -> None:
    """Check before any probe that a case can be searched, and that its study can be resumed.

    Raises StudyError with the case's name if no strategy can be made for it, and StoreError if the case's study in the
    database was begun with other settings. The strategy is dropped: the search makes another when it comes to the case,
    because it then learns from the cases before.
    """
    check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    space, spec = job.bench.space_for(case), job.bench.spec_for(case)
    try:
        job.purpose.strategy(space, spec, 0, tuple)  # no trials so far, and `tuple` returns no similar cases
    except StudyError as error:
        raise StudyError(f"case {case.name}: {error}") from error


class Shortage(NamedTuple):
    """Why a budget is over before its time is: the next probe would take longer than what is left."""

    probe_s: float
    """The seconds that the next probe needed."""
    left_s: float
    """The seconds that were left."""


class Budget:
    """The time that probes may take: `hours` from now on, or no limit where `hours` is None."""

    def __init__(self, clock: probe.Clock, hours: float | None) -> None:
        self._clock = clock
        self.total_s = math.inf if hours is None else hours * probe.HOUR_S
        """The seconds of the whole budget."""
        self._end_s = clock.now() + self.total_s
        self._has_begun_probe = False
        self.shortage: Shortage | None = None
        """How long a probe was that did not fit into the time left; None while each has fitted."""

    def left_s(self) -> float:
        """Return the seconds that are left; infinite where there is no limit."""
        return self._end_s - self._clock.now()

    def is_over(self) -> bool:
        """Return whether the time is over, or a probe was refused because it needed more than the time left."""
        return self.shortage is not None or self.left_s() <= 0.0

    def has_time_for(self, probe_s: float | None) -> bool:
        """Return whether a probe of so many seconds may begin; one of unknown length (None) may.

        If it does not fit into the time that is left, the budget is over. But the first probe may take the whole
        budget, although the preparation has taken some of it. Otherwise a study that is resumed with the same budget
        would never go on.
        """
        left_s = self.left_s()  # once, because time goes on
        enough_s = left_s if self._has_begun_probe else self.total_s
        if probe_s is not None and probe_s > enough_s:
            self.shortage = Shortage(probe_s=probe_s, left_s=left_s)
        return self.shortage is None

    def begin(self) -> None:
        """Note that the first probe begins: from now on, a probe may take only the time that is left."""
        self._has_begun_probe = True


def within_budget(job: Job, budget: Budget) -> Job:
    """Return the job that ends when its budget is over, and that begins no probe for which the budget is too short.

    A simulated probe takes no time, so its length is ignored.
    """

    def probe_within_budget(plan: probe.ProbePlan, stop: probe.Stop) -> probe.ProbeResult:
        """Return the result of a probe: its failure is `OUT_OF_TIME` where the end of the budget has stopped it."""
        budget.begin()
        result = job.probe(plan, stop)
        is_cut = result.failure == probe.STOPPED and budget.is_over() and not job.interrupted()
        return replace(result, failure=probe.OUT_OF_TIME) if is_cut else result

    limited = replace(job, interrupted=lambda: job.interrupted() or budget.is_over(), is_late=budget.is_over)
    if job.simulated:
        return limited
    return replace(limited, probe=probe_within_budget, has_time=budget.has_time_for, left_s=budget.left_s)


@contextmanager
def open_job(
    bench: Workbench,
    url: str,
    prober: probe.Prober,
    *,
    listener: Listener = lambda _: None,
    interrupted: Callable[[], bool] = lambda: False,
    every_s: float | None = None,
) -> Iterator[Job]:
    """Yield a job that works on the database at `url`; close prober and database afterwards.

    `every_s`: how many seconds apart the listener hears of a running probe; None where it does not.
    Raises StoreError if the database cannot be used.
    """
    pulse = None
    if every_s is not None:
        pulse = Pulse(every_s=every_s, clock=probe.MonotonicClock(), utilisation=prober.utilisation)
    with closing(prober), closing(Database(url)) as database:
        yield Job(
            bench=bench,
            database=database,
            probe=prober,
            interrupted=interrupted,
            listener=listener,
            pulse=pulse,
            open_session=lambda: prober.open_session,
        )
