"""The events of a running study, and how a case ends: each event becomes text, a live view, or a line of JSON.

A ladder is the parameter that decides memory; its values are its rungs. If a session, a started trainer that serves
several probes, measured the best config, the trainer's plain command measures it again: that trial confirms it.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic_core import to_jsonable_python

from tuner.errors import option
from tuner.export import EXHAUSTED, CaseView, figure, gain, in_words, with_error
from tuner.probe import HOUR_S, LOADED, WITHOUT_PAUSE, Blame, Failure, FailureKind, ProbeResult, duration, number_of
from tuner.records.case_record import CaseRecord
from tuner.records.schema import adapter
from tuner.records.trial import OK, PRUNED, TrialRecord, error_with_disturbance, possible_loss
from tuner.search.standing import BROKEN_AFTER
from tuner.study import Case, Value

if TYPE_CHECKING:
    from tuner.running.job import Budget
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
        """Return the best config of a case so far, by its ended trials; None where none may be the best.

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


def auto_to_come(parameter: str) -> str:
    """Return in words how the values of a parameter that is `auto` are found."""
    return f"{parameter} is auto: it follows from the first probes"


def auto_text(parameter: str, values: Iterable[int]) -> str:
    """Return a text with the rungs of a ladder that was `auto`."""
    return f"{parameter} is auto: {' '.join(map(str, values))}, fixed in this study"


def out_of_time(budget: "Budget") -> str:
    """Return a line that says that the hours are over, or that the rest is too short for a probe."""
    limit, name = duration(budget.total_s), option("hours")
    if budget.shortage is None:
        return f"the {limit} of {name} are over; rerun to resume"
    probe, left = map(duration, budget.shortage)
    if (probe_s := budget.shortage.probe_s) > budget.total_s:
        hours = math.ceil(100 * 1.1 * probe_s / HOUR_S) / 100  # a tenth more, because probes differ
        return f"the next probe takes about {probe}, more than the {limit} of {name}; rerun with {name} {hours:g}"
    return f"the next probe takes about {probe}, but only {left} of {limit} are left; rerun to resume"


class StyledLine(NamedTuple):
    """A line of text, and one of rich's styles."""

    text: str
    style: str


def line(event: Event) -> StyledLine | None:
    """Return the line for an event; None for an event without a line."""
    style = ""  # the terminal's own
    match event:
        case ProbeEnded():
            text = f"  {_trial_line(event)}"
            style = "bold green" if event.leads else {OK: "green", PRUNED: "yellow"}.get(event.status, "red")
        case CaseStarted():
            text, style = f"case {event.case}: {_progress_at_start(event)}", "bold"
        case AutoStarted():
            text = f"case {event.case}: {auto_to_come(event.parameter)}"
        case AutoFixed():
            text = f"case {event.case}: {auto_text(event.parameter, event.values)}"
        case CaseEnded():
            why = f": {event.why}" if event.why else ""
            confirming = f", {event.confirmed} to confirm" if event.confirmed else ""
            trials = number_of(event.probed, "trial")
            text, style = f"case {event.case}: {event.ending}; {trials} now{confirming}{why}", "bold"
        case _:
            return None
    return StyledLine(text, style)


def _progress_at_start(event: CaseStarted) -> str:
    """Return in words how many trials a case had when the work on it began, and what to know of these trials.

    The target is left out if the case has passed it: an earlier call may have had a larger one.
    """
    has_target = event.target is not None and event.finished <= event.target
    of_target = f" of {event.target}" if has_target else ""
    saved = f", {event.saved} of them saved only now" if event.saved else ""
    retried = f", {number_of(event.to_repeat, 'interrupted trial')} will be repeated" if event.to_repeat else ""
    since = f"; since the newest: {', '.join(event.changed)}" if event.changed else ""
    verify = "; speeds may differ, and `tuner verify` measures the best again" if event.changed else ""
    return f"{event.finished}{of_target} trials done{saved}{retried}{since}{verify}"


