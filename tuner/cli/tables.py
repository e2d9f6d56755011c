"""Where the cases of a study stand: a table with a row for each; tables on terminals of any width."""

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from tuner.export.summary import Best, CaseSummary
from tuner.study.space import Value


def print_tables(console: Console, *tables: Table) -> None:
    """Show tables that fold what is too long for the terminal, rather than cut it off."""
    for table in tables:
        for column in table.columns:
            column.overflow = "fold"
        console.print(table, soft_wrap=False)


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
    table = Table("case", "status", best, "config", "samples/s", "trial", "trials")
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
