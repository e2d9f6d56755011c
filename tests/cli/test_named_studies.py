"""`--study`: a study's name, a folder with results, or nothing where only one study has results."""

from pathlib import Path

import pytest
from tests_cli import Tuner, study_file

from tuner.cli.options import name_to_load, only_study
from tuner.drafting.writing import command_of_file
from tuner.errors import StudyError

TABLE = Path(__file__).parents[2] / "benchmarks/tables/pi_plus_two_h200/deepmimic_pi_plus_ppo.parquet"


def with_database(runs: Path, *names: str) -> None:
    """Let each of these folders have a database."""
    for name in names:
        (runs / name).mkdir(parents=True)
        (runs / name / "study.db").touch()


def test_the_only_study_with_results_needs_no_name(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no results yet"):
        only_study(tmp_path, replays=True)
    with_database(tmp_path, "walk-replay")
    assert only_study(tmp_path, replays=True) == "walk-replay"
    with pytest.raises(StudyError, match="replays alone"):
        only_study(tmp_path, replays=False)
    with_database(tmp_path, "walk")
    assert only_study(tmp_path, replays=False) == "walk"
    with pytest.raises(StudyError, match="--study walk or walk-replay"):
        only_study(tmp_path, replays=True)


def test_a_study_is_found_by_the_folder_of_its_results(tmp_path: Path) -> None:
    with_database(tmp_path, "demo-44-20s", "elsewhere", "demo-replay", "there/walk")
    (file := tmp_path / "demo-44-20s/study.yaml").touch()
    for study in ("demo-44-20s", str(tmp_path / "demo-44-20s")):
        assert name_to_load(study, tmp_path, replays=False) == str(file)
    assert name_to_load("demo-replay", tmp_path, replays=True) == "demo-replay"
    assert name_to_load("demo", tmp_path, replays=False) == "demo"
    for name, why in (
        ("demo-replay", "the study, demo"),
        ("elsewhere", "path"),
        ("nope", "with results in .*demo-44-20s"),
        (str(tmp_path / "there/walk"), f"--study walk --runs {tmp_path}/there"),
    ):
        with pytest.raises(StudyError, match=why):
            name_to_load(name, tmp_path, replays=False)


def test_a_study_may_be_called_as_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_database(tmp_path / "runs", "mem-replay")
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/mem-replay.yaml").touch()
    assert only_study(tmp_path / "runs", replays=False) == "mem-replay"


def test_a_database_elsewhere_needs_the_name_of_a_study(tuner: Tuner, tmp_path: Path) -> None:
    with_database(tmp_path / "runs", "old")
    code, out, err = tuner("status", "--storage", f"sqlite:///{tmp_path}/all.db")
    assert (code, out) == (2, "")
    assert "--study" in err


def test_a_study_of_other_values_is_shown_by_its_folder_and_asks_nothing(tuner: Tuner, tmp_path: Path) -> None:
    changed = ("--set", "num_envs=16", "--max-seconds", "20", "--n-trials", "1")
    code, out, err = tuner("optimize", "--yes", "--study", study_file(tmp_path), "--cases", "run", *changed)
    assert (code, err) == (0, "")
    kept = (tmp_path / "runs/demo-16-20s/study.yaml").read_text()
    code, out, err = tuner("optimize", "--yes", "--study", tmp_path / "demo.yaml", "--cases", "rum", *changed)
    assert (code, "rum" in err) == (2, True)
    assert (tmp_path / "runs/demo-16-20s/study.yaml").read_text() == kept
    assert tuner("optimize", "--study", "demo-16-20s", "--n-trials", "1")[0] == 0  # with the same case
    code, named, err = tuner("status", "--study", "demo-16-20s")
    assert (code, err) == (0, "")
    code, out, err = tuner("status")
    assert (code, out, "demo-16-20s" in err) == (0, named, True)
    assert "--study demo-16-20s" in tuner("plan", "--study", tmp_path / "demo.yaml", "--best")[2]
    code, out, _ = tuner("plan", "--best")
    assert (code, "train.py 16 " in out, "# run: " in out, "# walk: " in out) == (0, True, True, False)


def test_results_are_found_by_their_name_where_the_study_file_is_elsewhere_or_gone(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "two\nlines\x1b").mkdir()  # a remark has it in one line, without the control character
    monkeypatch.chdir(folder)
    file = study_file(folder, name="far")
    file.write_text(f"# Made by `tuner init` from: python train.py\n{file.read_text()}")
    assert tuner("optimize", "--study", file, "--n-trials", "1")[0] == 0
    kept = folder / "runs/far/study.yaml"
    assert command_of_file(kept) == command_of_file(file) == ["python", "train.py"]
    assert kept.read_text().endswith(file.read_text().partition("\n")[2])  # a block of text at the end stays as it is
    _, by_path, _ = tuner("status", "--study", file)
    file.unlink()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    for command in ("status", "export", "report", "plan"):
        code, out, err = tuner(command, "--study", "far", "--runs", folder / "runs")
        place = tmp_path / "two lines"
        origin = f"a copy of {place / file.name}, with which tuner ran in {place}; start tuner there"
        assert (code, origin in err) == (0, True), command
        assert command != "status" or out.splitlines()[:2] == by_path.splitlines()[:2]
        assert command != "status" or "--study far --runs" in out
    monkeypatch.chdir(folder)
    assert tuner("status", "--study", "far")[2] == ""


def test_a_replay_is_shown_by_its_folder_and_has_no_script(tuner: Tuner) -> None:
    assert tuner("optimize", "--study", "pi_plus", "--replay", TABLE, "--n-trials", "2", "--yes")[0] == 0
    code, out, _ = tuner("status")
    assert (code, "deepmimic_pi_plus_ppo" in out, "plan --study" in out) == (0, True, False)
    assert tuner("export", "--study", "pi_plus-replay")[0] == 0
    code, _, err = tuner("plan", "--study", "pi_plus-replay", "--best")
    assert (code, "a replay" in err) == (2, True)
