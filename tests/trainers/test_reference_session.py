"""The reference trainer's sessions: real runs of two CPU ranks that start once, and on GPUs the memory between runs."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from tests_sessions import Message, Served, follow, served

from tuner.devices.found import open_devices
from tuner.probe.process import reserved_port
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import TrainerSpec
from tuner.testing.trainers import make_slot
from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION
from tuner.trainers.reference.reference_trainer import ReferenceTrainer

pytestmark = pytest.mark.early

CASE = "amp_pi_plus"
TRAINER = ReferenceTrainer(TrainerSpec(name="reference", options={"hidden_units": 16}))

NUM_ENVS = 8
HEAVY: Config = {"num_envs": NUM_ENVS, "agent_variant": "hiutil"}
LOADED: Config = {"num_envs": NUM_ENVS, "update_epochs": 1, "num_workers": 1, "prefetch_factor": 2}
LIGHT: Config = {"num_envs": NUM_ENVS, "update_epochs": 1}

LEFT_MIB = 128
"""The MiB that kernels may take that CUDA loads late. The samples of one iteration alone take more."""


class Outcome:
    """A session that has served four runs, the third of them stopped, and lost a rank in the fifth."""

    def __init__(self, serving: Served) -> None:
        first = serving.ask(HEAVY, iterations=3)
        follow(first)
        ranks = psutil.Process(first.pid).children()
        self.codes = [first.release(), serving.run(LOADED, iterations=2)]
        self.workers = [child for rank in ranks for child in rank.children() if not is_tracker(child)]
        endless = serving.ask(LIGHT, iterations=10**6)
        follow(endless, until=2)
        self.codes += [endless.release(), serving.run(LIGHT, iterations=2)]
        self.same_ranks = len(ranks) == 2 and psutil.Process(first.pid).children() == ranks
        *self.runs, self.rest = serving.told()
        self.printed = serving.printed()
        lost = serving.ask(LIGHT, iterations=10**6)
        follow(lost, until=0)
        ranks[1].kill()
        follow(lost)
        self.codes.append(lost.release())
        self.left = [rank for rank in ranks if rank.is_running()]
        self.complaint = serving.printed()[len(self.printed) :]

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


@pytest.mark.parametrize(("run", "iterations"), [(0, 3), (1, 2), (3, 2)])
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


class Plain:
    """A run of two ranks that ends by itself."""

    def __init__(self, folder: Path) -> None:
        progress = folder / "progress.jsonl"
        with reserved_port() as port:
            plan = TRAINER.plan(Case(name=CASE), LOADED, make_slot(folder, port=port))
            self.done = subprocess.run(
                [*plan.argv, "--iterations", "3"],
                env={**os.environ, **plan.env, "TUNER_PROGRESS": str(progress)},
                capture_output=True,
                text=True,
                check=False,
            )
        self.folder = folder / "train"
        self.records = [json.loads(line) for line in progress.read_text().splitlines()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    return Plain(tmp_path_factory.mktemp("plain"))


def test_two_ranks_train_to_the_end(plain: Plain) -> None:
    assert (plain.done.returncode, plain.done.stderr) == (0, "")
    assert plain.done.stdout == (plain.folder / "log.txt").read_text()
    assert re.findall(r"^iteration (\d+)  samples (\d+) ", plain.done.stdout, re.MULTILINE) == [
        (str(iteration), str(2 * NUM_ENVS * STEPS_PER_ITERATION * (iteration + 1))) for iteration in range(3)
    ]
    import torch  # noqa: PLC0415 - every process of the tests reads this file, and torch takes seconds to load

    assert "policy.actor.0.weight" in torch.load(plain.folder / "model.pt")
    for rank in (0, 1):
        marks = [record for record in plain.records if record["rank"] == rank]
        assert [mark["iteration"] for mark in marks] == [0, 1, 2]
        assert [mark["samples"] for mark in marks] == [NUM_ENVS * STEPS_PER_ITERATION * count for count in (1, 2, 3)]
        assert marks[0]["busy_s"] > 0
        assert all(
            0 < later["busy_s"] - earlier["busy_s"] <= later["t_s"] - earlier["t_s"]
            for earlier, later in pairwise(marks)
        )


def test_a_run_learns_what_a_plain_one_does_whatever_came_before(outcome: Outcome, plain: Plain) -> None:
    lines = learned(outcome.printed)
    assert lines[3:5] == lines[-2:] == learned(plain.done.stdout.splitlines())[:2]
    assert lines[:2] != lines[3:5]


def test_a_rank_that_dies_ends_the_others_and_the_session(outcome: Outcome) -> None:
    assert outcome.codes[4] == 1
    assert outcome.left == []
    assert any("process 1 terminated with signal SIGKILL" in line for line in outcome.complaint)


def test_it_leaves_when_the_tuner_has_gone(tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    os.mkfifo(requests)
    with reserved_port() as port, requests.open("r+b", buffering=0) as pipe:
        plan = TRAINER.warm_plan(Case(name=CASE), LIGHT, make_slot(tmp_path, port=port))
        pipe.write(json.dumps({"type": "run", "config": LIGHT, "iterations": 10**6}).encode() + b"\n")
        env = {**os.environ, **plan.env, "TUNER_REQUESTS": str(requests)}
        with subprocess.Popen(plan.argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline().startswith("iteration 0 ")
            pipe.close()
            _, complaint = trainer.communicate(timeout=100)
    assert (trainer.returncode, complaint) == (0, "")


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
