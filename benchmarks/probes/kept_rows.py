"""A file of rows, one for each finished probe, so that a benchmark goes on where it was stopped."""

import csv
from collections.abc import Sequence
from pathlib import Path

Row = dict[str, str]


def recorded(out: Path) -> list[Row]:
    """Return the rows that an earlier command has written."""
    if not out.exists():
        return []
    with out.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def append(out: Path, one: Row, columns: Sequence[str]) -> None:
    """Write a row to the file, below the names of the columns."""
    is_new = not out.exists()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter="\t")
        if is_new:
            writer.writeheader()
        writer.writerow(one)
