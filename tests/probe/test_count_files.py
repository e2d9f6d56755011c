"""The files of counts, also where a training writes into them what nobody expects."""

import json
import os
from pathlib import Path

import pytest

from tuner.probe.count_files import CountLines, MergedCounts

START = {"type": "start", "rank": 0, "world": 1, "data_rank": 0, "parameters": 9, "optimizer": "SGD"}
COUNTS = [
    {"type": "count", "steps": step, "at_s": float(step), "rows": 10 * step, "forwards": step, "backwards": step}
    for step in range(1, 13)
]


def told(folder: Path, *records: object) -> list[dict[str, object]]:
    (folder / "1-a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return [json.loads(message) for message in MergedCounts(CountLines(folder, 1 << 20).read).read()]


def test_steps_and_samples_are_read(tmp_path: Path) -> None:
    last = [message for message in told(tmp_path, START, *COUNTS) if message["type"] == "iteration"][-1]
    assert (last["iteration"], last["samples"]) == (12, 90)


@pytest.mark.parametrize(
    "record",
    [
        START | {"rank": "a"},
        START | {"world": {}},
        {"type": "count", "steps": 99, "at_s": "x", "rows": 1},
        {"type": "count", "steps": 99, "at_s": 99.0, "loader": 5},
        {"type": "count", "steps": "x"},
        {"type": "count", "steps": 1e400},
        COUNTS[6] | {"at_s": 1e400},
        {"type": "flags", "options": 5},
        {"type": "process", "argv": 5},
    ],
)
def test_a_record_of_another_form_ends_the_counts_and_not_the_search(tmp_path: Path, record: object) -> None:
    messages = told(tmp_path, START, *COUNTS[:6], record, *COUNTS[6:])
    assert {message["type"] for message in messages} <= {"iteration", "training"}
    json.dumps(messages, allow_nan=False)  # raises ValueError for a number that is not finite


def test_what_a_training_has_written_of_its_files_and_flags_is_text(tmp_path: Path) -> None:
    records = (
        {"type": "process", "argv": [5]},
        {"type": "file", "path": 5, "named_by": None},
        {"type": "flags", "parser": 5, "options": []},
    )
    (tmp_path / "1-a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    counts = MergedCounts(CountLines(tmp_path, 1 << 20).read)
    counts.read()
    (process,) = counts.processes
    assert (process.argv, process.files, process.parser) == (("5",), {"5": "None"}, "5")


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0-a.jsonl")
    (tmp_path / "0-b.jsonl").mkdir()
    (tmp_path / "0-c.jsonl").symlink_to("/dev/zero")
    assert told(tmp_path, START, *COUNTS)
