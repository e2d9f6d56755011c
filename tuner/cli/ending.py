"""What a search prints at its end: one short screen. The report and `tuner status` have the rest."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tuner.cli.case_tables import best_of, plain_table
from tuner.cli.hints import at_the_top
from tuner.export import (
    SPEEDS,
    CaseSummary,
    ConfigRow,
    Topic,
    beside_here,
    figure,
    findings,
    gain_text,
    in_words,
    measured_otherwise,
    merged_lines,
    with_error,
)
from tuner.study import Case

if TYPE_CHECKING:
    from tuner.running.workbench import Workbench


def gains_table(rows: Sequence[CaseSummary]) -> Table:
    """Return a table with one row per case: its best, its default, and how much the best gains over the default.

    Sessions (one started trainer that measures many configs) and plain commands differ in speed. Where only sessions
    have measured the gain, the table leaves out the default's value, because the best's is that of the plain command.
    """
    objectives = dict.fromkeys(row.objective for row in rows)
    in_points = not objectives.keys() & SPEEDS.keys()
    has_speed = not objectives.keys() <= SPEEDS.keys()  # otherwise the column of the best is a speed
    heads = ["case", best_of(objectives), "default", "points" if in_points else "gain"]
    table = plain_table(*heads, *(["samples/s"] if has_speed else []))
    for row in rows:
        speed = [_speed(row.best, row.times_default)] if has_speed else []
        table.add_row(row.case, *_best_and_default(row), _gain(row, in_points=in_points), *speed)
        if fastest := row.fastest:
            speed = [_speed(fastest)] if has_speed else []
            table.add_row(f"  #{fastest.trial} as default", with_error(fastest.value, fastest.error), "", "", *speed)
    return table


def _best_and_default(row: CaseSummary) -> tuple[str, str]:
    """Return two cells: the value of the best, and that of the default where the two can be compared."""
    if row.best is None:
        return row.status, ""
    best = with_error(row.best.value, row.best.error)
    if row.gain:
        return best, "" if row.gain.in_sessions else with_error(row.gain.before, row.gain.before_error)
    best_is_default = row.default is not None and row.default.config == row.best.config
    default = best if best_is_default else ""
    return best, default


def _gain(row: CaseSummary, *, in_points: bool) -> str:
    """Return the cell with what the best gains. The gain in samples/s stands in the next column.

    Where all gains are in points (`in_points`), the heading has the unit.
    """
    gain = gain_text(row).partition(",")[0]
    return gain.removesuffix(" points") if in_points else gain


def _speed(config: ConfigRow | None, times_default: float | None = None) -> str:
    """Return the cell with the samples/s of a config, and with how many times the default's they are, if known."""
    if config is None or not config.samples_per_s:
        return ""
    times = f" ({times_default:.2g} times)" if times_default else ""
    return f"{figure(config.samples_per_s)}{times}"


def closing(bench: "Workbench", cases: Sequence[Case], rows: Sequence[CaseSummary]) -> Iterator[str]:
    """Yield the last lines of a search: each case's best, why a case has none, what limits a single case, one doubt."""
    yield from merged_lines((row.case, in_words(row.best.config, row.best.total_batch)) for row in rows if row.best)
    yield from merged_lines((row.case, text) for row in rows if (text := measured_otherwise(row)))
    known = [(row, finding) for row in rows for finding in findings(row)]
    results = [(row.case, finding) for row, finding in known if finding.topic is Topic.RESULT and row.without_success]
    yield from merged_lines((case, str(finding)) for case, finding in results)
    if len(rows) == 1 and rows[0].best and rows[0].bound:
        yield f"limited by: {rows[0].bound.limit}"
    doubts: list[str] = []  # the largest first
    for topic in (Topic.REPLAY, Topic.DOUBT, Topic.CHOICE, Topic.DEVICES, Topic.FASTER, Topic.LEFT_OUT):
        doubts += merged_lines((row.case, str(finding)) for row, finding in known if finding.topic is topic)
    if doubt := next(chain(doubts, at_the_top(bench, cases, rows)), None):
        yield doubt


def whereabouts(report: Path | None, tables: Sequence[Path]) -> str:
    """Return a line that says where the report and the tables are."""
    names = f"{tables[0].name} and {len(tables) - 1} more tables"
    folder = beside_here(tables[0].parent)
    return f"report: {beside_here(report)}; beside it {names}" if report else f"{folder}: {names}"
