"""The events of a running study, and how a case ends: each event becomes text, a live view, or a line of JSON.

A ladder is the parameter that decides memory; its values are its rungs. If a session, a started trainer that serves
several probes, measured the best config, the trainer's plain command measures it again: that trial confirms it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import to_jsonable_python

from tuner.export import EXHAUSTED, CaseView, gain
from tuner.probe import Blame, Failure, FailureKind, ProbeResult
from tuner.records.case_record import CaseRecord
from tuner.records.schema import adapter
from tuner.records.trial import TrialRecord, error_with_disturbance, possible_loss
from tuner.search.standing import BROKEN_AFTER
from tuner.study import Case, Value

if TYPE_CHECKING:
    from tuner.search.verdict import Verdict
    from tuner.store.case_study import OwnTrial


Phase = Literal["starting", "warm-up", "measuring"]
"""A running probe starts its trainer, makes iterations that do not count, or is in its window."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What a study tells while it runs; its fields are those of the JSON lines of `--json`."""


@dataclass(frozen=True, kw_only=True)
class StudyStarted(Event):
    """A process begins to work on a study."""

    study: str
    trainer: str
    cases: tuple[str, ...]
    devices: tuple[str, ...]
    objectives: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BestSoFar:
    """The config that is the best of its case so far. The value is a mean if the config was measured several times."""

    value: float
    error: float | None
    """The standard error of the value."""
    trial: int
    """The newest trial of the config."""
    readings: int = 1
    """The trials that `value` is the mean of."""
    times: float | None = None
    """How many times as fast as the default or own command, as the end tells it; None where unknown or doubtful."""

    @classmethod
    def of(cls, case: CaseRecord, trials: Sequence[TrialRecord]) -> "BestSoFar | None":
        """Return the best config of a case so far, as the end of the study tells it; None where none may be the best.

        The error is wider than the measured one where another program may have disturbed the only measurement. `times`
        is None where `CaseView.doubts` names reasons why measurements may be wrong or cannot be compared.
        """
        view = CaseView(name=case.case, record=case, trials=trials)
        best, gained = view.best, gain(view)
        return best and cls(
            value=best.value,
            error=best.widened_error,
            trial=best.trial,
            readings=best.readings,
            times=None if gained is None or view.doubts else gained.times,
        )


@dataclass(frozen=True, kw_only=True)
class CaseStarted(Event):
    """The work on a case begins, or goes on."""

    case: str
    finished: int
    target: int | None
    """The number of finished trials that ends the work; None where no number does."""
    best: BestSoFar | None
    saved: int
    """The trials of an earlier run whose results are stored only now."""
    to_repeat: int
    """The interrupted trials of an earlier run that will be repeated."""
    changed: tuple[str, ...] = ()
    """What has changed since the newest measurement beside configs, such as the driver."""
    fixed: tuple[str, ...] = ()
    """The parameters that have a single value in this search."""


@dataclass(frozen=True, kw_only=True)
class AutoStarted(Event):
    """Small probes begin, from which the values of a parameter that is `auto` follow."""

    case: str
    parameter: str


@dataclass(frozen=True, kw_only=True)
class AutoFixed(Event):
    """The rungs of a ladder that was `auto`."""

    case: str
    parameter: str
    values: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ProbeStarted(Event):
    """A probe begins."""

    case: str
    trial: int
    config: dict[str, Value]
    left: float | None
    """The trials after which the search probably ends, this one included; None where nothing tells."""
    left_s: float | None
    """The seconds of these trials, at most those of `--hours`; None where they are unknown."""


@dataclass(frozen=True, kw_only=True)
class ProbeRunning(Event):
    """A probe still runs."""

    case: str
    trial: int
    phase: Phase
    seconds: float
    """The seconds since the probe began."""
    iteration: int | None
    """The completed iterations, in the window if the phase is `measuring`; None before the first."""
    usual_iterations: int
    """The iterations of a usual window. A probe may need more."""
    value: float | None
    """The first objective over the window so far."""
    error: float | None
    samples_per_s: float | None
    utilisation: tuple[float | None, ...]
    """How busy each device was since the last event, in percent and in the order of `devices`; empty if unknown."""


