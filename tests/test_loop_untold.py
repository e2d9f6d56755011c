"""The loop where the database goes away while a probe runs: what was measured is kept."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests_loop import CASE, Quiet, bench, busy, opened, spec

from tuner.errors import StoreError, TrainerError
from tuner.job import Job
from tuner.loop import optimise
from tuner.probe.plan import ProbePlan
from tuner.probe.result import ProbeResult
from tuner.probe.run import Stop


def broken_off(folder: Path, probe: Callable[[ProbePlan, Stop], ProbeResult]) -> list[str]:
    """Let the database lose its trials during the first probe; give the lines of the message that it comes to."""

    def last(plan: ProbePlan, stop: Stop) -> ProbeResult:
        with closing(sqlite3.connect(folder / "study.db")) as other:
            other.execute("drop table trials")
            other.commit()
        return probe(plan, stop)

    with opened(folder) as database:
        job = Job(bench=bench(folder, spec()), database=database, probe=last, watcher=Quiet(), interrupted=bool)
        with pytest.raises(StoreError) as caught:
            optimise(job, [CASE])
    return str(caught.value).splitlines()


def test_what_could_not_be_told_is_kept_in_the_probe_s_folder_and_named(tmp_path: Path) -> None:
    reason, kept = broken_off(tmp_path, busy)
    file = tmp_path / "demo/probes/walk/0000/result.json"
    assert "no such table: trials" in reason
    assert kept == f"what the last probe measured could not be told and is kept in {file}"
    record = json.loads(file.read_text())
    assert (record["status"], record["metrics"]["min_avg_util"]) == ("ok", 64.0)
    assert record["config"] == {"num_envs": 64, "agent_variant": "hiutil"}


def test_where_the_file_cannot_be_written_the_reason_stands_alone(tmp_path: Path) -> None:
    def in_the_way(plan: ProbePlan, stop: Stop) -> ProbeResult:
        (plan.slot.out_dir / "result.json").mkdir()
        return busy(plan, stop)

    (reason,) = broken_off(tmp_path, in_the_way)
    assert "no such table: trials" in reason


def test_of_what_was_never_launched_nothing_is_kept(tmp_path: Path) -> None:
    def refused(plan: ProbePlan, stop: Stop) -> ProbeResult:
        raise TrainerError("the trainer cannot be started: no train")

    (reason,) = broken_off(tmp_path, refused)
    assert "no such table: trials" in reason
    assert not list(tmp_path.rglob("result.json"))
