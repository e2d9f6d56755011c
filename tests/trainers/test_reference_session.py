"""The reference trainer's processes: real runs on CPU ranks and sessions of them; on GPUs the memory between runs."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path

import psutil
import pytest
from tests_sessions import Message, Served, follow, served

from tuner.devices.found import open_devices
from tuner.probe.process import reserved_port
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import TrainerSpec
from tuner.trainers.base import make_slot
from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION
from tuner.trainers.reference.reference_trainer import ReferenceTrainer

pytestmark = pytest.mark.early

CASE = "amp_pi_plus"
TRAINER = ReferenceTrainer(TrainerSpec(name="reference"))

NUM_ENVS = 8
HEAVY: Config = {"num_envs": NUM_ENVS, "agent_variant": "hiutil"}
LOADED: Config = {"num_envs": NUM_ENVS, "update_epochs": 1, "num_workers": 1, "prefetch_factor": 2}
LIGHT: Config = {"num_envs": NUM_ENVS, "update_epochs": 1}

LEFT_MIB = 128
"""The MiB that kernels may take that CUDA loads late. The samples of one iteration alone take more."""


class Outcome:
    """A session that has served four runs, the third of them stopped, and lost a rank in the fifth."""

    def __init__(self, serving: Served) -> None:
        first = serving.ask(HEAVY, iterations=1)
        follow(first)
        ranks = psutil.Process(first.pid).children()
        self.codes = [first.release(), serving.run(LOADED, iterations=2)]
        self.workers = [child for rank in ranks for child in rank.children() if not is_tracker(child)]
        endless = serving.ask(LIGHT, iterations=10**6)
        follow(endless, until=2)
        self.codes += [endless.release(), serving.run(LIGHT, iterations=2)]
        self.same_ranks = len(ranks) == 2 and psutil.Process(first.pid).children() == ranks
        *self.runs, self.rest = serving.told()
        lost = serving.ask(LIGHT, iterations=10**6)
        follow(lost, until=0)
        ranks[1].kill()
        follow(lost)
        self.codes.append(lost.release())
        self.left = [rank for rank in ranks if rank.is_running()]
        self.printed = serving.printed()

    def rank(self, run: int, rank: int) -> list[Message]:
        return [message for message in self.runs[run] if message["rank"] == rank]


def is_tracker(process: psutil.Process) -> bool:
    """Check whether this is the process that multiprocessing starts for its own bookkeeping."""
    return "resource_tracker" in " ".join(process.cmdline())


def learned(lines: list[str]) -> list[str]:
    """Return the lines of iterations, without their times."""
    return [re.sub(r"  [\d.]+ s$", "", line) for line in lines if line.startswith("iteration ")]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    with served(TRAINER, CASE, tmp_path_factory.mktemp("session")) as serving:
        yield Outcome(serving)


def test_the_same_ranks_serve_every_run(outcome: Outcome) -> None:
    assert outcome.codes[:4] == [0, 0, 0, 0]
    assert outcome.same_ranks


@pytest.mark.parametrize(("run", "iterations"), [(0, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("rank", [0, 1])
def test_each_run_is_as_long_as_asked_and_counts_from_0(outcome: Outcome, run: int, iterations: int, rank: int) -> None:
    messages = outcome.rank(run, rank)
    assert [message["iteration"] for message in messages] == list(range(iterations))
    samples = [NUM_ENVS * STEPS_PER_ITERATION * (iteration + 1) for iteration in range(iterations)]
    assert [message["samples"] for message in messages] == samples
    assert all(
        0 < later["busy_s"] - earlier["busy_s"] <= later["t_s"] - earlier["t_s"]
        for earlier, later in pairwise(messages)
    )


def test_busy_time_begins_again(outcome: Outcome) -> None:
    heavy, loaded = outcome.rank(0, 0)[-1], outcome.rank(1, 0)[0]
    assert 0 < loaded["busy_s"] < heavy["busy_s"]


def test_all_ranks_leave_a_stopped_run_at_the_same_iteration(outcome: Outcome) -> None:
    first, second = (outcome.rank(2, rank)[-1]["iteration"] for rank in (0, 1))
    assert 2 <= first == second < 10**6 - 1
    assert outcome.rest == []


def test_no_worker_outlives_its_run(outcome: Outcome) -> None:
    assert outcome.workers == []


ENDED = "ended\n"
IN_TURN = f"""
import json, os, runpy, sys
for words, progress in map(json.loads, sys.argv[1:]):
    os.environ["TUNER_PROGRESS"], sys.argv = progress, words
    runpy.run_module(words[0], run_name="__main__")
    for stream in sys.stdout, sys.stderr:
        print({ENDED!r}, end="", file=stream, flush=True)
