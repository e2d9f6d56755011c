"""Where the events of a study are shown: as lines on a console, live on a terminal, or as lines of JSON."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from tuner.cli.hints import fitted, ladder, to_be_fitted, to_be_made
from tuner.export import SPEEDS, figure, in_words, with_error
from tuner.probe import LOADED, WITHOUT_PAUSE, duration
from tuner.records.trial import OK, PRUNED
from tuner.running import events

Line = tuple[str, str]
"""A text, and one of rich's styles."""


def line(event: events.Event) -> Line | None:
    """Return the line for an event; None for an event without a line."""
    style = ""
    match event:
        case events.ProbeEnded():
            usual = {OK: "green", PRUNED: "yellow"}
            text, style = f"  {_trial(event)}", "bold green" if event.leads else usual.get(event.status, "red")
        case events.CaseStarted():
            text, style = f"case {event.case}: {_begun(event)}", "bold"
        case events.CalibrationStarted():
            text = f"case {event.case}: {to_be_made(event.rungs)}"
        case events.LadderFixed():
            text = f"case {ladder(event.case, event.rungs)}"
        case events.BatchFitStarted():
            text = f"case {event.case}: {to_be_fitted(event.parameter)}"
        case events.BatchFitted():
            text = f"case {fitted(event.case, event.parameter, event.why)}"
        case events.CaseEnded():
            why = f": {event.why}" if event.why else ""
            again = f", {event.confirmed} of them to confirm" if event.confirmed else ""
            text, style = f"case {event.case}: {event.ending}, {event.probed} trial(s) this time{again}{why}", "bold"
        case _:
            return None
    return text, style


def _begun(event: events.CaseStarted) -> str:
    """Return how far a case had come when the work on it began."""
    saved = f", {event.saved} of them saved only now" if event.saved else ""
    retried = f", {event.to_repeat} interrupted trial(s) will be repeated" if event.to_repeat else ""
    of_target = "" if event.target is None or event.finished > event.target else f" of {event.target}"
    since = f"; since the newest: {', '.join(event.changed)}" if event.changed else ""
    verify = "; speeds may differ, and `tuner verify` measures the best again" if event.changed else ""
    return f"{event.finished}{of_target} trials done{saved}{retried}{since}{verify}"


def _trial(event: events.ProbeEnded) -> str:
    """Return the line of a probe that has ended."""
    number = f" {numbers(event.values, event.error, event.samples_per_s)}" if event.values else ""
    why = "".join(f"{';' if event.values or place else ':'} {note}" for place, note in enumerate(event.notes))
    took = duration(event.seconds) + (", measured again without a session" if event.confirms else "")
    took += f", from {event.origin}" if event.origin else ""
    place = f" (trial {event.finished} of {event.target})" if event.counts else ""
    outcome = f"{in_words(event.config, event.total_batch)}: {event.status}{number}{_rank(event)}{why}"
    return f"#{event.trial}{place} {outcome} ({took}{_left(event)})"


def _rank(event: events.ProbeEnded) -> str:
    """Return that the config is the best so far, or its mean where it was the best and has been measured again."""
    best = event.best
    if best and best.trial == event.trial and best.readings > 1:
        return f", confirmed: mean {with_error(best.value, best.error)} of {best.readings}"
    return ", best so far" if event.leads else ""


def _left(event: events.ProbeEnded) -> str:
    """Return after how long the search probably ends."""
    return f"; about {duration(event.left_s)} left" if event.left_s else ""


def numbers(objectives: tuple[float, ...], error: float | None, samples_per_s: float | None) -> str:
    """Return the objectives as text, the first with its `error`; add samples/s where no objective is samples/s."""
    shown = [with_error(objectives[0], error), *(f"{value:.1f}" for value in objectives[1:])]
    if samples_per_s is not None and samples_per_s not in objectives:
        shown.append(f"{samples_per_s:.0f} samples/s")
    return ", ".join(shown)


class Bars:
    """Takes events in, and shows a bar for each case that runs and for each probe."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(7),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(overflow="fold")),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._rows: dict[tuple[str, str], TaskID] = {}
        self._probed: dict[str, events.ProbeStarted] = {}
        self._best: dict[str, str] = {}
        self._ended: set[str] = set()
        self._devices: dict[str, Sequence[str]] = {}
        self._objective = ""

    def take(self, event: events.Event, worker: str = "") -> None:
        """Take an event in; `worker` names the worker that the event comes from."""
        match event:
            case events.StudyStarted():
                self._devices[worker], self._objective = event.devices, event.objectives[0]
                if len(event.cases) > 1:
                    self._show("study", "cases", completed=len(self._ended), total=len(event.cases), text="ended")
            case events.CaseStarted():
                self._show_case(event)
            case events.ProbeStarted():
                self._probed[worker] = event
                name = " ".join(filter(None, [worker, f"#{event.trial}"]))
                self._show("probe", worker, description=f"  {name}", total=None, text=in_words(event.config))
                self._tell_left(event, 0.0)
            case events.ProbeRunning() if started := self._probed.get(worker):
                usual = event.usual_iterations if event.phase == "measuring" else None
                texts = [_phase(event), *_busy(event, self._devices.get(worker, ())), in_words(started.config)]
                self._show("probe", worker, completed=event.iteration or 0, total=usual, text="; ".join(texts))
                self._tell_left(started, event.seconds)
            case events.ProbeEnded():
                self.forget(worker)
                self._show_case(event)
            case events.CaseEnded() if all(started.case != event.case for started in self._probed.values()):
                self._ended.add(event.case)
                self._hide("case", event.case)
                if ("study", "cases") in self._rows:
                    self._show("study", "cases", completed=len(self._ended))

    def forget(self, worker: str) -> None:
        """Forget what a worker probes: the worker has ended."""
        self._probed.pop(worker, None)
        self._hide("probe", worker)

    def _show_case(self, event: events.CaseStarted | events.ProbeEnded) -> None:
        """Show a case's best so far, and how many of its trials are done."""
        self._best[event.case] = number = self._best_of(event)
        self._show(
            "case", event.case, description=event.case, completed=event.finished, total=event.target, text=number
        )

    def _best_of(self, event: events.CaseStarted | events.ProbeEnded) -> str:
        """Return a case's best so far; of a speed its gain over the default, as the end tells it."""
        if (best := event.best) is None:
            return "no best yet"
        if (unit := SPEEDS.get(self._objective)) is None:
            return f"best {self._objective} {with_error(best.value, best.error)} (#{best.trial})"
        times = "" if best.times is None else f" ({best.times:.3g} times)"
        return f"best {figure(best.value)} {unit}{times}"

    def _tell_left(self, probe: events.ProbeStarted, spent_s: float) -> None:
        left = "" if probe.left_s is None else f"about {duration(max(probe.left_s - spent_s, 1.0))} left, "
        self._show("case", probe.case, text=f"{left}{self._best.get(probe.case, '')}")

    def _show(self, kind: str, name: str, **fields: Any) -> None:
        row = self._rows.get((kind, name))
        if row is None:
            self._rows[kind, name] = self.progress.add_task(**{"description": name, "text": "", **fields})
        else:
            self.progress.update(row, **fields)

    def _hide(self, kind: str, name: str) -> None:
        if (row := self._rows.pop((kind, name), None)) is not None:
            self.progress.remove_task(row)


