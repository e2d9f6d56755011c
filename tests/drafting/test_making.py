"""A study that is made of a command, and what is left where a person stops that."""

from pathlib import Path

import pytest

from tuner.drafting.making import Wanted, make_study
from tuner.drafting.writing import origin_line


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


@pytest.mark.parametrize("typed", ["env A=1 python train.py", "A=1 python train.py"])
@pytest.mark.parametrize("made_from", ["env A=1 python train.py", "A=1 python train.py"])
def test_the_study_of_the_same_command_is_used(tmp_path: Path, typed: str, made_from: str) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(f"{origin_line(made_from.split())}\nname: made\n")
    said: list[str] = []
    assert make_study(typed.split(), Wanted(out=file), said.append, warn=said.append, to_search=True) == str(file)
    assert len(said) == 1
