"""The workloads for real: two CPU ranks in one session run workload after workload."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests_sessions import Message, follow

from tuner.probe.process import reserved_port
from tuner.probe.protocols import MonotonicClock
from tuner.probe.session import Sessions
from tuner.study.space import Config
from tuner.tools.scaling.subjects import workload_plan
from tuner.trainers.trainer_check import make_slot

pytestmark = pytest.mark.early

RUNS: list[tuple[str, Config, int]] = [
    ("fusion", {"size": 2, "exchange": True}, 2),
    ("pipeline", {"size": 8, "exchange": True}, 4),
    ("pipeline", {"size": 8, "exchange": False}, 4),
    ("allreduce", {"size": 4096, "exchange": True}, 1),
]
"""Workload, config, and the samples of a rank in a step."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[list[Message]]:
    """Return the reports of each run."""
    folder: Path = tmp_path_factory.mktemp("workloads")
    sessions = Sessions(MonotonicClock())
    with reserved_port() as port:
        for number, (workload, config, _) in enumerate(RUNS):
            plan = workload_plan(workload, config, make_slot(folder / str(number), port=port))
            run = sessions(replace(plan, request={**(plan.request or {}), "iterations": 1}))
            follow(run)
            assert run.release() == 0
    sessions.close()
    (path,) = folder.rglob("progress.jsonl")
    lines = path.read_text().split('{"type": "done"')
    return [[json.loads(one) for one in part.splitlines() if '"iteration"' in one] for part in lines]


@pytest.mark.parametrize("number", range(len(RUNS)), ids=[f"{name}-{config}" for name, config, _ in RUNS])
def test_both_ranks_work_through_the_same_number_of_steps(number: int, reports: list[list[Message]]) -> None:
    first, second = reports[number]
    assert {first["rank"], second["rank"]} == {0, 1}
    assert first["samples"] == second["samples"] > 0
    assert first["samples"] % RUNS[number][2] == 0
    assert first["busy_s"] > 0
