"""Shows a study: its events as lines, live on a terminal or as JSON, and tables of its cases on any width."""

import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table
from rich.text import Text

from tuner import export
from tuner.export import SPEEDS, figure, in_words, with_error
from tuner.export.tables import FRONT_COLUMNS
from tuner.probe import duration
from tuner.running import events
from tuner.running.events import EventLines, FixedValues, objectives_text, time_left


class Bars(Progress):
    """Shows a bar for each case that is searched and what each probe does, by the events that it takes in."""

    def __init__(self, console: Console) -> None:
        """The bars appear on `console` once this is entered as a context."""
        self._rows: dict[str | None, TaskID] = {}
        """The bar of each case; that of all cases has the key None."""
        self._fixed_values = FixedValues()
        self._running: dict[str, events.ProbeStarted] = {}
        """A worker → the probe that it runs."""
        self._activity: dict[str, tuple[str, ...]] = {}
        """A worker → texts of what its probe does, and of how busy its devices are."""
        self._best: dict[str, str] = {}
        """A case → its best so far, in words."""
        self._ended: set[str] = set()
        """The cases that have ended."""
        self._devices: dict[str, Sequence[str]] = {}
        """A worker → the names of its devices."""
        self._objective = ""
        """The first objective of the study."""
        super().__init__(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(7),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(overflow="fold")),
            console=console,
            auto_refresh=False,
            transient=True,
        )

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bars of the cases, then what each probe does and below it its config."""
        yield self.make_tasks_table(self.tasks)
        for worker, probe in self._running.items():
            name = f"{worker} #{probe.trial}".strip()  # a search by one process has no name for it
            doing, *busy = self._activity.get(worker, ("starting",))
            yield Padding.indent(Text("; ".join([f"{name} {doing}", *busy])), 2)
            yield Padding.indent(Text(in_words(self._fixed_values.without_fixed(probe.case, probe.config))), 4)

    def handle(self, event: events.Event, worker: str = "") -> None:
        """Change the bars by an event; `worker` names the worker that the event comes from, "" the only process."""
        match event:
            case events.StudyStarted():
                self._devices[worker], self._objective = event.devices, event.objectives[0]
                if len(event.cases) > 1:
                    self._set_bar(None, completed=len(self._ended), total=len(event.cases), text="ended")
            case events.CaseStarted():
                self._fixed_values.note(event)
                self._show_case(event)
            case events.ProbeStarted():
                self._running[worker] = event
                self._show_time_left(event, 0.0)
            case events.ProbeRunning() if started := self._running.get(worker):
                self._activity[worker] = (_phase(event), *_utilisation(event, self._devices.get(worker, ())))
                self._show_time_left(started, event.seconds)
            case events.ProbeEnded():
                self.remove_probe(worker)
                self._show_case(event)
            case events.CaseEnded() if all(started.case != event.case for started in self._running.values()):
                # no worker probes the case any more; the bar stays until the last worker has ended the case
                self._ended.add(event.case)
                if (row := self._rows.pop(event.case, None)) is not None:
                    self.remove_task(row)
                if None in self._rows:
                    self._set_bar(None, completed=len(self._ended))

    def remove_probe(self, worker: str) -> None:
        """Show no probe of a worker any more, because the probe or the worker has ended."""
        self._running.pop(worker, None)
        self._activity.pop(worker, None)

    def _show_case(self, event: events.CaseStarted | events.ProbeEnded) -> None:
        """Show a case's best so far, and how many of its trials are done."""
        self._best[event.case] = best = self._best_of(event)
        self._set_bar(event.case, completed=event.finished, total=event.target, text=best)

    def _best_of(self, event: events.CaseStarted | events.ProbeEnded) -> str:
        """Return a case's best so far; of a speed also how many times the default's it is."""
        if (best := event.best) is None:
            return "no best yet"
        if (unit := SPEEDS.get(self._objective)) is None:
            return f"best {self._objective} {with_error(best.value, best.error)} (#{best.trial})"
        times = "" if best.times is None else f" ({best.times:.3g} times)"
        return f"best {figure(best.value)} {unit}{times}"

    def _show_time_left(self, probe: events.ProbeStarted, spent_s: float) -> None:
        """Show on a case's bar its best so far, and how long its search still takes, `spent_s` seconds into a probe."""
        left = "" if probe.left_s is None else time_left(probe.left_s - spent_s)
        self._set_bar(probe.case, text="; ".join(filter(None, [left, self._best.get(probe.case, "")])))

    def _set_bar(self, name: str | None, **fields: Any) -> None:
        """Set the fields of the bar of a case, or of all cases for None; it is added if it is new."""
        if name in self._rows:
            self.update(self._rows[name], **fields)
        else:
            self._rows[name] = self.add_task(**{"description": name or "cases", "text": "", **fields})


def _phase(event: events.ProbeRunning) -> str:
    """Return what a running probe does, and what it has measured so far."""
    value = f": {objectives_text((event.value,), event.error, event.samples_per_s)}" if event.value is not None else ""
    iteration = "" if event.iteration is None else f", iteration {event.iteration}"
    return f"{event.phase}{iteration}, {duration(event.seconds)}{value}"


