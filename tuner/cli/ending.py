"""What a search prints at its end: one short screen. The report and `tuner status` have the rest."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column, Table

from tuner.cli.hints import at_the_top
from tuner.cli.options import beside_here
from tuner.export import SPEEDS, CaseSummary, Topic, figure, findings, in_words, shared, with_error
from tuner.study import Case

if TYPE_CHECKING:
    from tuner.running.workbench import Workbench

DOUBTS = (Topic.REPLAY, Topic.DOUBT, Topic.CHOICE, Topic.DEVICES, Topic.FASTER, Topic.LEFT_OUT)
"""What may make a result doubtful, the largest doubt first."""


def gains_table(rows: Sequence[CaseSummary]) -> Table:
    """Return a table with one row per case: its default, its best, and how much the best gains."""
    objective = " ".join(dict.fromkeys(row.objective for row in rows))
    is_speed = objective in SPEEDS
    heads = ["case", f"best {objective}", "default", "gain", *([] if is_speed else ["samples/s"]), "trials"]
    table = Table(*(Column(head) for head in heads), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        speed = [] if is_speed else [_speed(row)]
        best = _measured(row) if row.best else row.status
        default = "" if row.default is None else with_error(row.default.value, row.default.error)
        table.add_row(row.case, best, default, gain_text(row), *speed, f"{row.ok} of {_ended(row)} ok")
    return table


def _ended(row: CaseSummary) -> int:
    return row.ok + row.pruned + row.failed + row.interrupted


def _measured(row: CaseSummary) -> str:
    return with_error(row.best.value, row.best.error) if row.best else ""


def _speed(row: CaseSummary) -> str:
    return figure(row.best.samples_per_s) if row.best and row.best.samples_per_s else ""


def gain_text(row: CaseSummary) -> str:
    """Return how much the best gains over its default: a factor of speeds, else points; empty where it is unknown."""
    best, default = row.best, row.default
    if best is None or default is None or default.beside_best is None:
        return ""
    if default.config == best.config:
        return "it is the best"
    before, after = default.beside_best
    if row.objective in SPEEDS:
        return f"{after / before:.1f} times" if before else ""
    times = f", {1.0 / default.times:.1f} times the samples/s" if default.times else ""
    return f"{after - before:+.1f} points{times}"


def closing(bench: "Workbench", cases: Sequence[Case], rows: Sequence[CaseSummary]) -> Iterator[str]:
    """Yield what each case's best is, what cases without a best need, what limits a single case, and one doubt."""
    yield from shared((row.case, in_words(row.best.config, row.best.total_batch)) for row in rows if row.best)
    known = [(row, finding) for row in rows for finding in findings(row)]
    failed = [(row.case, str(found)) for row, found in known if found.topic is Topic.RESULT and row.without_success]
    yield from shared(failed)
    if len(rows) == 1 and rows[0].best and rows[0].bound:
        yield f"limited by: {rows[0].bound.limit}"
    doubts = chain.from_iterable(
        shared((row.case, str(found)) for row, found in known if found.topic is topic) for topic in DOUBTS
    )
    if doubt := next(chain(doubts, at_the_top(bench, cases, rows)), None):
        yield doubt


def whereabouts(report: Path | None, tables: Sequence[Path]) -> str:
    """Return a line that says where the report and the tables are."""
    more = f"{tables[0].name} and {len(tables) - 1} more tables"
    return f"report: {beside_here(report)}; beside it {more}" if report else f"{beside_here(tables[0].parent)}: {more}"
