"""A study with other values for one run."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tuner.errors import StudyError
from tuner.study.spec import StudySpec
from tuner.study.study_file import changed_study, load, names, narrowed


def test_a_run_has_the_named_rungs_and_limit_on_every_device_and_a_name_that_says_so() -> None:
    study = load("pi_plus", {"MIMICKIT_ROOT": "x"})
    run = changed_study(study, ["num_envs=44,40,39", "batch_size=1"], 300.0)
    assert run.name == "pi_plus-44-40-39-1-300s"
    for device in ("cpu", "gpu"):
        narrow = narrowed(run, "amp_pi_plus", device)
        assert narrow.build_space().rungs == (39, 40, 44)
        assert narrow.space["batch_size"].when == study.space["batch_size"].when
        assert narrow.probe.max_seconds == 300.0
    assert changed_study(study, ["num_envs=44,40,39", "batch_size=1"], 300.0) == run


def written(run: StudySpec, file: Path) -> Path:
    YAML(typ="safe").dump(run.model_dump(mode="json", exclude_unset=True), file)
    return file


@pytest.mark.parametrize("study", names())
def test_a_changed_study_can_be_written_and_read(study: str, tmp_path: Path) -> None:
    run = changed_study(load(study, {"MIMICKIT_ROOT": "x"}), [], 99.0)
    assert load(str(written(run, tmp_path / "run.yaml")), {}) == run


def test_a_changed_study_keeps_what_its_launch_has_added(tmp_path: Path) -> None:
    trainer = {"name": "command", "options": {"command": "torchrun train.py"}}
    (tmp_path / "s.yaml").write_text(json.dumps({"launch": "nccl", "trainer": trainer}))
    run = changed_study(load(str(tmp_path / "s.yaml")), ["NCCL_ALGO=Ring,Tree"], None)
    again = load(str(written(run, tmp_path / "run.yaml")))
    assert again.space["NCCL_ALGO"].choices == ("Ring", "Tree")
    assert again.space.keys() == run.space.keys()


@pytest.mark.parametrize("setting", ["num_evns=4", "num_envs", "num_envs=", "num_envs=a", "num_envs=4,4", "num_envs=["])
def test_a_setting_that_no_study_can_hold_is_refused(setting: str) -> None:
    with pytest.raises(StudyError, match="--set"):
        changed_study(load("reference", {}), [setting], None)