def _phase(event: events.ProbeRunning) -> str:
    """Return what a running probe does, and what it has measured so far."""
    if event.phase != "measuring":
        return f"{event.phase}, {duration(event.seconds)}"
    known = "" if event.value is None else f", {numbers((event.value,), event.error, event.samples_per_s)} so far"
    return f"{duration(event.seconds)}{known}"


def _busy(event: events.ProbeRunning, devices: Sequence[str]) -> Iterator[str]:
    """Yield how busy each device was since the last event."""
    known = [(device, share) for device, share in zip(devices, event.utilisation, strict=False) if share is not None]
    if known:
        yield f"busy: {', '.join(f'{device} {share:.0f} %' for device, share in known)}"


class Screen:
    """Shows what happens in a study; by itself it shows nothing."""

    every_s: float | None = None
    """How many seconds apart a running probe is shown; None where it is not."""

    def show(self, event: events.Event, worker: str = "") -> None:
        """Show an event; `worker` names the worker of a team that the event comes from."""

    def say(self, text: str, style: str = "") -> None:
        """Show a line of text; `style` is one of rich's styles."""

    def forget(self, worker: str) -> None:
        """Show nothing more of a worker's probe: the worker has ended."""

    def close(self) -> None:
        """Show what is not shown yet, and remove what is live. Harmless to repeat."""


class LineScreen(Screen):
    """Prints a line for each event that has a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told: set[str] = set()

    def show(self, event: events.Event, worker: str = "") -> None:
        """Print the line of an event, behind the name of its worker."""
        if isinstance(event, events.ProbeEnded):
            event = replace(event, notes=tuple(self._news(event.notes)))
        if shown := line(event):
            text, style = shown
            self.say(f"{worker}: {text.strip()}" if worker else text, style)

    def _news(self, notes: Sequence[str]) -> Iterator[str]:
        """Yield notes, without those that were said of an earlier trial and are alike for most trials."""
        for note in notes:
            kind = next((phrase for phrase in (LOADED, WITHOUT_PAUSE) if phrase in note), "")
            if kind not in self._told:
                yield note
            self._told |= {kind} - {""}

    def say(self, text: str, style: str = "") -> None:
        """Print a line."""
        self._console.print(text, style=style)


class JsonScreen(Screen):
    """Writes each event as a line of JSON. Lines of text are for people, who read the standard error."""

    every_s = 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, event: events.Event, worker: str = "") -> None:
        """Write an event."""
        self._stream.write(f"{events.to_json(event, worker)}\n")
        self._stream.flush()


class LiveScreen(Screen):
    """Prints lines, and keeps bars below them.

    A thread of its own prints, so that neither rendering nor a terminal that takes no text delays a probe.
    """

    every_s = 0.5
    close_s = 5.0
    """The seconds that the end of a command waits for a terminal that takes no text, for example after Ctrl-S."""

    def __init__(self, console: Console) -> None:
        self._lines = LineScreen(console)
        self._bars = Bars(console)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)
        self._thread.start()

    def show(self, event: events.Event, worker: str = "") -> None:
        """Print the line of an event, and take the event into the live view."""
        self._tasks.put(partial(self._bars.take, event, worker))
        self._tasks.put(partial(self._lines.show, event, worker))

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the live view."""
        self._tasks.put(partial(self._lines.say, text, style))

    def forget(self, worker: str) -> None:
        """Remove a worker's probe from the live view."""
        self._tasks.put(partial(self._bars.forget, worker))

    def close(self) -> None:
        """Print what is left and remove the live view."""
        self._tasks.put(None)
        self._thread.join(self.close_s)

    def _run(self) -> None:
        with suppress(OSError), self._bars.progress:  # OSError: the terminal is gone
            for task in iter(self._tasks.get, None):
                task()
                self._bars.progress.refresh()


def open_screen(console: Console) -> Screen:
    """Return a live screen on a terminal, and plain lines on any other output."""
    lively = console.is_terminal and not (console.is_dumb_terminal or console.quiet)
    return LiveScreen(console) if lively else LineScreen(console)