def _trial_line(event: ProbeEnded) -> str:
    """Return the line of a probe that has ended, such as `#3 num_envs=64: ok 71.2 ± 0.4, best so far (24.1 s)`."""
    turn = f" (trial {event.finished} of {event.target})" if event.counts else ""
    values = f" {objectives_text(event.values, event.error, event.samples_per_s)}" if event.values else ""
    before_notes = ";" if event.values else ":"  # without values, the notes say why
    notes = f"{before_notes} {'; '.join(event.notes)}" if event.notes else ""
    outcome = f"{in_words(event.config)}: {event.status}{values}{_best_so_far(event)}{notes}"
    why = ", to confirm" if event.confirms else ""
    origin = f", from {event.origin}" if event.origin else ""
    left = f"; {time_left(event.left_s)}" if event.left_s else ""
    return f"#{event.trial}{turn} {outcome} ({duration(event.seconds)}{why}{origin}{left})"


def _best_so_far(event: ProbeEnded) -> str:
    """Return a clause if the trial's config is the best so far, with its mean of several trials; otherwise ""."""
    best = event.best
    if best and best.trial == event.trial and best.readings > 1:
        how = "confirmed by the plain command" if event.confirms else "measured again"
        return f", {how}: mean {with_error(best.value, best.error)} of {best.readings}"
    if not event.leads:
        return ""
    return ", confirmed by the plain command" if event.confirms else ", best so far"


def time_left(seconds: float) -> str:
    """Return in words about how many seconds, at least one, are left until the search or its time limit ends."""
    return f"about {f'{max(seconds, 1.0):.0f} s' if seconds < 59.5 else duration(seconds)} left"


def objectives_text(objectives: tuple[float, ...], error: float | None, samples_per_s: float | None) -> str:
    """Return a probe's objectives as text, the first with its standard `error`, then samples/s unless one is that."""
    shown = [with_error(objectives[0], error), *(with_error(value, None) for value in objectives[1:])]
    if samples_per_s is not None and samples_per_s not in objectives:
        shown.append(f"{figure(samples_per_s)} samples/s")
    return ", ".join(shown)


class FixedValues:
    """Remembers which parameters have a single value in each case's search: a line about a config leaves them out."""

    def __init__(self) -> None:
        self._fixed: dict[str, tuple[str, ...]] = {}
        """A case → the parameters with a single value."""

    def note(self, event: CaseStarted) -> None:
        """Remember which parameters of a case are fixed."""
        self._fixed[event.case] = event.fixed

    def without_fixed(self, case: str, config: dict[str, Value]) -> dict[str, Value]:
        """Return a config of a case without its fixed values; the whole config where all values are fixed."""
        fixed = self._fixed.get(case, ())
        return {name: value for name, value in config.items() if name not in fixed} or config


class EventLines:
    """Makes the line of each event, without what earlier lines have said: fixed values, and common notes."""

    def __init__(self) -> None:
        self._fixed_values = FixedValues()
        self._common_notes: set[str] = set()
        """The phrases by which notes that most trials have are known, as far as a line has shown such a note."""

    def line_of(self, event: Event) -> StyledLine | None:
        """Return the line for an event; None for an event without a line."""
        if isinstance(event, CaseStarted):
            self._fixed_values.note(event)
        if isinstance(event, ProbeEnded):
            config = self._fixed_values.without_fixed(event.case, event.config)
            event = replace(event, config=config, notes=tuple(self._new_notes(event.notes)))
        return line(event)

    def _new_notes(self, notes: Sequence[str]) -> Iterator[str]:
        """Yield those notes of a trial that its line shows. Two notes that most trials have appear in full only once.

        Later lines shorten the note on what other programs used, and leave out the note on the cost of a pause.
        """
        for note in notes:
            phrase = next((phrase for phrase in (LOADED, WITHOUT_PAUSE) if phrase in note), None)
            if phrase is None or phrase not in self._common_notes:
                yield note
            elif phrase == LOADED:
                yield note.partition(" of the processors")[0]
            if phrase:
                self._common_notes.add(phrase)
