"""Each finished trial is a run at MLflow, W&B and TensorBoard, once. Tests with a client need its package."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tuner.errors import OutputError, TunerError
from tuner.export.reader import StudyReader, connect
from tuner.export.tracking import SentRun, runs, send

if TYPE_CHECKING:
    from conftest import FilledDatabase


@pytest.fixture
def study(database: "FilledDatabase") -> StudyReader:
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 1024, "agent_variant": "hiutil"}, utils=(61.0, 63.0))
    database.add(case, {"num_envs": 2048, "agent_variant": "hiutil"}, utils=(81.0, 83.0))
    database.add(case, {"num_envs": 4096, "agent_variant": "hiutil"}, status="gpu_oom", detail="no memory")
    database.running(case)
    return StudyReader(connect(database.url), "pi_plus")


def test_a_run_says_what_its_trial_came_to(study: StudyReader) -> None:
    found: list[SentRun] = list(runs(study))
    assert [run.name for run in found] == ["add_pi_plus/0", "add_pi_plus/1", "add_pi_plus/2"]  # none for a running one
    assert [run.tags["best"] for run in found] == ["false", "true", "false"]
    assert [run.metrics.get("min_avg_util") for run in found] == [61.0, 81.0, None]
    assert (found[2].tags["status"], found[2].config["num_envs"]) == ("gpu_oom", 4096)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own use of SQLAlchemy
def test_mlflow_has_each_trial_once(study: StudyReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri := f"sqlite:///{tmp_path}/mine.db")
    for _ in range(2):
        assert send(study, ["mlflow"], tmp_path) == {"mlflow": f"experiment pi_plus at {uri}"}
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("pi_plus").experiment_id
    there = sorted(client.search_runs([experiment]), key=lambda one: one.info.run_name)
    assert [one.info.status for one in there] == ["FINISHED", "FINISHED", "FAILED"]
    best = there[1].data
    assert (best.metrics["min_avg_util"], best.params["num_envs"], best.tags["best"]) == (81.0, "2048", "true")


def test_tensorboard_reads_configs_and_numbers(study: StudyReader, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    plugin_data = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    for _ in range(2):
        assert str(tmp_path / "tensorboard") in send(study, ["tensorboard"], tmp_path)["tensorboard"]
    assert len(list((tmp_path / "tensorboard/add_pi_plus/1").iterdir())) == 1
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard/add_pi_plus/1")).Reload()
    assert [one.value for one in events.Scalars("min_avg_util")] == [81.0]
    kept = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    begun = plugin_data.HParamsPluginData.FromString(kept).session_start_info
    assert begun.hparams["num_envs"].number_value == 2048


def test_wandb_keeps_runs_without_an_account(
    study: StudyReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert "wandb sync" in send(study, ["wandb"], tmp_path)["wandb"]
    kept = [file for folder in (tmp_path / "wandb").glob("offline-run-*") for file in folder.glob("*.wandb")]
    assert sorted(file.name for file in kept) == [f"run-pi_plus-add_pi_plus-{number}.wandb" for number in range(3)]
    assert any(b"min_avg_util" in file.read_bytes() for file in kept)


@pytest.mark.parametrize("tracker", ["mlflow", "wandb", "tensorboard"])
def test_a_missing_client_is_named_with_its_installation(
    study: StudyReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)  # as if it were not installed
    with pytest.raises(TunerError, match=rf"--{tracker} needs the package {tracker}: `pip install .*\[{tracker}\]"):
        send(study, [tracker], tmp_path)


def test_a_server_that_cannot_be_used_is_named(
    study: StudyReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://x")
    with pytest.raises(OutputError, match="MLFLOW_TRACKING_URI"):
        send(study, ["mlflow"], tmp_path)
