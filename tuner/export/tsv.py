"""A table as text: tab-separated values, one line per row."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

PIECE_ROWS = 1000
"""The rows that are in memory at a time."""


class Sheet(NamedTuple):
    """A table: a row gives the cell of a column by the column's name. Cells that are missing or None stay empty."""

    columns: Sequence[str]
    rows: Iterable[Mapping[str, object]]


def tsv(sheet: Sheet) -> Iterator[str]:
    """Yield the text of a table in pieces, the line with the names of its columns first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, sheet.columns, extrasaction="ignore", delimiter="\t", lineterminator="\n")
    writer.writeheader()
    yield text.getvalue()
    rows = iter(sheet.rows)
    while piece := list(islice(rows, PIECE_ROWS)):
        text.truncate(text.seek(0))
        writer.writerows(piece)
        yield text.getvalue()
