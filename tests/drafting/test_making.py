"""A study that is made of a command, and what is left where a person stops that."""

from pathlib import Path

import pytest

from tuner.drafting.making import Wanted, make_study


def test_what_was_there_before_a_stopped_first_run_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    kept = tmp_path / "train/init/mine.txt"
    kept.parent.mkdir(parents=True)
    kept.touch()

    def stopped(line: str) -> None:
        raise KeyboardInterrupt

    wanted = Wanted(devices="cpu:1", runs=Path())
    with pytest.raises(KeyboardInterrupt):
        make_study(["python", "train.py", "--batch-size", "8"], wanted, stopped, warn=stopped)
    assert kept.exists()
