"""The lines that tell the events of a study: to a terminal, and to `say` of `tuner.optimize`.

A ladder is the parameter that decides memory; its values are its rungs. The best config, if a session measured it, is
confirmed in the end: the trainer's plain command measures it again.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tuner.errors import option
from tuner.export import figure, in_words, with_error
from tuner.probe import HOUR_S, LOADED, WITHOUT_PAUSE, duration, number_of
from tuner.records.trial import OK, PRUNED
from tuner.running import events
from tuner.study import Value

if TYPE_CHECKING:
    from tuner.running.job import Budget


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


def line(event: events.Event) -> StyledLine | None:
    """Return the line for an event; None for an event without a line."""
    style = ""  # the terminal's own
    match event:
        case events.ProbeEnded():
            text = f"  {_trial_line(event)}"
            style = "bold green" if event.leads else {OK: "green", PRUNED: "yellow"}.get(event.status, "red")
        case events.CaseStarted():
            text, style = f"case {event.case}: {_progress_at_start(event)}", "bold"
        case events.AutoStarted():
            text = f"case {event.case}: {auto_to_come(event.parameter)}"
        case events.AutoFixed():
            text = f"case {event.case}: {auto_text(event.parameter, event.values)}"
        case events.CaseEnded():
            why = f": {event.why}" if event.why else ""
            confirming = f", {event.confirmed} to confirm" if event.confirmed else ""
            trials = number_of(event.probed, "trial")
            text, style = f"case {event.case}: {event.ending}; {trials} now{confirming}{why}", "bold"
        case _:
            return None
    return StyledLine(text, style)


def _progress_at_start(event: events.CaseStarted) -> str:
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


def _trial_line(event: events.ProbeEnded) -> str:
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


def _best_so_far(event: events.ProbeEnded) -> str:
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

    def note(self, event: events.CaseStarted) -> None:
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

    def line_of(self, event: events.Event) -> StyledLine | None:
        """Return the line for an event; None for an event without a line."""
        if isinstance(event, events.CaseStarted):
            self._fixed_values.note(event)
        if isinstance(event, events.ProbeEnded):
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
