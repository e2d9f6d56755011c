"""The tables of a study's cases and of their Pareto fronts, printed on a terminal of any width."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from tuner import export
from tuner.export.tables import FRONT_COLUMNS


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
        table.add_row(row.case, row.status, *cells, export.in_a_cell(row), trial, export.trials(row))
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
