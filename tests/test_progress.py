"""The file that trainers copy, in separate processes as trainers use it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner.progress
from tuner.probe.process import Requests


class Tuner:
    """The tuner's side: a trainer's folder with the copied file, and the pipe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._progress = folder / "told.jsonl"
        self.requests = Requests(folder / "requests")
        shutil.copy(tuner.progress.__file__, folder / "progress.py")

    def start(self, code: str, **env: str) -> "subprocess.Popen[str]":
        variables = {"TUNER_PROGRESS": str(self._progress), "TUNER_REQUESTS": str(self.requests.path)}
        command = [sys.executable, "-S", "-u", "-c", f"from progress import *\n{code}"]
        return subprocess.Popen(
            command, cwd=self._folder, env={**os.environ, **variables, **env}, stdout=subprocess.PIPE, text=True
        )

    def run(self, code: str, **env: str) -> str:
        process = self.start(code, **env)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return said

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._progress.read_text().splitlines()]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Tuner]:
    side = Tuner(tmp_path)
    yield side
    side.requests.close()


SERVE = """
for request in requests():
    print(request["config"])
    for iteration in range(request["iterations"]):
        report(iteration=iteration)
        if stopped(): break
    if request.get("last"): break
"""


def test_a_report_is_one_record_without_what_is_unknown(other: Tuner) -> None:
    other.run("report(iteration=3, samples=64, rank=0, busy_s=0.5)\nreport(iteration=4, alloc_retries=0)")
    first, second = other.told()
    assert first.pop("t_s") <= second.pop("t_s")
    assert first == {"type": "iteration", "iteration": 3, "samples": 64, "rank": 0, "busy_s": 0.5}
    assert second == {"type": "iteration", "iteration": 4, "alloc_retries": 0}


def test_a_debugger_may_look_at_the_variables_of_a_report(other: Tuner) -> None:
    other.run(
        "import sys\ndef look(frame, *_): return frame.f_locals and look\nsys.settrace(look)\nreport(iteration=3)"
    )
    assert [message["iteration"] for message in other.told()] == [3]


def test_without_a_tuner_nothing_is_reported(other: Tuner) -> None:
    other.run("report(iteration=3)\nfailed('x')", TUNER_PROGRESS="")
    with pytest.raises(FileNotFoundError):
        other.told()


def test_ranks_do_not_mix_their_records(other: Tuner) -> None:
    code = "import os\nrank = int(os.fork() == 0)\nfor number in range(500): report(iteration=number, rank=rank)\n"
    other.run(code + "if rank == 0: os.wait()")
    assert sorted((record["rank"], record["iteration"]) for record in other.told()) == [
        (rank, number) for rank in range(2) for number in range(500)
    ]


def test_runs_are_served_in_turn(other: Tuner) -> None:
    other.requests.send("run", config="a", iterations=1)
    other.requests.send("run", config="b", iterations=2, last=True)
    assert other.run(SERVE).split() == ["a", "b"]
    assert [record["type"] for record in other.told()] == ["ready", "iteration", "done", "iteration", "iteration"]


def test_a_stop_ends_the_run_it_was_meant_for(other: Tuner) -> None:
    other.requests.send("run", config="a", iterations=5)
    other.requests.send("stop", after=0)
    other.requests.send("run", config="b", iterations=2, last=True)
    assert other.run(SERVE).split() == ["a", "b"]
    assert [record["type"] for record in other.told()] == ["ready", "iteration", "done", "iteration", "iteration"]


def test_a_stop_that_comes_early_ends_a_run_after_the_iteration_that_it_names(other: Tuner) -> None:
    for last in (2, 1):
        other.requests.send("run", config="a", iterations=5, last=last == 1)
        other.requests.send("stop", after=last)
    other.run(SERVE)
    assert [record.get("iteration") for record in other.told()] == [None, 0, 1, 2, None, 0, 1]


@pytest.mark.parametrize(("fields", "midway"), [({"after": 0}, "False\n"), ({"at_once": True}, "True\n")])
def test_only_a_stop_at_once_ends_a_run_midway(other: Tuner, fields: dict[str, int], midway: str) -> None:
    other.requests.send("run")
    other.requests.send("stop", **fields)
    assert other.run("next(requests())\nreport(iteration=0)\nprint(stopped() and stopped(midway=True))") == midway


def test_a_stop_that_comes_after_its_run_ends_no_other(other: Tuner) -> None:
    other.requests.send("stop", after=0)
    other.requests.send("run", config="a", iterations=2, last=True)
    other.run(SERVE)
    assert [record["type"] for record in other.told()] == ["ready", "iteration", "iteration"]


def test_the_end_of_the_pipe_is_the_end_of_the_session(other: Tuner) -> None:
    process = other.start(SERVE)
    other.requests.send("run", config="a", iterations=1)
    assert process.stdout is not None
    assert process.stdout.readline() == "a\n"
    other.requests.close()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert [record["type"] for record in other.told()] == ["ready", "iteration", "done"]


def test_the_end_of_the_pipe_stops_a_run(other: Tuner) -> None:
    process = other.start(SERVE)
    other.requests.send("run", config="a", iterations=10**9)
    assert process.stdout is not None
    assert process.stdout.readline() == "a\n"
    other.requests.close()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_why_a_session_cannot_go_on_is_reported(other: Tuner) -> None:
    other.run("failed('it exploded', kind='gpu_oom', rank=1)\nfailed('why')")
    assert other.told() == [
        {"type": "failed", "detail": "it exploded", "kind": "gpu_oom", "rank": 1},
        {"type": "failed", "detail": "why"},
    ]
