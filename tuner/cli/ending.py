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

DOUBTS = (Topic.REPLAY, Topic.DOUBT, Topic.CHOICE, Topic.DEVICES, Topic.FASTER, Topic.LEFT_OUT)
"""What may make a result doubtful, the largest doubt first."""


def gains_table(rows: Sequence[CaseSummary]) -> Table:
    """Return a table with one row per case: its default, its best, and how much the best gains.

    A gain that sessions have measured stands without their values, because the best's is that of the plain command.
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
    """Return the cells with the values of the best and of the default, the latter only where they can be compared."""
    if row.best is None:
        return row.status, ""
    best = with_error(row.best.value, row.best.error)
    if row.gain:
        return best, "" if row.gain.in_sessions else with_error(row.gain.before, row.gain.before_error)
    best_is_default = row.default is not None and row.default.config == row.best.config
    default = best if best_is_default else ""
    return best, default


def _gain(row: CaseSummary, *, in_points: bool) -> str:
    """Return what the best gains, without the gain in samples/s that the next column has.

    The unit is left out of a column of points.
    """
    gain = gain_text(row).partition(",")[0]
    return gain.removesuffix(" points") if in_points else gain


def _speed(config: ConfigRow | None, times_default: float | None = None) -> str:
    """Return the samples/s of a config, with how many times those of the default they are where that is known."""
    if config is None or not config.samples_per_s:
        return ""
    times = f" ({times_default:.2g} times)" if times_default else ""
    return f"{figure(config.samples_per_s)}{times}"


def closing(bench: "Workbench", cases: Sequence[Case], rows: Sequence[CaseSummary]) -> Iterator[str]:
    """Yield what each case's best is, what cases without a best need, what limits a single case, and one doubt."""
    yield from merged_lines((row.case, in_words(row.best.config, row.best.total_batch)) for row in rows if row.best)
    yield from merged_lines((row.case, text) for row in rows if (text := measured_otherwise(row)))
    known = [(row, finding) for row in rows for finding in findings(row)]
    failed = [(row.case, str(found)) for row, found in known if found.topic is Topic.RESULT and row.without_success]
    yield from merged_lines(failed)
    if len(rows) == 1 and rows[0].best and rows[0].bound:
        yield f"limited by: {rows[0].bound.limit}"
    doubts: list[str] = []
    for topic in DOUBTS:  # the largest doubt first
        doubts += merged_lines((row.case, str(found)) for row, found in known if found.topic is topic)
    if doubt := next(chain(doubts, at_the_top(bench, cases, rows)), None):
        yield doubt


def whereabouts(report: Path | None, tables: Sequence[Path]) -> str:
    """Return a line that says where the report and the tables are."""
    names = f"{tables[0].name} and {len(tables) - 1} more tables"
    folder = beside_here(tables[0].parent)
    return f"report: {beside_here(report)}; beside it {names}" if report else f"{folder}: {names}"