@dataclass(frozen=True, kw_only=True)
class ProbeEnded(Event):
    """The result of a probe is stored."""

    case: str
    trial: int
    config: dict[str, Value]
    status: str
    """`ok`, `pruned`, `interrupted`, `no_reading`, or the kind of failure."""
    values: tuple[float, ...]
    """The objectives, in their order."""
    error: float | None
    """The standard error of the first objective, as the end tells it: other programs widen it."""
    samples_per_s: float | None
    leads: bool
    """Whether the config is the best so far, by the rule of the end; never with several objectives."""
    notes: tuple[str, ...]
    """Why there is no value, why the config cannot be the best, and what to know of the numbers."""
    confirms: bool
    """Whether the trial only measures the best config of a session again, by the plain command."""
    origin: str | None
    """The similar case whose best config this is."""
    seconds: float
    best: BestSoFar | None
    finished: int
    target: int | None
    counts: bool
    """Whether the trial counts towards `target`."""
    left_s: float | None
    """The seconds after which the search probably ends, at most those of `--hours`; None where unknown."""

    @classmethod
    def of(
        cls,
        case: Case,
        trial: "OwnTrial",
        result: ProbeResult,
        verdict: "Verdict",
        *,
        leads: bool,
        best: BestSoFar | None,
        finished: int,
        target: int | None,
        left_s: float | None,
    ) -> "ProbeEnded":
        """Return the event of a trial that is stored; its other arguments are fields of the event."""
        reason = result.failure.detail if result.failure else result.stopped
        not_eligible = f"not eligible as best, {verdict.ineligible}" if verdict.ineligible else None
        not_measured = f"no {', '.join(verdict.unread)}" if verdict.unread else None
        return cls(
            case=case.name,
            trial=trial.number,
            config=dict(trial.config),
            status=verdict.status,
            values=tuple(verdict.values or ()),
            error=error_with_disturbance(verdict.values[0], verdict.error, possible_loss(result.devices))
            if verdict.values
            else None,
            samples_per_s=result.samples_per_s,
            notes=tuple(text for text in (reason, not_eligible, not_measured, *result.notes) if text),
            confirms=trial.confirms,
            origin=trial.choice.origin,
            seconds=result.total_s,
            leads=leads,
            best=best,
            finished=finished,
            target=target,
            # neither another measurement of the best, nor a failure that will be tried again
            counts=target is not None and not (trial.confirms or verdict.retry),
            left_s=left_s,
        )


@dataclass(frozen=True, kw_only=True)
class CaseEnded(Event):
    """The work on a case has ended."""

    case: str
    ending: str
    probed: int
    """The trials of this command."""
    why: str | None
    """Why no config is worth a probe any more, or which objective was not measured."""
    confirmed: int = 0
    """The trials of this command that only confirmed a config by the plain command."""


@dataclass(frozen=True, kw_only=True)
class StudyEnded(Event):
    """The command has ended its work on the study."""

    study: str
    cases: tuple[dict[str, Any], ...]
    """Where each case stands, as `tuner status --json` writes it."""
    command: str | None = None
    """The command line to copy, in shell quoting; None where a typed command stays as it is, and for other studies."""


Listener = Callable[[Event], None]
"""Gets every event of a running study, for example to show it."""


def event_name(kind: type[Event]) -> str:
    """Return the word for a kind of event in a line of JSON, such as `case_ended`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


KINDS: dict[str, type[Event]] = {event_name(kind): kind for kind in Event.__subclasses__()}
"""Word → kind of event."""


def to_json(event: Event, worker: str = "") -> str:
    """Return an event as a line of JSON; `worker` names the worker of a team that the event comes from."""
    source = {"event": event_name(type(event))} | ({"worker": worker} if worker else {})
    return json.dumps(source | to_jsonable_python(event, inf_nan_mode="null"))


def from_json(line: Mapping[str, Any]) -> Event | None:
    """Return the event of a parsed line; None for any other object. Raises ValueError if a field is wrong."""
    kind = KINDS.get(line.get("event", ""))
    return adapter(kind).validate_python(line) if kind else None


class Ending(StrEnum):
    """Why the work on a case ended."""

    ALREADY = "nothing left to do"
    TARGET = "the trial budget is used"
    EXHAUSTED = EXHAUSTED
    ELSEWHERE = "the rest waits for the probes of other workers"
    SETUP = "stopped: the set-up is at fault"
    CRASHES = "stopped: the trainer keeps crashing"
    HOST = "stopped: the machine keeps failing"
    UNREAD = "stopped: the objective is not measured"
    INTERRUPTED = "not finished"


def early_ending(result: ProbeResult, streak: int, *, has_run: bool) -> Ending | None:
    """Return why the work on a case stops early after a probe; None where it goes on.

    A failure in a session does not stop a case, because the plain command may still succeed.

    Args:
        result: the result of the newest probe.
        streak: how many of the newest trials failed in a row, none by its config's fault. A probe that runs and does
            not measure the objective counts as such a failure.
        has_run: whether any probe has measured the objective.
    """
    if result.failure is None:
        return Ending.UNREAD if streak >= BROKEN_AFTER else None
    if result.warm:
        return None
    match result.failure.kind.blame:
        case Blame.SETUP:
            return Ending.SETUP
        case Blame.UNKNOWN if streak >= (6 if has_run else BROKEN_AFTER):  # three configs, each tried twice
            return Ending.CRASHES
        case Blame.HOST if streak >= 4:  # two configs, each tried twice, or a busy card
            return Ending.UNREAD if result.failure.kind is FailureKind.NO_READING else Ending.HOST
        case _:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseOutcome:
    """How the work on one case ended."""

    case: Case
    ending: Ending
    probed: int
    """The trials of this command."""
    confirmed: int = 0
    """The trials of this command that only confirmed a config by the plain command; no budget counts them."""
    failure: Failure | None = None
    """What to repair, if the work stopped early."""
    why: str | None = None
    """Why no config is worth a probe any more, in the sampler's words; or which objective was not measured."""

    @property
    def stopped(self) -> bool:
        """Whether the work ended early: by a failure, an interruption, or an objective that is not measured."""
        return self.failure is not None or self.ending in {Ending.UNREAD, Ending.INTERRUPTED}

    @property
    def event(self) -> CaseEnded:
        """The event by which listeners hear of this outcome."""
        return CaseEnded(
            case=self.case.name, ending=self.ending, probed=self.probed, confirmed=self.confirmed, why=self.why
        )
