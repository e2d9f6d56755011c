"""The tables of a study's cases and of their Pareto fronts, printed on a terminal of any width."""

import sys
from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from tuner import export


def print_tables(console: Console, *tables: Table) -> None:
    """Print tables without cutting text off. Of a table that is too wide, configs and last columns follow below."""
    for table in tables:
        below = _take_out(console, table)
        _set_widths(_spare_width(console, table), table.columns)
        console.print(table, soft_wrap=False)
        for line in below:
            console.print(line)


def fits(console: Console, table: Table) -> bool:
    """Return whether a table fits on the terminal without a broken word."""
    return _spare_width(console, table) >= 0


def _spare_width(console: Console, table: Table) -> int:
    """Return the terminal's width minus the smallest width of the table that breaks no word."""
    unbounded = console.options.update_width(sys.maxsize)
    return console.width - Measurement.get(console, unbounded, table).minimum


def _set_widths(spare: int, columns: Iterable[Column]) -> None:
    """Make each column as wide as its longest word, and share the `spare` width among the columns from the left.

    If `spare` is negative, words are broken. Without this function, rich would shrink all columns in proportion to
    their width and break words even if there is room.
    """
    for column in columns:
        column.overflow = "fold"
        if spare >= 0:
            cells = [str(cell) for cell in (column.header, *column.cells)]
            word = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
            more = min(spare, max(map(cell_len, cells)) - word)
            column.width = word + more
            spare -= more


def _take_out(console: Console, table: Table) -> list[str]:
    """Return a line for each row of the columns that are removed until the table fits: the config, then the last."""
    names, *more = table.columns
    taken: list[Column] = []
    for column in sorted(more, key=lambda column: column.header == "config", reverse=True)[:1] + more[:0:-1]:
        if fits(console, table):
            break
        if column in table.columns:
            table.columns.remove(column)
            taken.append(column)
    rows = zip(names.cells, *(_named(column) for column in taken), strict=True)
    return [f"{name}: {'; '.join(filter(None, cells))}" for name, *cells in rows if any(cells)]


def _named(column: Column) -> Iterator[str]:
    """Yield the cells of a column, each behind the column's heading if it does not say by itself what it is."""
    name = "" if column.header in {"config", "trials"} else f"{column.header} "
    return (f"{name}{cell}" if cell else "" for cell in map(str, column.cells))


def summary_table(rows: Iterable[export.CaseSummary]) -> Table:
    """Return a table with one row per case, and one more where another config is faster with the same training."""
    shown = list(rows)
    best = " ".join(["best", *dict.fromkeys(row.objective for row in shown)])
    table = Table("case", "status", best, "config", "samples/s", "trial", "trials", "gain")
    for row in shown:
        cells = _best_cells(row.best) if row.best else [""] * 4
        table.add_row(row.case, row.status, *cells, export.trials(row), export.gain_text(row))
        if row.fastest:
            table.add_row(f"{row.case}, fastest", "trains as default", *_best_cells(row.fastest), "", "")
    return table


def _best_cells(best: export.ConfigRow) -> list[str]:
    value = export.with_error(best.value, best.error) + (f" (mean of {best.readings})" if best.readings > 1 else "")
    speed = "" if best.samples_per_s is None else f"{best.samples_per_s:.0f}"
    return [value, export.in_words(best.config, best.total_batch), speed, f"#{best.trial}"]


_HEADS = {
    "samples_per_s": "samples/s",
    "samples_per_s_vs_default": "of default's",
    "joules_per_sample": "J/sample",
    "cost_per_million_samples": "cost/million",
    "changes_learning": "changes learning",
    "headroom_pct": "headroom %",
    "measured": "measured",
    "readings": "readings",
}
"""The columns of `pareto.tsv` that follow the objectives → their headings."""


def front_tables(study: export.StudyReader) -> Iterator[Table]:
    """Return a table of each case's front, sorted by the first objective, the highest value first."""
    return (_front_table(case) for case in study.cases if case.front)


def front_rows(case: export.CaseView) -> list[export.Row]:
    """Return the rows of `pareto.tsv` for one case, the highest value of the first objective first."""
    return [export.front_row(case, member) for member in case.front]


def _front_table(case: export.CaseView) -> Table:
    """Return a table of a case's Pareto front, with the columns that have a value."""
    rows = front_rows(case)
    columns = [column for column in dict.fromkeys([*case.objectives, *_HEADS]) if _is_shown(column, rows)]
    heads = [_HEADS.get(column, column) for column in columns]
    table = Table("trial", "config", *heads, title=f"{case.name}: Pareto front", title_justify="left")
    for member, row in zip(case.front, rows, strict=True):
        table.add_row(
            f"#{member.trial}",
            export.in_words(member.trials[-1].config),
            *(_cell(row.get(column)) for column in columns),
        )
    return table


def _is_shown(column: str, rows: Iterable[export.Row]) -> bool:
    """Return whether a column has a value in any row. A count of one measurement does not matter as a value."""
    empty = {None, "", 1} if column == "readings" else {None, ""}
    return any(row.get(column) not in empty for row in rows)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"
    return "" if value is None else str(value)
