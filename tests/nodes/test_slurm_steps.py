"""Steps of a real SLURM that are killed: a task whose `srun` is gone sees no end of a file, so only this shows it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from test_real_watchers import STAYS, everything_said, plan, trainers_of
from tests_nodes import CPU_SPEC
from tests_slurm import cancel, private_slurm

from tuner.nodes.source import Nodes, allocated_hosts


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with private_slurm(nodes=2) as config, pytest.MonkeyPatch.context() as here:
        here.setenv("SLURM_CONF", str(config))
        command = ["salloc", "--no-shell", "--nodes=2", "--ntasks-per-node=1"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        (job,) = re.findall(r"Granted job allocation (\d+)", said)
        here.setenv("SLURM_JOB_ID", job)
        here.setenv("SLURM_JOB_NODELIST", "node[0-1]")
        with closing(Nodes(CPU_SPEC, allocated_hosts(os.environ, 2))) as nodes:
            yield nodes
        cancel(config, job)


def step_of(host: str) -> psutil.Process:
    """Return the `slurmstepd` of a host's watcher."""
    job = os.environ["SLURM_JOB_ID"]
    for process in psutil.process_iter(["cmdline"]):
        if "tuner.nodes.agent" in (process.info["cmdline"] or ()) and "srun" not in process.info["cmdline"][0]:
            variables = process.environ()
            if (variables.get("SLURM_JOB_ID"), variables.get("SLURMD_NODENAME")) == (job, host):
                return psutil.Process(process.ppid())
    raise AssertionError(host)


def runs(process: psutil.Process) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


TUNER = """
import os, sys, time
from pathlib import Path
from test_real_watchers import STAYS, plan, trainers_of
from tests_nodes import CPU_SPEC
from tuner.nodes.source import Nodes, allocated_hosts
nodes = Nodes(CPU_SPEC, allocated_hosts(os.environ, 2))
folder = Path(sys.argv[1])
folder.mkdir()
print(*(trainer.pid for trainer in trainers_of(nodes.start(plan(nodes, folder, STAYS)))), flush=True)
time.sleep(600)
"""


@pytest.mark.slurm
def test_after_a_kill_of_the_tuner_nothing_is_left_and_the_next_one_probes(nodes: Nodes, tmp_path: Path) -> None:
    nodes.close()  # one tuner works on a node at a time
    here = Path(__file__).parent
    folders = [here, here.parent / "support", here.parents[1], *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-c", TUNER, str(tmp_path / "killed")]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        trainers = [psutil.Process(int(pid)) for pid in tuner.stdout.readline().split()]
        assert len(trainers) == 2
        tuner.kill()
    _, left = psutil.wait_procs(trainers, timeout=60.0)
    assert not any(map(runs, left))
    with closing(Nodes(CPU_SPEC, allocated_hosts(os.environ, 2))) as later:
        last = later.start(plan(later, tmp_path / "last", "print('up')"))
        everything_said(last)
        assert last.end() == 0


@pytest.mark.slurm
def test_after_each_kill_nothing_is_left_and_the_next_probe_runs(nodes: Nodes, tmp_path: Path) -> None:
    for number, victim in enumerate(("srun", "slurmstepd")):
        processes = nodes.start(plan(nodes, tmp_path / f"{number}", STAYS))
        trainers = trainers_of(processes)
        if victim == "srun":
            processes.watchers[1].connection.kill(signal.SIGKILL)
        else:
            step_of("node1").kill()
        everything_said(processes)
        assert processes.lost is not None
        assert "node1" in processes.lost
        processes.end()
        nodes.occupancy()
        assert not any(map(runs, trainers))
    last = nodes.start(plan(nodes, tmp_path / "last", "print('up')"))
    everything_said(last)
    assert last.end() == 0