"""
"""Runs commands one after the other, each as `python -m` does: to load torch for each would take seconds."""
SHOW = "import sys, torch; print(*torch.load(sys.argv[1]), flush=True)"


def small(out_dir: Path, port: int) -> list[str]:
    """Return a command for one rank."""
    size = ("--num-envs", "4", "--iterations", "2", "--devices", "cpu")
    return ["tuner.trainers.reference", "--case", CASE, *size, "--master-port", str(port), "--out-dir", str(out_dir)]


def to_the_end(lines: Iterator[str]) -> list[str]:
    """Return the lines of a command."""
    return [*takewhile(lambda line: line != ENDED, lines)]


class InTurn:
    """What commands say and leave that run one after the other.

    The first trains on two ranks, and a program shows its model. A session of one rank loses its tuner while it trains.
    The last command finds its port in use.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, progress, asked = folder, folder / "progress.jsonl", folder / "asked"
        (folder / "show.py").write_text(SHOW)
        os.mkfifo(asked)
        with reserved_port() as port, socket.socket() as taken, asked.open("r+b", buffering=0) as pipe:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            slot = make_slot(folder, port=port)
            plain = TRAINER.plan(Case(name=CASE), LOADED, slot)
            warm = TRAINER.warm_plan(Case(name=CASE), LIGHT, replace(slot, devices=slot.devices[:1]))
            commands = [
                ([*plain.argv[2:], "--iterations", "3"], str(progress)),
                (["show", str(folder / "train/model.pt")], ""),
                (warm.argv[2:], ""),
                (small(folder / "none", taken.getsockname()[1]), ""),
            ]
            pipe.write(json.dumps({"type": "run", "config": LIGHT, "iterations": 10**6}).encode() + b"\n")
            with (
                (folder / "errors").open("w") as errors,
                subprocess.Popen(
                    [*plain.argv[:1], "-c", IN_TURN, *map(json.dumps, commands)],
                    cwd=folder,
                    env={**os.environ, **plain.env, "TUNER_REQUESTS": str(asked)},
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                ) as process,
            ):
                assert process.stdout is not None
                lines = iter(process.stdout.readline, "")
                self.plain, self.weights = [to_the_end(lines) for _ in commands[:2]]
                self.warm = next(lines)
                pipe.close()
                to_the_end(lines)
                self.refused = [*lines]
        self.code = process.returncode
        self.errors = (folder / "errors").read_text().split(ENDED)
        self.marks = [json.loads(line) for line in progress.read_text().splitlines()]


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> InTurn:
    return InTurn(tmp_path_factory.mktemp("in_turn"))


def test_two_ranks_train_to_the_end(in_turn: InTurn) -> None:
    assert in_turn.errors[0] == ""
    start, *log = in_turn.plain
    assert "start" in start
    assert "".join(log) == (in_turn.folder / "train/log.txt").read_text()
    assert re.findall(r"^iteration (\d+)  samples (\d+) ", "".join(in_turn.plain), re.MULTILINE) == [
        (str(iteration), str(2 * NUM_ENVS * STEPS_PER_ITERATION * (iteration + 1))) for iteration in range(3)
    ]
    assert "policy.actor.0.weight" in in_turn.weights[0].split()
    for rank in (0, 1):
        marks = [mark for mark in in_turn.marks if mark["rank"] == rank]
        assert [mark["iteration"] for mark in marks] == [0, 1, 2]
        assert [mark["samples"] for mark in marks] == [NUM_ENVS * STEPS_PER_ITERATION * count for count in (1, 2, 3)]
        assert marks[0]["busy_s"] > 0
        assert all(
            0 < later["busy_s"] - earlier["busy_s"] <= later["t_s"] - earlier["t_s"]
            for earlier, later in pairwise(marks)
        )


def test_a_port_in_use_ends_the_run(in_turn: InTurn) -> None:
    assert in_turn.code == 1
    assert "EADDRINUSE" in in_turn.errors[-1]
    assert "Process 0 terminated with the following error" in in_turn.errors[-1]
    assert not [line for line in in_turn.refused if line.startswith("iteration")]
    assert not (in_turn.folder / "none/log.txt").exists()


def test_it_leaves_when_the_tuner_has_gone(in_turn: InTurn) -> None:
    assert in_turn.warm.startswith("iteration 0 ")
    assert in_turn.errors[:-1] == [""] * 3  # no command before the last one failed or complained


def test_a_run_learns_what_a_plain_one_does_whatever_came_before(outcome: Outcome, in_turn: InTurn) -> None:
    runs: list[list[str]] = []
    for line in learned(outcome.printed):
        if line.startswith("iteration 0 "):
            runs.append([])
        runs[-1].append(line)
    heavy, loaded, _, light, *_ = runs
    assert loaded == light == learned([line.rstrip() for line in in_turn.plain])[:2]
    assert heavy[0] != loaded[0]


def test_a_rank_that_dies_ends_the_others_and_the_session(outcome: Outcome) -> None:
    assert outcome.codes[4] == 1
    assert outcome.left == []
    assert any("process 1 terminated with signal SIGKILL" in line for line in outcome.printed)


@pytest.mark.gpu
def test_cards_have_their_memory_back_between_runs(tmp_path: Path) -> None:
    source = open_devices("0,1")
    held_mib: list[list[float]] = []
    with served(ReferenceTrainer(TrainerSpec(name="reference")), CASE, tmp_path, gpu=True) as serving:
        for config in (HEAVY, LOADED, LIGHT, HEAVY):
            assert serving.run({**config, "num_envs": 4096}, iterations=3) == 0
            held_mib.append([sample.mem_used_mib or 0.0 for sample in source.sample(0.0)])
    first, *later = held_mib
    assert all(now - then < LEFT_MIB for one in later for now, then in zip(one, first, strict=True))
