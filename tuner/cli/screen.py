"""Where the events of a study are shown: as lines on a console, live on a terminal, or as lines of JSON."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from tuner.cli.hints import fitted, ladder, to_be_fitted, to_be_made
from tuner.cli.options import wrapped
from tuner.export import in_words, with_error
from tuner.probe import LOADED, WITHOUT_PAUSE, duration
from tuner.running import events

Line = tuple[str, str]
"""A text, and one of rich's styles."""


def line(event: events.Event) -> Line | None:
    """Return the line for an event; None for an event without a line."""
    style = ""
    match event:
        case events.ProbeEnded():
            text = f"  {_trial(event)}"
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
            text, style = f"case {event.case}: {event.ending}, {event.probed} trial(s) this time{why}", "bold"
        case _:
            return None
    return text, style


def _begun(event: events.CaseStarted) -> str:
    saved = f", {event.saved} of them saved only now" if event.saved else ""
    retried = f", {event.to_repeat} interrupted trial(s) will be repeated" if event.to_repeat else ""
    of_target = "" if event.target is None or event.finished > event.target else f" of {event.target}"
    return f"{event.finished}{of_target} trials done{saved}{retried}"


def _trial(event: events.ProbeEnded) -> str:
    best = ", best so far" if event.leads else ""
    number = f" {numbers(event.values, event.error, event.samples_per_s)}" if event.values else ""
    why = "".join(f"{';' if event.values or place else ':'} {note}" for place, note in enumerate(event.notes))
    took = duration(event.seconds) + (", by the plain command" if event.confirms else "")
    took += f", from {event.origin}" if event.origin else ""
    place = f" (trial {event.finished} of {event.target})" if event.counts else ""
    told = f"{in_words(event.config, event.total_batch)}: {event.status}{number}{best}{why}"
    return f"#{event.trial}{place} {told} ({took}{_left(event)})"


def _left(event: events.ProbeEnded) -> str:
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


BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
"""The characters of a sparkline, from idle to busy; and those for an output that has only ASCII."""
POINTS = 60
"""The most points of a sparkline."""
LEAST_POINTS = 4
"""A narrower terminal shows no sparkline."""
_REST = 8
"""The width of a utilisation behind its sparkline."""


@dataclass(slots=True)
class _Case:
    """Where a case stands."""

    finished: int = 0
    target: int | None = None
    best: events.BestSoFar | None = None
    left_s: float | None = None
    """The seconds until the target, which a search may not need."""
    state: str = "waiting"

    @property
    def trials(self) -> str:
        return f"{self.finished}" + ("" if self.target is None else f" of {self.target}")


@dataclass(slots=True)
class _Probe:
    """What a worker probes now."""

    started: events.ProbeStarted
    devices: Sequence[str]
    now: events.ProbeRunning | None = None
    series: list[deque[float | None]] = field(default_factory=list)

    def take(self, event: events.ProbeRunning) -> None:
        self.now = event
        while len(self.series) < len(event.utilisation):
            self.series.append(deque(maxlen=POINTS))
        for series, value in zip(self.series, event.utilisation, strict=False):
            series.append(value)


