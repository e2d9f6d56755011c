"""A copy of a study for optuna-dashboard."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, download_artifact, get_all_artifact_meta
from optuna.distributions import CategoricalDistribution
from tests_later import Later

from tuner.errors import OutputError
from tuner.export.dashboard_copy import ARTIFACTS, DATABASE, copy_study
from tuner.export.reader import StudyReader, connect
from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample
from tuner.probe.series import SERIES_FILE, write_series
from tuner.probe.window import Mark, Window
from tuner.records.schema import CALIBRATES
from tuner.study.space import PATIENCE

if TYPE_CHECKING:
    import optuna_dashboard
    from conftest import FilledDatabase
else:
    optuna_dashboard = Later("optuna_dashboard")

MARKS = tuple(Mark(iteration=number, t_s=2.0 + number) for number in range(6))
SAMPLES = [DeviceSample(t_s=tick / 10, device=0, util_pct=50.0) for tick in range(90)]


def probe_folder(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "console.log").write_text("iteration 1\n")
    write_series(folder, SAMPLES, [Device(name="cuda:0", model="x")], marks=MARKS, window=Window(MARKS[1:]))


def copied(database: "FilledDatabase", folder: Path, notes: dict[str, str] | None = None) -> optuna.Study:
    copy = copy_study(StudyReader(connect(database.url), "pi_plus"), folder, notes or {})
    return optuna.load_study(study_name="pi_plus/add_pi_plus", storage=f"sqlite:///{copy / DATABASE}")


def test_optuna_reads_the_copy_as_it_reads_the_study(any_database: "FilledDatabase", tmp_path: Path) -> None:
    case = any_database.case("add_pi_plus")
    any_database.add(case, {"num_envs": 64}, utils=(50.0, 60.0), out_dir="probes/0")
    any_database.add(case, {"num_envs": 4096}, status="gpu_oom", detail="CUDA out of memory", out_dir="probes/1")
    any_database.case("walk", study="other")
    any_database.running(case)
    before = [trial.user_attrs for trial in case.trials]
    study = copied(any_database, tmp_path, {"add_pi_plus": "The **best** " + "x" * 5000})
    assert [trial.state for trial in study.trials] == [trial.state for trial in case.trials]
    assert study.best_value == 50.0
    assert study.metric_names == ["min_avg_util"]
    assert optuna.get_all_study_names(study._storage) == ["pi_plus/add_pi_plus"]
    assert study.trials[0].user_attrs["min_avg_util"] == 50.0
    assert study.trials[0].user_attrs["folder"] == "probes/0"
    failed = study.trials[1].user_attrs
    assert (failed["failure"], failed["out of memory"]) == ("gpu_oom", True)
    assert optuna_dashboard.get_note(study) == "The **best** " + "x" * 5000
    assert [trial.user_attrs for trial in case.trials] == before


def test_a_probes_log_and_series_are_artifacts_that_take_no_room(database: "FilledDatabase", tmp_path: Path) -> None:
    database.add(database.case("add_pi_plus"), {"num_envs": 64}, utils=(50.0,), out_dir="probes/0")
    probe_folder(tmp_path / "probes/0")
    copied(database, tmp_path)
    study = copied(database, tmp_path)  # replaces the first copy
    found = {one.filename: one for one in get_all_artifact_meta(study.trials[0], storage=study._storage)}
    assert found.keys() == {"console.log", SERIES_FILE}
    store = FileSystemArtifactStore(tmp_path / "dashboard" / ARTIFACTS)
    for name, meta in found.items():
        download_artifact(artifact_store=store, artifact_id=meta.artifact_id, file_path=str(tmp_path / name))
    assert (tmp_path / "console.log").read_text() == "iteration 1\n"
    assert (tmp_path / SERIES_FILE).read_bytes() == (tmp_path / "probes/0" / SERIES_FILE).read_bytes()
    assert all(file.is_symlink() for file in (tmp_path / "dashboard" / ARTIFACTS).iterdir())
    assert not list((tmp_path / "dashboard").glob(".*"))
    assert (tmp_path / "dashboard" / DATABASE).stat().st_mode & 0o077 == 0


def test_of_damaged_probes_the_copy_has_what_is_left(database: "FilledDatabase", tmp_path: Path) -> None:
    case, folder = database.case("add_pi_plus"), tmp_path / "probes"
    for number in range(6):
        database.add(case, {"num_envs": 64}, utils=(50.0,), out_dir=f"probes/{number}")
        probe_folder(folder / str(number))
    (folder / "0/console.log").unlink()
    (folder / "1" / SERIES_FILE).unlink()
    (folder / "2" / SERIES_FILE).write_bytes((folder / "2" / SERIES_FILE).read_bytes()[:700])
    (folder / "3" / SERIES_FILE).write_bytes(b"\xff\0" * 50)
    (folder / "4").rename(folder / "gone")
    (folder / "5/console.log").rename(tmp_path / "diary")
    (folder / "5/console.log").symlink_to(tmp_path / "diary")
    study = copied(database, tmp_path)
    found = [get_all_artifact_meta(trial, storage=study._storage) for trial in study.trials]
    assert [{one.filename for one in metas} for metas in found] == [
        {SERIES_FILE},
        {"console.log"},
        {"console.log", SERIES_FILE},
        {"console.log", SERIES_FILE},
        set(),
        {SERIES_FILE},
    ]


def test_trials_of_a_calibration_are_marked(database: "FilledDatabase", tmp_path: Path) -> None:
    case = database.case("add_pi_plus")
    first = case.ask()
    first.set_user_attr(CALIBRATES, True)
    first.set_user_attr("probe", {"status": "ok", "config": {}, "metrics": {"min_avg_util": 1.0}})
    case.tell(first, 1.0)
    database.add(case, {"num_envs": 64}, utils=(50.0,))
    assert [trial.user_attrs.get("calibration") for trial in copied(database, tmp_path).trials] == [True, None]


def test_the_patience_of_the_pruner_is_no_parameter_of_the_copy(database: "FilledDatabase", tmp_path: Path) -> None:
    case = database.case("add_pi_plus")
    for envs, patience, util in ((64, 1, 40.0), (128, 3, 50.0), (64, 3, 41.0), (128, 1, 52.0)):
        case.enqueue_trial({"num_envs": envs, PATIENCE: patience})
        trial = case.ask({"num_envs": CategoricalDistribution([64, 128]), PATIENCE: CategoricalDistribution([1, 3])})
        trial.set_user_attr("probe", {"status": "ok", "config": trial.params, "metrics": {"min_avg_util": util}})
        case.tell(trial, util)
    study = copied(database, tmp_path)
    assert [trial.params for trial in study.trials] == [{"num_envs": envs} for envs in (64, 128, 64, 128)]
    assert [trial.user_attrs[PATIENCE] for trial in study.trials] == [1, 3, 3, 1]
    assert [trial.params[PATIENCE] for trial in case.trials] == [1, 3, 3, 1]
    assert optuna.importance.get_param_importances(study).keys() == {"num_envs"}


@pytest.mark.parametrize(
    ("same", "other", "why"),
    [
        (False, {"warm": True}, "session"),
        (True, {"warm": True}, "session"),
        (True, {}, "mean of 2 measurements"),
        (False, {"ineligible": "too little memory is free"}, "too little memory is free"),
    ],
)
def test_a_note_says_why_the_highest_single_value_is_not_the_best(
    database: "FilledDatabase", tmp_path: Path, same: bool, other: dict[str, Any], why: str
) -> None:
    case = database.case("add_pi_plus")
    mean = "35.21" if why.startswith("mean") else "30.00"
    database.add(case, {"num_envs": 128}, utils=(40.42,), digest="same" if same else "other", **other)
    database.add(case, {"num_envs": 128 if same else 64}, utils=(30.0,), digest="same")
    note = optuna_dashboard.get_note(copied(database, tmp_path, {"add_pi_plus": "More."}))
    assert f"trial #1, with {mean}" in note
    assert "trial #0, with 40.42" in note
    assert why in note
    assert note.endswith("\n\nMore.")


def test_what_somebody_wrote_stays(database: "FilledDatabase", tmp_path: Path) -> None:
    case = database.case("add_pi_plus")
    optuna_dashboard.save_note(case, "do not trust #3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        case.set_metric_names(["my name"])
    study = copied(database, tmp_path, {"add_pi_plus": "The best"})
    assert optuna_dashboard.get_note(study) == "do not trust #3"
    assert study.metric_names == ["my name"]


def test_a_copy_that_cannot_be_written_is_named(database: "FilledDatabase", tmp_path: Path) -> None:
    database.case("add_pi_plus")
    (tmp_path / "dashboard").write_text("in the way")
    with pytest.raises(OutputError, match=r"cannot write .*dashboard"):
        copied(database, tmp_path)
