"""The driver as a process, in a checkout in which MimicKit and torch are a few lines each."""

import json
import os
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests_mimickit import write_checkout

from tuner.trainers.mimickit import DRIVER


class Session:
    """A driver process, and the tuner's ends of its pipes."""

    def __init__(self, root: Path, devices: tuple[str, ...]) -> None:
        self._root = root
        self._pipes = {name: os.open(root / name, os.O_RDWR) for name in ("requests", "progress")}
        self._messages: list[dict[str, Any]] = []
        with (root / "console").open("wb") as console:
            self.process = subprocess.Popen(
                # -S: without site-packages, and so without the package `tuner`
                [sys.executable, "-S", DRIVER, "--devices", *devices, "--num_envs", "4", "--master_port", "1"],
                cwd=root,
                env={"TUNER_REQUESTS": str(root / "requests"), "TUNER_PROGRESS": str(root / "progress")},
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        self._exit = os.pidfd_open(self.process.pid)

    def send(self, **message: object) -> None:
        os.write(self._pipes["requests"], json.dumps(message).encode() + b"\n")

    def run(self, agent: str, iterations: int, **more: object) -> None:
        """Request a run. The agent file contains only the agent's name."""
        file = self._root / f"{agent}.yaml"
        file.write_text(agent)
        asked = {"config": {}, "iterations": iterations, "agent_config": str(file), "out_dir": f"out/{agent}"}
        self.send(type="run", **asked, **more)

    def next(self) -> dict[str, Any]:
        """Return the next message. If the driver has ended, fail with its output."""
        if not self._messages:
            pipe = self._pipes["progress"]
            readable, _, _ = select.select([pipe, self._exit], [], [])
            assert pipe in readable, self.console()
            self._messages += map(json.loads, os.read(pipe, 1 << 16).splitlines())
        return self._messages.pop(0)

    def until(self, last: str) -> list[dict[str, Any]]:
        """Return the messages before the next message of type `last`."""
        found = []
        while (message := self.next())["type"] != last:
            found.append(message)
        return found

    def marks(self) -> list[tuple[int, int, int]]:
        """Return rank, iteration and samples of the reports before the next `done`, sorted by rank."""
        return sorted((mark["rank"], mark["iteration"], mark["samples"]) for mark in self.until("done"))

    def events(self) -> list[str]:
        path = self._root / "events"
        return path.read_text().splitlines() if path.exists() else []

    def console(self) -> str:
        return (self._root / "console").read_text()

    def hang_up(self) -> None:
        """Close the pipe of requests."""
        os.close(self._pipes.pop("requests"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for descriptor in (self._exit, *self._pipes.values()):
            os.close(descriptor)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_checkout(tmp_path)
    for name in ("requests", "progress"):
        os.mkfifo(tmp_path / name)
    return tmp_path


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Session]]:
    started: list[Session] = []

    def start(*devices: str) -> Session:
        started.append(Session(root, devices))
        return started[-1]

    yield start
    for session in started:
        with closing(session):
            pass


def test_one_environment_serves_agents_one_after_another(start):
    session = start("cpu", "cpu")
    assert session.until("ready") == []
    assert (
        session.events() == ["built cpu 4"] * 2
    )  # a search by the garbage collector, then or later, would be an event

    for agent in ("first", "second"):
        session.run(agent, iterations=2)
        assert session.marks() == [(0, 0, 4), (0, 1, 8), (1, 0, 4), (1, 1, 8)]

    assert Counter(session.events()) == Counter(
        {"built cpu 4": 2, "emptied": 4, "tested 0.0 0.0 0": 8}  # tested, but without a rollout
        | {f"trains {agent} out/{agent} False txt": 2 for agent in ("first", "second")}
        | {f"freed {agent}": 2 for agent in ("first", "second")}
    )


def test_a_run_is_done_when_every_rank_has_freed_its_agent(start):
    session = start("cpu", "cpu")
    session.run("first", iterations=1)
    session.until("done")
    assert session.events().count("freed first") == session.events().count("emptied") == 2


def test_a_run_that_is_done_leaves_no_log_open(start):
    session = start("cpu", "cpu")
    for agent in ("first", "second"):
        session.run(agent, iterations=1)
        session.until("done")
    assert "log.txt" not in {Path(file.path).name for file in psutil.Process(session.process.pid).open_files()}


def test_a_stop_ends_a_run_at_the_same_iteration_on_all_ranks(start):
    session = start("cpu", "cpu")
    session.until("ready")
    session.run("long", iterations=10**9)
    first = session.next()
    session.send(type="stop", after=first["iteration"])
    reports = [first, *session.until("done")]
    told = [[report["iteration"] for report in reports if report["rank"] == rank] for rank in (0, 1)]
    assert told == [list(range(len(reports) // 2))] * 2

    session.run("next", iterations=1)
    assert session.marks() == [(0, 0, 4), (1, 0, 4)]


def test_a_stop_ends_a_run_in_the_middle_of_an_iteration(start):
    session = start("cpu", "cpu")
    session.run("stopped in the second iteration", iterations=2)  # a run without an end of its own
    session.until("ready")
    assert session.marks() == [(0, 0, 4), (1, 0, 4)]
    assert session.events().count("freed stopped in the second iteration") == 2

    session.run("next", iterations=3)
    assert [mark[:2] for mark in session.marks()] == [(rank, iteration) for rank in (0, 1) for iteration in range(3)]


def test_a_thin_run_begins_with_the_smallest_share_of_its_epochs_and_reports_it(start):
    session = start("cpu", "cpu")
    session.run("counted", iterations=3, thin=True)
    session.until("ready")
    reports = session.until("done")

    first, *later = [report for report in reports if report["rank"] == 0]
    assert first["thin_by"] == 2.0
    assert 0 < first["thin_from_s"] <= first["t_s"]
    assert not any("thin_by" in report for report in later)  # all updates, because they take almost no time here
    epochs = Counter(event for event in session.events() if event.endswith("epochs"))
    assert epochs == {"trains 3 2 epochs": 2, "trains 6 4 epochs": 4}


def test_a_run_that_is_not_to_be_thin_makes_all_updates(start):
    session = start("cpu")
    session.run("counted", iterations=2)
    session.until("ready")
    assert not any("thin_by" in report for report in session.until("done"))
    assert session.events().count("trains 6 4 epochs") == 2


def test_no_more_requests_end_all_ranks(start):
    session = start("cpu", "cpu")
    session.run("first", iterations=1)
    session.until("done")
    ranks = psutil.Process(session.process.pid).children(recursive=True)
    assert ranks

    session.hang_up()

    assert session.process.wait() == 0
    assert psutil.wait_procs(ranks, timeout=30)[1] == []
    assert session.console() == ""


def test_a_rank_alone_needs_no_other(start):
    session = start("cpu")
    session.run("first", iterations=2)
    assert session.until("ready") == []
    assert session.marks() == [(0, 0, 4), (0, 1, 8)]


def test_a_gpu_is_waited_for_and_its_allocator_s_retries_are_reported(start):
    session = start("cuda:0")
    session.until("ready")
    session.run("first", iterations=1)
    assert [report["alloc_retries"] for report in session.until("done")] == [3]
    assert [word for word in session.events() if word.endswith("cuda:0") or word == "emptied"] == [
        "reset cuda:0",
        *["synchronized cuda:0"] * 2,
        "emptied",
    ]


def test_a_rank_that_fails_says_why_and_ends_the_session(start):
    session = start("cpu", "cpu")
    session.run("greedy", iterations=2)
    assert session.process.wait() != 0
    assert "MemoryError: no room for greedy\n" in session.console()


BASE_AGENT = "learning.base_agent.BaseAgent"


@pytest.mark.parametrize(
    ("file", "change", "what"),
    [
        ("learning/agent_builder.py", ("build_agent", "make_agent"), "no learning.agent_builder.build_agent, "),
        ("run.py", ("visualize", "screen"), "no run.build_env(args, num_envs, device, visualize), "),
        ("run.py", ("visualize", "visualize, scene"), "no run.build_env(args, num_envs, device, visualize), "),
        ("learning/base_agent.py", ("test_model", "try_model"), f"no test_model in {BASE_AGENT}.train_model, "),
        ("learning/base_agent.py", ("._logger", "._log"), f"no _logger in {BASE_AGENT}.train_model, "),
        (
            "learning/base_agent.py",
            ("._update_model()", "._learn()"),
            f"no _update_model in {BASE_AGENT}._train_iter, ",
        ),
        ("util/logger.py", ("def configure", "def set"), "no util.logger.Logger.configure_output_file, "),
        ("util/logger.py", (".output_", "."), "no output_file in util.logger.Logger.configure_output_file, "),
        ("learning/base_agent.py", ("._exp_", "._"), f"no _exp_buffer in {BASE_AGENT}._update_sample_count, "),
        (
            "learning/mp_optimizer.py",
            ("_aggregate_", "_reduce_"),
            "no _aggregate_mp_grads in learning.mp_optimizer.MPOptimizer.step, ",
        ),
    ],
)
def test_a_mimickit_that_has_changed_is_named_before_anything_is_built(root, start, file, change, what):
    path = root / "mimickit" / file
    path.write_text(path.read_text().replace(*change))
    assert_refused(start("cpu", "cpu"), f"MimicKit in {root}: {what}")


def test_a_module_that_has_moved_is_named(root, start):
    (root / "mimickit" / "learning" / "agent_builder.py").unlink()
    assert_refused(start("cpu"), f"MimicKit in {root}: no module learning.agent_builder, ")


def test_a_package_that_mimickit_lacks_is_reported_as_in_a_plain_run(root, start):
    path = root / "mimickit" / "learning" / "base_agent.py"
    path.write_text("import util_of_others\n" + path.read_text())
    session = start("cpu")
    assert session.process.wait() != 0
    assert "ModuleNotFoundError: No module named 'util_of_others'\n" in session.console()
    assert "probe.warm" not in session.console()


def assert_refused(session: Session, what: str) -> None:
    message = session.next()
    assert (message["type"], message["kind"]) == ("failed", "missing_dependency")
    assert message["detail"].startswith(what)
    assert message["detail"].endswith("set probe.warm to false in the study")
    assert session.process.wait() != 0
    assert session.console() == message["detail"] + "\n"
    assert session.events() == []
