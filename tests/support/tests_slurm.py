"""A private SLURM of one or more nodes on this machine for the tests, with its own key, ports and folders."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
START_S = 30.0
CONFIG = """
ClusterName=tuner
SlurmctldHost={host}
SlurmctldPort={controller_port}
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmUser=root
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
PartitionName=urgent Nodes=ALL PriorityTier=2 MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
"""
"""A job of the partition `urgent` takes the nodes of the others, which begin anew five seconds later: `cred_expire`."""


@contextmanager
def private_slurm(nodes: int = 1) -> Iterator[Path]:
    """Start SLURM, yield the path of its configuration (SLURM_CONF), and stop it; skip the test where it cannot run."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"SLURM is not installed: {', '.join(missing)} not found (apt-get install slurm-wlm munge)")
    if os.geteuid() != 0:
        pytest.skip("a private SLURM needs root")
    with tempfile.TemporaryDirectory(prefix="tuner-slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        config = folder / "slurm.conf"
        host, names = socket.gethostname().split(".")[0], [f"node{number}" for number in range(nodes)]
        each = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN"
        config.write_text(
            CONFIG.format(
                host=host,
                folder=folder,
                controller_port=_free_port(),
                nodes="\n".join(f"NodeName={name} Port={_free_port()} {each}" for name in names),
            )
        )
        files = {name: f"{folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")}
        files["socket"] = f"{folder}/munge.sock"
        munged = ["munged", "--foreground", "--force", f"--key-file={key}"]
        munged += [f"--{option}={path}" for option, path in files.items()]
        commands = [munged, ["slurmctld", "-D", "-f", str(config)]]
        for node in names:
            (folder / f"spool.{node}").mkdir()
            commands.append(["slurmd", "-D", "-N", node, "-f", str(config)])
        started: list[subprocess.Popen[bytes]] = []
        try:
            for command in commands:
                started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            _wait_until_idle(config)
            yield config
        finally:
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
                process.wait(START_S)


def queued(config: Path) -> str:
    """Return the states of all jobs."""
    return _asked(config, "squeue", "--noheader", "--format=%i %T")


def cancel(config: Path, job: str) -> None:
    """End a job as its user would."""
    _asked(config, "scancel", job)


def _wait_until_idle(config: Path) -> None:
    end_s = time.monotonic() + START_S
    while set(_asked(config, "sinfo", "--noheader", "--format=%T").split()) != {"idle"}:
        if time.monotonic() > end_s:
            pytest.skip(f"SLURM does not start within {START_S:g} s on this machine")
        time.sleep(0.2)


def _asked(config: Path, *command: str) -> str:
    environment = os.environ | {"SLURM_CONF": str(config)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
