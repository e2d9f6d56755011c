"""Where the cases of a study stand: a table with a row for each; tables on terminals of any width."""

import sys
from collections.abc import Iterable, Mapping

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from tuner.export.summary import Best, CaseSummary
from tuner.study.space import Value

CONFIG = "config"
"""Head of the column that stands below a table where the terminal has no room for it."""


def print_tables(console: Console, *tables: Table) -> None:
    """Show tables that put configs below, and fold what is still too long for the terminal, rather than cut it off."""
    for table in tables:
        below = [] if _room(console, table) >= 0 else _taken_out(table)
        _share(_room(console, table), table.columns)
        console.print(table, soft_wrap=False)
        for line in below:
            console.print(line, markup=False)


def _room(console: Console, table: Table) -> int:
    """Give how much of the terminal's width a table can leave free without breaking a word; below 0, it must."""
    unbounded = console.options.update_width(sys.maxsize)
    return console.width - Measurement.get(console, unbounded, table).minimum


def _share(room: int, columns: Iterable[Column]) -> None:
    """Give columns the width of their longest word and, from the left, of what they need beyond; below 0, break words.

    Left to itself, rich takes from each column in proportion to its width, whatever word that breaks.
    """
    for column in columns:
        column.overflow = "fold"
        if room >= 0:
            cells = [str(cell) for cell in (column.header, *column.cells)]
            word = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
            more = min(room, max(map(cell_len, cells)) - word)
            column.width = word + more
            room -= more


def _taken_out(table: Table) -> list[str]:
    """Take the configs out of a table; give a line for each, beside what begins its row."""
    config = next((column for column in table.columns if column.header == CONFIG), None)
    if config is None:
        return []
    table.columns.remove(config)
    return [f"{row}: {words}" for row, words in zip(table.columns[0].cells, config.cells, strict=True) if words]


def in_words(config: Mapping[str, Value]) -> str:
    """Give a config as its parameters stand in a line."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def reading(value: float, error: float | None) -> str:
    """Give a number with its standard error, where that is known."""
    return f"{value:.1f}" if error is None else f"{value:.1f} ± {error:.1f}"


def summary_table(rows: Iterable[CaseSummary]) -> Table:
    """Lay out one row per case."""
    shown = list(rows)
    best = " ".join(["best", *dict.fromkeys(row.objective for row in shown)])
    table = Table("case", "status", best, CONFIG, "samples/s", "trial", "trials")
    for row in shown:
        table.add_row(row.case, row.status, *(_best_cells(row.best) if row.best else [""] * 4), _counts(row))
    return table


def _counts(row: CaseSummary) -> str:
    counts = {
        "ok": row.ok,
        "pruned": row.pruned,
        "failed": row.failed,
        "interrupted": row.interrupted,
        "running": row.running,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _best_cells(best: Best) -> list[str]:
    return [_value(best), in_words(best.config), _number(best.samples_per_s), f"#{best.trial}"]


def _value(best: Best) -> str:
    of_several = f" (mean of {best.readings})" if best.readings > 1 else ""
    return f"{reading(best.value, best.error)}{of_several}" if best.value is not None else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
