"""Prints the Pareto front of each case that has several objectives, as a table."""

from collections.abc import Iterable, Iterator

from rich.table import Table

from tuner.cli.tables import CONFIG
from tuner.export.case import CaseView
from tuner.export.query import StudyReader
from tuner.export.rows import Row, front_row
from tuner.export.words import in_words

_SPEED = "samples_per_s"
_HEADS = {
    _SPEED: "samples/s",
    "samples_per_s_vs_default": "of default's",
    "changes_learning": "changes learning",
    "headroom_pct": "headroom %",
    "measured": "measured",
    "readings": "readings",
}
"""The columns of `pareto.tsv` that follow the objectives → their headings."""


def front_tables(study: StudyReader) -> Iterator[Table]:
    """Return a table of each case's front, sorted by the first objective, the highest value first."""
    return (_table(case, front_rows(case)) for case in study.cases if case.front)


def front_rows(case: CaseView) -> list[Row]:
    """Return the rows of `pareto.tsv` for one case, the highest value of the first objective first."""
    return [front_row(case, member) for member in case.front]


def _table(case: CaseView, rows: list[Row]) -> Table:
    columns = [column for column in dict.fromkeys([*case.objectives, *_HEADS]) if _is_shown(column, rows)]
    heads = [_HEADS.get(column, column) for column in columns]
    table = Table("trial", CONFIG, *heads, title=f"{case.name}: Pareto front", title_justify="left")
    for member, row in zip(case.front, rows, strict=True):
        table.add_row(
            f"#{member.trial}", in_words(member.trials[-1].config), *(_cell(row.get(column)) for column in columns)
        )
    return table


def _is_shown(column: str, rows: Iterable[Row]) -> bool:
    """Return whether a column has a value in any row. A count of one measurement does not matter as a value."""
    empty = {None, "", 1} if column == "readings" else {None, ""}
    return any(row.get(column) not in empty for row in rows)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None else str(value)
