"""Keys that study files of older versions had: they are ignored, with one warning that names them."""

from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from tests_cli import study_file

from tuner.cli.options import load_shown
from tuner.records.case_record import as_of_now
from tuner.study.spec import RETIRED, PrunerSpec
from tuner.study.study_file import load, narrowed, without_effect

OLD: dict[str, Any] = {
    "probe": {"iterations": 4, "target_error_pct": 2, "idle_seconds": 60, "grace_seconds": 9},
    "search": {"certainty": 0.9, "confirm_alone": True},
    "pruner": {"margin_pct": 20, "patience": 3},
    "slurm": {"tasks": 1},
}


def test_an_old_study_loads_and_one_line_names_its_retired_keys(tmp_path: Path) -> None:
    told = StringIO()
    spec = load_shown(Console(file=told, width=1000), str(study_file(tmp_path, **OLD)))
    assert (spec.probe.iterations, spec.pruner.patience) == (4, 3)
    (line,) = told.getvalue().splitlines()
    assert all(f"`{key}`" in line for key in RETIRED)


def test_a_study_of_now_is_loaded_without_a_word(tmp_path: Path) -> None:
    told = StringIO()
    load_shown(Console(file=told), str(study_file(tmp_path)))
    assert told.getvalue() == ""


def test_retired_keys_of_overrides_are_ignored_and_named(tmp_path: Path) -> None:
    override = {"match": {"cases": ["walk"]}, "probe": {"grace_seconds": 9, "iterations": 6}}
    path = str(study_file(tmp_path, overrides=[override]))
    spec = load(path)
    assert narrowed(spec, "walk", "cpu").probe.iterations == 6
    assert without_effect(path) == ["probe.grace_seconds"]


def test_a_study_of_now_has_the_identity_that_an_older_version_kept_with_retired_settings() -> None:
    now = PrunerSpec(patience=3).model_dump(mode="json")
    assert as_of_now({"space": {}, "pruner": {**now, "margin_pct": 20.0}}) == {"space": {}, "pruner": now}
