"""What a SLURM job asks for."""

import pytest
from pydantic import ValidationError

from tuner.cli.slurm import device_names, job_options, script_header
from tuner.errors import StudyError
from tuner.study.spec import SlurmSpec


def test_a_job_is_one_task_with_all_its_gpus() -> None:
    spec = SlurmSpec(gpus=8, cpus_per_task=64, partition="h200", account="lab", time_min=90, mem_gb=500)
    assert list(script_header(spec, "auto", "demo")) == [
        "#!/bin/bash",
        "#SBATCH --job-name=demo",
        "#SBATCH --partition=h200",
        "#SBATCH --account=lab",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        "#SBATCH --gres=gpu:8",
        "#SBATCH --cpus-per-task=64",
        "#SBATCH --mem=500G",
        "#SBATCH --time=90",
        "# --time is that of a job of the search (slurm.time_min); a training may need more",
    ]


def test_a_job_of_several_nodes_is_a_task_on_each_with_gpus_of_its_own() -> None:
    spec = SlurmSpec(nodes=2, gpus=4)
    options = job_options(spec, "auto")
    assert (options["nodes"], options["ntasks-per-node"], options["gres"]) == (2, 1, "gpu:4")
    assert device_names(spec, "auto") == tuple(f"cuda:{card}" for card in range(8))
    assert len(device_names(spec, "auto:3")) == 6
    assert len(device_names(spec, "cpu:2")) == 4


def test_a_job_has_the_gpus_that_the_study_names() -> None:
    assert job_options(SlurmSpec(), "0,1")["gres"] == "gpu:2"
    assert "gres" not in job_options(SlurmSpec(), "cpu:2")
    with pytest.raises(StudyError, match="gpus is 1, and devices 0,1 names 2 GPUs"):
        job_options(SlurmSpec(gpus=1), "0,1")


def test_the_devices_of_a_job_are_those_that_the_study_file_names() -> None:
    for gpus, devices, names in [
        (8, "auto", [f"cuda:{card}" for card in range(8)]),
        (8, "auto:2", ["cuda:0", "cuda:1"]),
        (None, "auto:2", ["cuda:0", "cuda:1"]),
        (1, "auto:2", ["cuda:0"]),
        (0, "auto:2", ["cpu:0", "cpu:1"]),
        (8, "4,6", ["cuda:0", "cuda:1"]),
        (None, "4,6,7", ["cuda:0", "cuda:1", "cuda:2"]),
        (None, "cpu:3", ["cpu:0", "cpu:1", "cpu:2"]),
        (2, "cpu", ["cpu:0", "cpu:1"]),
        (0, "auto", ["cpu:0", "cpu:1"]),
    ]:
        assert list(device_names(SlurmSpec(gpus=gpus), devices)) == names


def test_nothing_says_how_many_gpus_a_job_has() -> None:
    with pytest.raises(StudyError, match=r"slurm\.gpus is missing.* write `slurm: \{gpus: 8\}`"):
        job_options(SlurmSpec(), "auto")


def test_lines_of_the_set_up_follow_the_options() -> None:
    assert list(script_header(SlurmSpec(setup=("module load cuda",)), "cpu:2", "demo"))[-1] == "module load cuda"


def test_what_no_job_can_have_is_refused() -> None:
    with pytest.raises(ValidationError, match="partition"):
        SlurmSpec.model_validate({"partition": "a\n#SBATCH --wrap=x"})