class Board:
    """Takes events in, and shows where everything stands; a rich renderable.

    The height of the terminal bounds it: running probes come first, then the cases that are neither over nor begun.
    """

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}
        self._probes: dict[str, _Probe] = {}
        self._devices: dict[str, Sequence[str]] = {}
        self._objective = ""

    def take(self, event: events.Event, worker: str = "") -> None:
        """Take an event in; `worker` names the worker that the event comes from."""
        match event:
            case events.StudyStarted():
                self._devices[worker] = event.devices
                self._objective = event.objectives[0]
                for name in event.cases:
                    self._cases.setdefault(name, _Case())
            case events.CaseStarted():
                case = self._case(event.case)
                case.finished, case.target, case.best, case.state = event.finished, event.target, event.best, "running"
            case events.ProbeStarted():
                self._case(event.case).state = "running"
                self._probes[worker] = _Probe(event, self._devices.get(worker, ()))
            case events.ProbeRunning():
                if probe := self._probes.get(worker):
                    probe.take(event)
            case events.ProbeEnded():
                self._probes.pop(worker, None)
                case = self._case(event.case)
                case.finished, case.target, case.best = event.finished, event.target, event.best
                case.left_s = event.left_s
            case events.CaseEnded():
                busy = any(probe.started.case == event.case for probe in self._probes.values())
                self._case(event.case).state = "running" if busy else "ended"

    def forget(self, worker: str) -> None:
        """Forget what a worker probes: the worker has ended."""
        self._probes.pop(worker, None)

    def _case(self, name: str) -> _Case:
        return self._cases.setdefault(name, _Case())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the view, each cut off at the width of the terminal, between two words if possible."""
        width, bars, more = options.max_width, BARS, " …"
        if options.ascii_only:
            bars, more = PLAIN_BARS, ""
        for text, style in self._lines(width, max(options.size.height - 2, 1), bars):
            begun, cut, _ = wrapped(text, max(width - len(more), 1)).partition("\n")
            shown = f"{begun}{more}" if cut and len(text) > width else text
            yield Text(shown, style=style, no_wrap=True, overflow="crop", end="\n")

    def _lines(self, width: int, height: int, bars: str) -> Iterator[tuple[str, str]]:
        probes = [line for worker in sorted(self._probes) for line in self._probe(worker, width, bars)]
        if len(probes) > height - len(self._running):
            probes = [line for worker in sorted(self._probes) for line in self._brief(worker)]
        cases = self._table(max(height - len(probes), 1))
        yield from ((text, "bold") for text in cases[:height])
        yield from ((text, "") for text in probes[: max(height - len(cases), 0)])

    @property
    def _running(self) -> list[str]:
        return [name for name, case in self._cases.items() if case.state == "running"]

    def _table(self, height: int) -> list[str]:
        """Return a line for each case. If they do not fit, the cases that do not run share a line."""
        names = list(self._cases)
        if len(names) > height:
            names = self._running[: max(height - 1, 1)]
        broad = max(map(len, names), default=0)
        count = max((len(self._cases[name].trials) for name in names), default=0)
        shown = [f"{name:{broad}}  {self._stand(name, count)}" for name in names]
        rest = [case.state for name, case in self._cases.items() if name not in names]
        if rest:
            states = [f"{rest.count(state)} {state}" for state in dict.fromkeys(rest)]
            shown.append(f"{len(rest)} other case(s): {', '.join(states)}")
        return shown

    def _stand(self, name: str, width: int) -> str:
        """Return trials, best and time left of a case."""
        case = self._cases[name]
        if case.state == "waiting":
            return case.state
        best = f"best {self._objective} {with_error(case.best.value, case.best.error)}" if case.best else "no best yet"
        number = f" (#{case.best.trial})" if case.best else ""
        words = [
            f"{case.trials:>{width}} trials",
            best + number,
            case.state if case.state == "ended" else self._left(name),
        ]
        return ", ".join(word for word in words if word)

    def _left(self, name: str) -> str:
        """Return how long a case probably takes until its search ends, or at most; empty where nothing tells."""
        probes = [probe for probe in self._probes.values() if probe.started.case == name]
        spent_s = max((probe.now.seconds for probe in probes if probe.now), default=0.0)
        done_s = max((probe.started.left_s for probe in probes if probe.started.left_s is not None), default=None)
        most_s = self._cases[name].left_s
        if done_s is not None and (most_s is None or done_s < most_s):
            return f"done in about {duration(max(done_s - spent_s, 1.0))}"
        return "" if not most_s else f"at most about {duration(max(most_s - spent_s, 1.0))}"

    def _probe(self, worker: str, width: int, bars: str) -> Iterator[str]:
        """Yield what a probe does, what it launched, and how busy its devices are."""
        probe = self._probes[worker]
        yield from self._brief(worker)
        yield f"    {in_words(probe.started.config)}"
        labels = [*probe.devices, *("" for _ in range(len(probe.series) - len(probe.devices)))]
        broad = max(map(len, labels), default=0)
        points = min(POINTS, width - 4 - broad - 1 - _REST)
        for label, series in zip(labels, probe.series, strict=False):
            line = f"{sparkline(list(series)[-points:], bars)} " if points >= LEAST_POINTS else ""
            busy = "" if series[-1] is None else f"{series[-1]:3.0f} %"
            yield f"    {label:{broad}} {line}{busy}"

    def _brief(self, worker: str) -> Iterator[str]:
        probe = self._probes[worker]
        who = f"{worker}: " if worker else ""
        case = f"{probe.started.case} " if len(self._cases) > 1 else ""
        yield f"  {who}{case}#{probe.started.trial}: {_phase(probe.now)}"


def _phase(now: events.ProbeRunning | None) -> str:
    if now is None or now.iteration is None:
        return "starting" + (f", {duration(now.seconds)}" if now else "")
    if now.phase == "warm-up":
        return f"warm-up, iteration {now.iteration}, {duration(now.seconds)}"
    usual = f" of {now.usual_iterations}" if now.iteration <= now.usual_iterations else ""
    so_far = "" if now.value is None else f", {numbers((now.value,), now.error, now.samples_per_s)} so far"
    return f"iteration {now.iteration}{usual}, {duration(now.seconds)}{so_far}"


def sparkline(values: Sequence[float | None], bars: str = BARS) -> str:
    """Return a character for each share in percent; a space where the share is unknown."""
    top = len(bars) - 1
    return "".join(" " if value is None else bars[round(min(max(value, 0.0), 100.0) / 100.0 * top)] for value in values)


FRAME_S = 0.5
"""The seconds between two pictures of the live view."""
CLOSE_S = 5.0
"""The seconds that the end of a command waits for a terminal that takes no text, for example after Ctrl-S."""


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
        if told := line(event):
            text, style = told
            self.say(f"{worker}: {text.strip()}" if worker else text, style)

    def _news(self, notes: Sequence[str]) -> Iterator[str]:
        """Yield notes, without those that were said of an earlier trial and are alike for most trials."""
        for note in notes:
            kind = next((one for one in (LOADED, WITHOUT_PAUSE) if one in note), "")
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
    """Prints lines, and keeps a live view below them.

    A thread of its own prints, so that neither rendering nor a terminal that takes no text delays a probe. If rendering
    fails, the lines go on without the live view.
    """

    every_s = FRAME_S

    def __init__(self, console: Console, board: Board) -> None:
        self._lines = LineScreen(console)
        self._board = board
        self._live: Live | None = Live(board, console=console, auto_refresh=False, transient=True)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)
        self._thread.start()

    def show(self, event: events.Event, worker: str = "") -> None:
        """Print the line of an event, and take the event into the live view."""
        self._tasks.put(partial(self._board.take, event, worker))
        self._tasks.put(partial(self._lines.show, event, worker))

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the live view."""
        self._tasks.put(partial(self._lines.say, text, style))

    def forget(self, worker: str) -> None:
        """Remove a worker's probe from the live view."""
        self._tasks.put(partial(self._board.forget, worker))

    def close(self) -> None:
        """Print what is left and remove the live view."""
        self._tasks.put(None)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        with suppress(OSError):  # the terminal is gone
            self._do(partial(self._draw, Live.start))
            painted_s = time.monotonic()
            while (task := self._next()) is not None:
                self._do(task)
                if time.monotonic() - painted_s >= FRAME_S:
                    self._do(partial(self._draw, Live.refresh))
                    painted_s = time.monotonic()
            self._do(partial(self._draw, Live.stop))

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._tasks.get(timeout=FRAME_S)
        except queue.Empty:
            return partial(self._draw, Live.refresh)

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except OSError:
            raise
        except Exception:  # noqa: BLE001  a fault of the live view must not hide what is measured
            with suppress(Exception):
                self._draw(Live.stop)
            self._live = None
            task()

    def _draw(self, draw: Callable[[Live], None]) -> None:
        if self._live:
            draw(self._live)


def open_screen(console: Console) -> Screen:
    """Return a live screen on a terminal, and plain lines on any other output."""
    lively = console.is_terminal and not (console.is_dumb_terminal or console.quiet)
    return LiveScreen(console, Board()) if lively else LineScreen(console)
