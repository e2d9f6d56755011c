from pathlib import Path
from typing import Literal

import pytest

from tuner.probe.progress_files import TextRows


@pytest.mark.parametrize(
    ("form", "text"),
    [("csv", "step,loss\n3,0.5\n"), ("csv", '"step",loss\n3,0.5\n'), ("jsonl", '{"step": "3", "loss": "0.5"}\n')],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_a_column(
    form: Literal["csv", "jsonl"], text: str, encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "progress"
    path.write_text(text, encoding=encoding)
    assert list(TextRows(path, 1000, is_csv=form == "csv").read()) == [{"step": "3", "loss": "0.5"}]


def test_a_byte_order_mark_is_no_text_and_no_row_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_bytes(b"\xef\xbb\xbfstep,loss\n1,0.5\n")
    rows = TextRows(path, 1 << 20, is_csv=True)
    assert list(rows.read()) == [{"step": "1", "loss": "0.5"}]
    with path.open("ab") as file:
        file.write(b"2,0.4\n")
    assert list(rows.read()) == [{"step": "2", "loss": "0.4"}]
