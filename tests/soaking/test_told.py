"""`tuner told`: the study learns that a real training ran out of memory, and names the next config."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests_loop import CASE, Quiet, bench, best, busy, opened, spec, view

from tuner.errors import StudyError
from tuner.probe.result import FailureKind
from tuner.running.job import Job
from tuner.running.loop import optimize
from tuner.study import Config
from tuner.tools.soaking import WholeTraining, job_of_failure, reported_failure, soak_purpose

LOG = [
    "step 900 loss 0.1",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.65 GiB "
    "of which 1.00 GiB is free.",
]


def test_the_study_avoids_the_config_that_ran_out_and_all_that_need_as_much(tmp_path: Path) -> None:
    study = spec(space={"num_envs": {"ladder": [64, 32, 16]}}, search={"trials": 3, "sampler": "random"})
    with opened(tmp_path / "demo") as database:
        job = Job(
            bench=bench(tmp_path, study), database=database, probe=busy, listener=Quiet(), interrupted=lambda: False
        )
        optimize(job, [CASE])
        assert best(tmp_path / "demo").config == {"num_envs": 64}
        failure = reported_failure(LOG, oom=False, gpu=True)
        assert failure.kind is FailureKind.GPU_OOM
        assert failure.overshoot_mib == 2048.0
        optimize(job_of_failure(job, {"num_envs": 64}, failure, "num_envs"), [CASE])
    assert best(tmp_path / "demo").config == {"num_envs": 32}
    kept = view(tmp_path / "demo").trials[-1].probe.failure
    assert kept is not None
    assert kept.overshoot_mib == 2048.0


@pytest.mark.parametrize(
    ("told", "left"),
    [({"num_envs": 32}, 16), ({"num_envs": 64}, 32), ({"num_envs": 16}, None)],
)
def test_no_larger_config_is_named_where_the_hosts_memory_ran_out(
    tmp_path: Path, told: Config, left: int | None
) -> None:
    """Where memory ends is learnt from cards alone, and the best is the largest; a person knows more of the host."""
    study = spec(space={"num_envs": {"ladder": [64, 32, 16]}}, search={"trials": 3, "sampler": "random"})
    with opened(tmp_path / "demo") as database:
        job = Job(
            bench=bench(tmp_path, study), database=database, probe=busy, listener=Quiet(), interrupted=lambda: False
        )
        optimize(job, [CASE])
        optimize(replace(job, purpose=soak_purpose(job.bench, 15.0, WholeTraining.of(job.bench, 1.0))), [CASE])
        optimize(job_of_failure(job, told, reported_failure((), oom=True, gpu=False), "num_envs"), [CASE])
    found = view(tmp_path / "demo").best
    assert (found and found.config["num_envs"]) == left


def test_a_log_that_shows_another_failure_or_none_teaches_nothing() -> None:
    with pytest.raises(StudyError, match="missing_dependency"):
        reported_failure(["ModuleNotFoundError: No module named 'apex'"], oom=False, gpu=True)
    with pytest.raises(StudyError, match="--oom"):
        reported_failure((), oom=False, gpu=True)
    assert reported_failure((), oom=True, gpu=False).kind is FailureKind.HOST_OOM
