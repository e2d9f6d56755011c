import os
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tuner.drafting.progress_written import WrittenProgress, elsewhere
from tuner.testing.replays import FakeClock

CSV = "epoch,step,loss\n" + "".join(f"{n // 3},{n * 50},0.{n}\n" for n in range(6))
JSONL = "".join(f'{{"timestamp": {n}.5, "step": {n}, "samples_seen": {64 * n}, "lr": 0.1}}\n' for n in range(1, 5))


def written(folder: Path) -> WrittenProgress:
    return WrittenProgress(folder, (folder / "progress.jsonl",), FakeClock(100.0), 90.0)


@pytest.mark.parametrize(
    ("name", "text", "columns", "last"),
    [
        ("logs/version_0/metrics.csv", CSV, {"iteration": "step"}, (250, None)),
        ("runs/episodes.csv", CSV.replace("epoch", "episode"), {"iteration": "step"}, (250, None)),
        ("*/log.jsonl", JSONL, {"iteration": "step", "samples": "samples_seen"}, (4, 256)),
    ],
)
def test_the_columns_of_a_file_that_count_are_found(
    tmp_path: Path, name: str, text: str, columns: dict[str, str], last: tuple[int, int | None]
) -> None:
    path = tmp_path / name.replace("*", "20261123_101500")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    found = written(tmp_path).look()
    assert found is not None
    assert found.file is not None
    assert (found.file.pattern, found.file.columns) == (name, columns)
    assert (found.reports[-1].iteration, found.reports[-1].samples, found.reports[-1].t_s) == (*last, 10.0)


def test_later_rows_are_later_reports(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(JSONL)
    clock = FakeClock(0.0)
    follows = WrittenProgress(tmp_path, (), clock, 0.0)
    follows.look()
    clock.advance(3.0)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"step": 9, "samples_seen": 600}\n')
    found = follows.look()
    assert found is not None
    assert [(one.iteration, one.t_s) for one in found.reports] == [(4, 0.0), (9, 3.0)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("progress.jsonl", JSONL, None),
        ("notes.txt", CSV, None),
        ("a.csv", "name,value\nseed,3\nlr,4\nwd,5\n", "a.csv shows no iterations yet"),
        ("events.out.tfevents.1", "", "events.out.tfevents.1 (cannot be read without|shows no iterations yet)"),
    ],
    ids=["of the tuner", "text", "no counter", "events"],
)
def test_other_files_show_nothing(tmp_path: Path, name: str, text: str, said: str | None) -> None:
    (tmp_path / name).write_text(text)
    follows = written(tmp_path)
    assert follows.look() is None
    unclear = follows.unclear()
    assert unclear == said if said is None or unclear is None else re.match(said, unclear)


def test_a_new_file_outside_of_the_folder_of_a_run_is_named(tmp_path: Path) -> None:
    out_dir, hidden = tmp_path / "runs/out", tmp_path / ".venv"
    for folder in (out_dir, hidden, tmp_path / "logs"):
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text(CSV)
    os.utime(out_dir, (100.0, 100.0))
    os.utime(tmp_path / "logs/metrics.csv", (99.0, 99.0))
    assert elsewhere(tmp_path, out_dir) is None
    os.utime(tmp_path / "logs/metrics.csv", (101.0, 101.0))
    assert elsewhere(tmp_path, out_dir) == tmp_path / "logs/metrics.csv"
    assert elsewhere(out_dir, out_dir) is None


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_steps_of_tensorboard_are_iterations(tmp_path: Path) -> None:
    writer = import_module("tensorboard.summary").Writer(str(tmp_path))
    for step in range(5):
        writer.add_scalar("loss", 0.5, step * 10)
    writer.close()
    found = written(tmp_path).look()
    assert found is not None
    assert found.file is not None
    assert (found.file.pattern, found.file.columns) == ("events.out.tfevents*", {"iteration": "step"})
    assert found.reports[-1].iteration == 40
