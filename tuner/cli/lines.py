"""The line of text for each event of a running study. Pure."""

from tuner.cli.loaded import fitted, ladder, to_be_fitted, to_be_made
from tuner.export.words import in_words, with_error
from tuner.running.events import (
    BatchFitStarted,
    BatchFitted,
    CalibrationStarted,
    CaseEnded,
    CaseStarted,
    Event,
    LadderFixed,
    ProbeEnded,
)
from tuner.units import duration

Line = tuple[str, str]
"""A text, and one of rich's styles."""


def line(event: Event) -> Line | None:
    """Return the line for an event; None for an event without a line."""
    text = _text(event)
    return None if text is None else (text, "bold" if isinstance(event, CaseStarted | CaseEnded) else "")


def _text(event: Event) -> str | None:
    match event:
        case ProbeEnded():
            text = f"  {_trial(event)}"
        case CaseStarted():
            text = f"case {event.case}: {_begun(event)}"
        case CalibrationStarted():
            text = f"case {event.case}: {to_be_made(event.rungs)}"
        case LadderFixed():
            text = f"case {ladder(event.case, event.rungs)}"
        case BatchFitStarted():
            text = f"case {event.case}: {to_be_fitted(event.parameter)}"
        case BatchFitted():
            text = f"case {fitted(event.case, event.parameter, event.why)}"
        case CaseEnded():
            why = f": {event.why}" if event.why else ""
            text = f"case {event.case}: {event.ending}, {event.probed} trial(s) this time{why}"
        case _:
            text = None
    return text


def _begun(event: CaseStarted) -> str:
    saved = f", {event.saved} of them saved only now" if event.saved else ""
    retried = f", {event.to_repeat} interrupted trial(s) will be repeated" if event.to_repeat else ""
    of_target = "" if event.target is None or event.finished > event.target else f" of {event.target}"
    return f"{event.finished}{of_target} trials done{saved}{retried}"


def _trial(event: ProbeEnded) -> str:
    best = ", best so far" if event.leads else ""
    number = f" {numbers(event.values, event.error, event.samples_per_s)}" if event.values else ""
    why = "".join(f"{';' if event.values or place else ':'} {note}" for place, note in enumerate(event.notes))
    took = duration(event.seconds) + (", by the plain command" if event.confirms else "")
    took += f", from {event.origin}" if event.origin else ""
    place = f" (trial {event.finished} of {event.target})" if event.counts else ""
    told = f"{in_words(event.config, event.total_batch)}: {event.status}{number}{best}{why}"
    return f"#{event.trial}{place} {told} ({took}{_left(event)})"


def _left(event: ProbeEnded) -> str:
    """Return how many trials are left and how long they may take; the search may end before."""
    if event.target is None or not event.left_s:
        return ""
    return f"; up to {event.target - event.finished} more, about {duration(event.left_s)}"


def numbers(objectives: tuple[float, ...], error: float | None, samples_per_s: float | None) -> str:
    """Return the objectives as text, the first with its `error`; add samples/s where no objective is samples/s."""
    shown = [with_error(objectives[0], error), *(f"{one:.1f}" for one in objectives[1:])]
    if samples_per_s is not None and samples_per_s not in objectives:
        shown.append(f"{samples_per_s:.0f} samples/s")
    return ", ".join(shown)
