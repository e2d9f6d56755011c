"""Where the cases of a study stand: a table with a row for each; tables on terminals of any width."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from tuner.export.summary import Best, CaseSummary
from tuner.study.space import LADDER


def print_tables(console: Console, *tables: Table) -> None:
    """Show tables that fold what is too long for the terminal, rather than cut it off."""
    for table in tables:
        for column in table.columns:
            column.overflow = "fold"
        console.print(table, soft_wrap=False)


def summary_table(rows: Iterable[CaseSummary]) -> Table:
    """Lay out one row per case."""
    shown = list(rows)
    best = " ".join(["best", *dict.fromkeys(row.objective for row in shown)])
    table = Table("case", "status", best, LADDER, "variant", "samples/s", "trial", "trials")
    for row in shown:
        table.add_row(row.case, row.status, *(_best_cells(row.best) if row.best else [""] * 5), _counts(row))
    return table


def _counts(row: CaseSummary) -> str:
    counts = {"ok": row.ok, "pruned": row.pruned, "failed": row.failed, "running": row.running}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _best_cells(best: Best) -> list[str]:
    return [
        _value(best),
        _number(best.num_envs),
        best.variant or "",
        _number(best.samples_per_s),
        f"#{best.trial}",
    ]


def _value(best: Best) -> str:
    of_several = f" (mean of {best.readings})" if best.readings > 1 else ""
    return f"{_number(best.value, 1)}{of_several}"


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"
