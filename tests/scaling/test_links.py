"""All-reduces for real: two CPU ranks in one session run size after size."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests_sessions import follow

from tuner.probe.probe_plan import MonotonicClock
from tuner.probe.process import Sessions, reserved_port
from tuner.tools.scaling.campaign import links_plan
from tuner.trainers.base import make_slot


@pytest.mark.early
def test_both_ranks_make_the_same_all_reduces(tmp_path: Path) -> None:
    sessions = Sessions(MonotonicClock())
    with reserved_port() as port:
        for size in (1, 4096):
            plan = links_plan(size, make_slot(tmp_path / str(size), port=port))
            run = sessions(replace(plan, request={**(plan.request or {}), "iterations": 1}))
            follow(run)
            assert run.release() == 0
    sessions.close()
    (path,) = tmp_path.rglob("progress.jsonl")
    for part in path.read_text().split('{"type": "done"')[:2]:
        first, second = (json.loads(line) for line in part.splitlines() if '"iteration"' in line)
        assert {first["rank"], second["rank"]} == {0, 1}
        assert first["samples"] == second["samples"] > 0
        assert first["busy_s"] > 0
