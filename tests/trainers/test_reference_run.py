"""The reference trainer as a process: real runs of one CPU rank, runs that fail, and its command line."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tuner.probe.plan import Device, Slot
from tuner.probe.port import reserved_port
from tuner.study.cases import Case
from tuner.study.spec import ProbeSpec, TrainerSpec
from tuner.trainers.reference.__main__ import settings_from
from tuner.trainers.reference.adapter import ReferenceTrainer
from tuner.trainers.reference.settings import run_settings

pytestmark = pytest.mark.early

PATIENCE_S = 100
"""On a busy machine torch alone takes half a minute to load."""
GIVEN = ["--case", "amp_pi_plus", "--master-port", "29500", "--out-dir", "out"]


def command(out_dir: Path, port: int, *arguments: str) -> list[str]:
    trainer = [sys.executable, "-m", "tuner.trainers.reference", "--master-port", str(port)]
    return [*trainer, "--hidden-units", "16", "--out-dir", str(out_dir), *arguments]


def train(out_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TUNER_PROGRESS": str(out_dir / "progress.jsonl")}
    with reserved_port() as port:
        started = command(out_dir, port, *arguments)
        return subprocess.run(
            started, env=env, cwd=out_dir, timeout=PATIENCE_S, capture_output=True, text=True, check=False
        )


TWICE = """
import json, sys
from tuner.trainers.reference.__main__ import settings_from
from tuner.trainers.reference.run import run
for words in map(json.loads, sys.argv[1:]):
    run(*settings_from(words))
"""


def test_one_rank_trains_to_the_end(tmp_path: Path) -> None:
    cases = ["add_pi_plus", "deepmimic_pi_plus_ppo"]
    with reserved_port() as port:
        shared = ["--master-port", str(port), "--hidden-units", "16", "--hidden-layers", "3"]
        shared += ["--num-envs", "4", "--iterations", "2"]
        words = [json.dumps([*shared, "--case", case, "--out-dir", str(tmp_path / case)]) for case in cases]
        done = subprocess.run(
            [sys.executable, "-c", TWICE, *words], timeout=PATIENCE_S, capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    for case in cases:
        assert len((tmp_path / case / "log.txt").read_text().splitlines()) == 2
        assert (tmp_path / case / "model.pt").exists()


def test_a_rank_that_dies_ends_the_run(tmp_path: Path) -> None:
    arguments = ("--case", "deepmimic_pi_plus_ppo", "--devices", "cpu", "cpu", "--num-envs", "4")
    with (
        reserved_port() as port,
        subprocess.Popen(
            command(tmp_path, port, *arguments, "--iterations", "1000000"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as trainer,
    ):
        assert trainer.stdout is not None
        assert trainer.stdout.readline().startswith("iteration 0 ")
        ranks = psutil.Process(trainer.pid).children()
        ranks[1].send_signal(signal.SIGKILL)
        _, complaint = trainer.communicate(timeout=PATIENCE_S)
    assert trainer.returncode == 1
    assert "process 1 terminated with signal SIGKILL" in complaint
    assert not any(rank.is_running() for rank in ranks)


def test_a_port_in_use_ends_the_run(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = train(tmp_path, "--case", "add_pi_plus", "--devices", "cpu", "cpu", "--master-port", port)
    assert done.returncode == 1
    assert "EADDRINUSE" in done.stderr
    assert "Process 0 terminated with the following error" in done.stderr


def test_the_trainer_reads_what_the_adapter_plans(tmp_path: Path) -> None:
    devices = (Device(name="cpu:0", model="cpu"), Device(name="cpu:1", model="cpu"))
    slot = Slot(devices=devices, out_dir=tmp_path, port=29500, limits=ProbeSpec())
    config = {"num_envs": 96, "agent_variant": "hiutil", "num_workers": 2, "prefetch_factor": 4}
    plan = ReferenceTrainer(TrainerSpec(name="reference")).plan(Case(name="add_pi_plus"), config, slot)
    team, settings, out_dir = settings_from(list(plan.argv[3:]))
    assert (team.method, team.devices, team.num_envs) == ("add", ("cpu", "cpu"), 96)
    assert settings == run_settings(config, hidden_units=64, iterations=settings.iterations)
    assert out_dir == tmp_path / "train"


def test_what_is_left_out_follows_from_the_device_and_the_workers() -> None:
    _, settings, _ = settings_from([*GIVEN, "--devices", "cuda:0", "cuda:1", "--num-workers", "2"])
    assert (settings.agent.hidden_units, settings.prefetch_factor) == (1024, 2)
    _, settings, _ = settings_from(GIVEN)
    assert (settings.agent.hidden_units, settings.prefetch_factor) == (64, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prefetch-factor", "4"], "--prefetch-factor 4 needs --num-workers of at least 1"),
        (["--num-envs", "0"], "'0' is no whole number of at least 1"),
        (["--num-workers", "two"], "'two' is no whole number of at least 0"),
        (["--devices", "gpu"], "'gpu' is neither cpu nor cuda:N"),
        (["--devices", "cuda:0", "cuda:0"], "give distinct GPUs"),
        (["--devices", "cuda:0", "cpu"], "give distinct GPUs"),
        (["--case", "ase_pi_plus"], "invalid choice: 'ase_pi_plus'"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        settings_from([*GIVEN, *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
