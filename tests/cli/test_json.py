"""`--json`: one document on stdout and nothing else, with the keys that docs/scripts.md lists."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests_cli import Tuner, study_file
from tests_docs import ROOT, of

DATABASE = f"sqlite:///{ROOT}/benchmarks/results/pi_plus_auto_two_h200/study.db"
FREE = {"config", "measured_on", "options", "front"}
"""Keys whose values have keys of their own: names of parameters, of devices, of files, of columns."""


def keys(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from keys(part)
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield name
            if name not in FREE:
                yield from keys(part)


def document(printed: str) -> Any:
    """Return the one document that was printed; all its keys are on the page."""
    read = json.loads(printed)
    assert set(keys(read)) <= {piece.text for piece in of("scripts.md", "inline")}
    return read


def test_a_status_has_what_the_table_shows(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIMICKIT_ROOT", "x")
    code, out, err = tuner("status", "--study", "pi_plus", "--storage", DATABASE, "--json")
    assert (code, err) == (0, "")
    case = next(one for one in document(out)["cases"] if one["case"] == "deepmimic_pi_plus_ppo")
    assert case["best"]["trial"] == 16
    assert case["best"]["config"]["num_envs"] == 32768
    assert case["rungs"][0] == 32
    assert case["ended"] == "98% sure that no config is 1% better than the best"


def test_what_is_no_document_goes_to_stderr(tuner: Tuner) -> None:
    code, out, err = tuner("cases", "--study", "pi_plus", "--json")
    assert code == 0
    assert "its fallback reference stands in" in err
    assert {one["case"]: one["in_study"] for one in document(out)["cases"]}["amp_pi_plus"] is True


def test_export_names_the_written_files(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIMICKIT_ROOT", "x")
    code, out, _ = tuner("export", "--study", "pi_plus", "--storage", DATABASE, "--json")
    assert code == 0
    assert str(tmp_path / "runs/pi_plus/best_by_case.tsv") in document(out)["files"]
    assert all(Path(file).is_file() for file in document(out)["files"])


def test_a_doctor_that_finds_a_problem_prints_its_document_too(tuner: Tuner, tmp_path: Path) -> None:
    code, out, err = tuner("doctor", "--study", study_file(tmp_path), "--devices", "0,97", "--json")
    assert code == 2
    problems = [one["subject"] for one in document(out)["findings"] if one["level"] == "problem"]
    assert problems == ["devices"]
    assert "1 problem with study demo" in err


@pytest.mark.parametrize("command", ["status", "export"])
def test_an_error_leaves_stdout_empty(tuner: Tuner, tmp_path: Path, command: str) -> None:
    code, out, err = tuner(command, "--study", study_file(tmp_path), "--json")
    assert (code, out) == (2, "")
    assert "there is no study database" in err


def test_a_database_of_the_study_itself_is_read_although_another_would_stand_in(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIMICKIT_ROOT", raising=False)
    code, out, err = tuner("status", "--study", "pi_plus", "--storage", DATABASE, "--json")
    assert (code, err) == (0, "")
    assert document(out)["study"] == "pi_plus"


@pytest.mark.parametrize("command", [["plan", "--best"], ["soak"]])
def test_what_trains_with_a_best_needs_the_trainer_of_its_study(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("MIMICKIT_ROOT", raising=False)
    code, out, err = tuner(*command, "--study", "pi_plus", "--storage", DATABASE)
    assert (code, out, "is MIMICKIT_ROOT set?" in err) == (2, "", True)