def _utilisation(event: events.ProbeRunning, devices: Sequence[str]) -> Iterator[str]:
    """Yield how busy the devices were since the last event: each of up to four, or the range of more; or nothing."""
    pairs = zip(devices, event.utilisation, strict=False)  # the shares of some probes are empty
    known = [(device, share) for device, share in pairs if share is not None]
    if len(known) > 4:  # the shares of more have no room in a line of 80 columns
        shares = [share for _, share in known]
        yield f"{len(known)} devices {min(shares):.0f} to {max(shares):.0f} % busy"
    elif known:
        yield f"{', '.join(f'{device} {share:.0f} %' for device, share in known)} busy"


class Screen:
    """Shows what happens in a study: the base of all screens, which shows nothing."""

    every_s: float | None = None
    """How many seconds apart a running probe is shown; None where it is not."""

    def show(self, event: events.Event, worker: str = "") -> None:
        """Show an event; `worker` names the worker of a team that the event comes from."""

    def say(self, text: str, style: str = "") -> None:
        """Show a line of text; `style` is one of rich's styles."""

    def remove_probe(self, worker: str) -> None:
        """Show nothing more of a worker's probe: the worker has ended."""

    def close(self) -> None:
        """Show what is not shown yet, and remove what is live. Harmless to repeat."""


class LineScreen(Screen):
    """Prints a line for each event that has a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines = EventLines()

    def show(self, event: events.Event, worker: str = "") -> None:
        """Print the line of an event, behind the name of its worker."""
        if shown := self._lines.line_of(event):
            self.say(f"{worker}: {shown.text.strip()}" if worker else shown.text, shown.style)

    def say(self, text: str, style: str = "") -> None:
        """Print a line."""
        self._console.print(text, style=style)


class JsonScreen(Screen):
    """Writes each event as a line of JSON to stdout. EventLines of text are for people, who read the standard error."""

    every_s = 1.0

    def show(self, event: events.Event, worker: str = "") -> None:
        """Write an event."""
        print(events.to_json(event, worker), flush=True)  # noqa: T201 - rich would wrap it


class LiveScreen(Screen):
    """Prints lines, and keeps bars below them.

    A thread of its own prints, so that neither rendering nor a terminal that takes no text delays a probe.
    """

    every_s = 0.5
    close_s = 5.0
    """The seconds that the end of a command waits for a terminal that takes no text, for example after Ctrl-S."""

    def __init__(self, console: Console) -> None:
        """Start the thread that prints to `console`."""
        self._lines = LineScreen(console)
        self._bars = Bars(console)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)
        self._thread.start()

    def show(self, event: events.Event, worker: str = "") -> None:
        """Print the line of an event, and take the event into the live view.

        The place of a trial in the search and the time left are in the live view alone.
        """
        self._tasks.put(partial(self._bars.handle, event, worker))
        if isinstance(event, events.ProbeEnded):
            event = replace(event, counts=False, left_s=None)  # the bars show both
        self._tasks.put(partial(self._lines.show, event, worker))

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the live view."""
        self._tasks.put(partial(self._lines.say, text, style))

    def remove_probe(self, worker: str) -> None:
        """Remove a worker's probe from the live view."""
        self._tasks.put(partial(self._bars.remove_probe, worker))

    def close(self) -> None:
        """Print what is left and remove the live view."""
        self._tasks.put(None)
        self._thread.join(self.close_s)

    def _run(self) -> None:
        """Do what is to be shown, in order, until None comes."""
        with suppress(OSError), self._bars:  # OSError: the terminal is gone
            for task in iter(self._tasks.get, None):
                task()
                self._bars.refresh()


def open_screen(console: Console) -> Screen:
    """Return a live screen on a terminal, and plain lines on any other output."""
    lively = console.is_terminal and not (console.is_dumb_terminal or console.quiet)
    return LiveScreen(console) if lively else LineScreen(console)


def print_tables(console: Console, *tables: Table) -> None:
    """Print tables so that no short cell is broken into lines.

    Columns for which a table has no room, first that of configs, are printed below it as text. At least two columns
    stay; if these are still too wide, their cells are broken, too.
    """
    for table in tables:
        for column in table.columns:
            widths = [cell_len(str(cell)) for cell in column.cells]
            if column.header != "config":  # a cell of more than 40 characters is a text, whose lines break at words
                widths = [width for width in widths if width <= 40]
            column.min_width = max(widths, default=0)
        below = _move_columns_below(console, table)
        if spare_width(console, table) < 0:  # the two columns that stay are still too wide
            for column in table.columns:
                column.min_width = None
        _set_widths(spare_width(console, table), table.columns)
        console.print(table, soft_wrap=False)
        for line in below:
            console.print(line)


def spare_width(console: Console, table: Table) -> int:
    """Return the terminal's width minus the smallest width that a table has without a broken word or a cut column."""
    unbounded = console.options.update_width(sys.maxsize)  # else the smallest width is at most the terminal's
    return console.width - Measurement.get(console, unbounded, table).minimum


