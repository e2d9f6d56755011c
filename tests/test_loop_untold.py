"""The loop if the database goes away while a probe runs: the result is kept."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from tests_database import empty_database
from tests_loop import CASE, Quiet, bench, busy, opened, spec

from tuner.errors import StoreError, TrainerError
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import ProbeResult
from tuner.records.schema import LEASE
from tuner.running.job import Job
from tuner.running.loop import optimize
from tuner.store.database import Database
from tuner.store.leases import Lease, this_host

GONE = Lease(host=this_host(), pid=os.getpid(), boot="another boot", ticks=1, beat=0.0)
"""The lease of a process that is gone. This process has its pid now."""


def work(folder: Path, database: Database, probe: Callable[[ProbePlan, Stop], ProbeResult]) -> Quiet:
    listener = Quiet()
    job = Job(bench=bench(folder, spec()), database=database, probe=probe, listener=listener, interrupted=bool)
    optimize(job, [CASE])
    return listener


def broken_off(folder: Path, probe: Callable[[ProbePlan, Stop], ProbeResult]) -> list[str]:
    """Let the database lose its trials during the first probe; return the lines of the resulting message."""

    def last(plan: ProbePlan, stop: Stop) -> ProbeResult:
        with closing(sqlite3.connect(folder / "study.db")) as other:
            other.execute("drop table trials")
            other.commit()
        return probe(plan, stop)

    with opened(folder) as database, pytest.raises(StoreError) as caught:
        work(folder, database, last)
    return str(caught.value).splitlines()


def test_a_result_that_cannot_be_stored_is_kept_in_the_probe_s_folder_and_named(tmp_path: Path) -> None:
    reason, kept = broken_off(tmp_path, busy)
    file = tmp_path / "demo/probes/walk/0000/result.json"
    assert "no such table: trials" in reason
    assert kept == f"the result of the last probe is kept in {file}; the next run stores it if the trial is still open"
    record = json.loads(file.read_text())["record"]
    assert (record["status"], record["metrics"]["min_avg_util"]) == ("ok", 64.0)
    assert record["config"] == {"num_envs": 64, "agent_variant": "hiutil"}


def now_held_by(lease: Lease, database: Path) -> None:
    """Replace the lease of every trial in a database."""
    with closing(sqlite3.connect(database)) as other:
        lease_json = json.dumps(lease.write())
        other.execute("update trial_user_attributes set value_json = ? where key = ?", (lease_json, LEASE))
        other.commit()


@pytest.mark.usefixtures("journal_in_a_file")
@pytest.mark.parametrize("told_by_another", [False, True])
def test_the_next_run_stores_the_result_if_the_trial_is_still_open(tmp_path: Path, told_by_another: bool) -> None:
    def away(plan: ProbePlan, stop: Stop) -> ProbeResult:
        shutil.move(tmp_path / "study.db", tmp_path / "there.db")
        (tmp_path / "study.db").write_bytes(empty_database())
        return busy(plan, stop)

    with opened(tmp_path) as database, pytest.raises(StoreError):
        work(tmp_path, database, away)
    shutil.move(tmp_path / "there.db", tmp_path / "study.db")
    now_held_by(GONE, tmp_path / "study.db")
    (file,) = tmp_path.rglob("result.json")
    another = replace(GONE, ticks=2)
    kept = json.loads(file.read_text()) | {"lease": (another if told_by_another else GONE).write()}
    file.write_text(json.dumps(kept))

    with opened(tmp_path) as database:
        listener = work(tmp_path, database, busy)
        first, *others = optuna.load_study(study_name="demo/walk", storage=database.storage).trials
    assert listener.taken_back == ((0, 1) if told_by_another else (1, 0))
    assert first.value == (None if told_by_another else 64.0)
    assert (first.params in [trial.params for trial in others]) is told_by_another
    assert file.exists() is told_by_another


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