def _set_widths(spare: int, columns: Iterable[Column]) -> None:
    """Give each column the width of its longest word, and share the `spare` width among the columns from the left.

    If `spare` is negative, words are broken. By itself, rich would shrink all columns in proportion to their width, and
    break words even if there is room.
    """
    for column in columns:
        column.overflow = "fold"
        if spare >= 0:
            cells = [str(cell) for cell in (column.header, *column.cells)]
            word_widths = [cell_len(word) for cell in cells for word in cell.split()]
            least = max([column.min_width or 0, *word_widths])
            widest = max(map(cell_len, cells))
            more = min(spare, widest - least)
            column.width = least + more
            spare -= more


def _move_columns_below(console: Console, table: Table) -> list[str]:
    """Remove columns from a table until it fits, and return their cells as text: a line for each row that has any.

    The column of configs goes first, or without one the second column; then the columns go from the right. The first
    column stays, because it names the rows. A cell stands behind the heading of its column, unless its text shows what
    it is.
    """
    row_names, *values = table.columns
    first = [column for column in values if column.header == "config"] or values[:1]
    in_order = {column.header: column for column in (*first, *values[:0:-1])}  # each once
    moved: list[list[str]] = []
    for column in in_order.values():
        if spare_width(console, table) >= 0:
            break
        staying = [stays for stays in table.columns if stays.header != column.header]
        table.columns = [replace(stays, _index=place) for place, stays in enumerate(staying)]  # rich needs the places
        label = "" if column.header in {"config", "trials"} else f"{column.header} "
        moved.append([f"{label}{cell}" if cell else "" for cell in map(str, column.cells)])
    rows = zip(row_names.cells, *moved, strict=True)
    return [f"{name}: {'; '.join(filter(None, cells))}" for name, *cells in rows if any(cells)]


def summary_table(rows: Iterable[export.CaseSummary]) -> Table:
    """Return a table with one row per case, and one more where another config is faster with the same training."""
    shown = list(rows)
    objectives = dict.fromkeys(row.objective for row in shown)
    has_speed = not objectives.keys() <= export.SPEEDS.keys()  # otherwise the column of the best is a speed
    speed = ["samples/s"] if has_speed else []
    best = " ".join(["best", *map(export.unit, objectives)])
    table = plain_table("case", "status", best, "config", *speed, "gain", "trial", "trials")
    for row in shown:
        *cells, trial = _best_cells(row.best, has_speed=has_speed)
        table.add_row(row.case, row.status, *cells, export.gain_text(row), trial, export.trials(row))
        if row.fastest:
            *cells, trial = _best_cells(row.fastest, has_speed=has_speed)
            table.add_row(f"{row.case}, fastest", "as default", *cells, "", trial, "")
    return table


def plain_table(*heads: str) -> Table:
    """Return an empty table without lines, which leaves more room for its cells."""
    return Table(*(Column(head) for head in heads), box=None, pad_edge=False, header_style="bold")


def _best_cells(config: export.ConfigRow | None, *, has_speed: bool) -> list[str]:
    """Return the cells of a config: its objective, its values, its samples/s where the table `has_speed`, its trial."""
    if config is None:
        return [""] * (4 if has_speed else 3)
    mean_of = f" (mean of {config.readings})" if config.readings > 1 else ""
    value = f"{export.with_error(config.value, config.error)}{mean_of}"
    speed = "" if config.samples_per_s is None else export.figure(config.samples_per_s)
    config_text = export.in_words(config.config)
    return [value, config_text, *([speed] if has_speed else []), f"#{config.trial}"]


def front_tables(study: export.StudyReader) -> Iterator[Table]:
    """Return a table of each case's front, sorted by the first objective, the highest value first."""
    return (_front_table(case) for case in study.cases if case.front)


def _front_table(case: export.CaseView) -> Table:
    """Return a table of a case's Pareto front, with the columns that have a value."""
    rows = export.front_rows(case)
    names = dict.fromkeys([*case.objectives, *FRONT_COLUMNS])
    columns = [column for column in names if _is_shown(column, rows)]
    heads = [FRONT_COLUMNS.get(column, column) for column in columns]
    table = Table("trial", "config", *heads, title=f"{case.name}: Pareto front", title_justify="left")
    for member, row in zip(case.front, rows, strict=True):
        if times := export.times_default(case, member):
            row["samples_per_s_vs_default"] = export.with_error(times.value, times.error, 2)
        cells = (_cell(row.get(column)) for column in columns)
        table.add_row(f"#{member.trial}", export.in_words(member.trials[-1].config), *cells)
    return table


def _is_shown(column: str, rows: Iterable[export.Row]) -> bool:
    """Return whether a column has a value in any row. That each config was measured once is not worth one."""
    not_shown = {None, "", 1} if column == "readings" else {None, ""}
    return any(row.get(column) not in not_shown for row in rows)


def _cell(value: object) -> str:
    """Return a value as text: a fraction with two decimals, or one below 1 with three digits."""
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"
    return "" if value is None else str(value)
