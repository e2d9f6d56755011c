"""Stand-ins for SLURM: `srun` as a program of this machine, and watchers that a test speaks for."""

import base64
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests_replays import FakeClock

from tuner.nodes.watcher import BEAT, Command, OpenDevices, Request, RunPart
from tuner.probe import Device
from tuner.study import StudySpec

SPEC = StudySpec.model_validate(
    {
        "name": "demo",
        "trainer": {"name": "command"},
        "space": {"num_envs": {"ladder": [2]}},
        "slurm": {"nodes": 2, "gpus": 2},
    }
)
"""A study of two nodes with two cards each."""
CPU_SPEC = StudySpec.model_validate(SPEC.model_dump(exclude_unset=True) | {"devices": "cpu:2", "slurm": {"nodes": 2}})
"""The same with two ranks on the processors of each."""
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    case "$1" in --nodelist=*) export SLURMD_NODENAME="${1#*=}" ;; esac
    shift
done
if [ -n "$SECONDS_AHEAD" ] && [ "$SLURMD_NODENAME" = b ]; then
    exec unshare --time --monotonic "$SECONDS_AHEAD" --fork --kill-child "$@"
fi
exec "$@"
"""
"""With SECONDS_AHEAD, the monotonic clock of node b is ahead (time_namespaces(7))."""


def fake_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let this process run in an allocation of some nodes. They are this machine, and `srun` runs its command."""
    programs = folder / "slurm"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", f"#!/bin/sh\nprintf '%s\\n' {' '.join(hosts)}\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("SLURM_JOB_NODELIST", ",".join(hosts))
    monkeypatch.setenv("SLURM_JOB_ID", f"{os.getpid()}-{folder.name}")


class FakeNode:
    """A watcher that a test speaks for; a `Connection`. It answers at once, unless its cluster says otherwise."""

    def __init__(self, cluster: "FakeCluster", host: str, hear: Callable[[str], None], end: Callable[[], None]) -> None:
        self._cluster, self._host, self.says, self._end = cluster, host, hear, end
        self.requests: list[Request] = []
        self.ended_by: list[str] = []
        self._opens: list[Request] = []

    def tell(self, kind: str, **fields: Any) -> None:
        """Write a message, with the time on the node's clock."""
        behind_s = self._cluster.behind_s.get(self._host, 0.0)
        self.says(json.dumps({"kind": kind, "at_s": self._cluster.clock.now() - behind_s, **fields}))

    def die(self) -> None:
        """End as with a killed `srun`."""
        self._end()

    def send(self, data: bytes) -> None:
        if data == BEAT:
            if self._opens:
                self._answer(self._opens.pop())
            return
        request: Request = pickle.loads(base64.b64decode(data))  # noqa: S301 - our own
        self.requests.append(request)
        refusals = self._cluster.refusals.get(self._host, {})
        if type(request) in refusals:
            error, why = refusals[type(request)]
            self.tell("refused", error=error, why=why)
        elif isinstance(request, OpenDevices) and self._host in self._cluster.slow:
            self._opens.append(request)
        elif self._host not in self._cluster.silent:
            self._answer(request)

    def _answer(self, request: Request) -> None:
        match request:
            case OpenDevices():
                devices = [asdict(device) for device in self._cluster.devices.get(self._host, TWO)]
                self.tell("devices", host=f"{self._host}.site", label="nvml", devices=devices)
            case RunPart():
                self.tell("started", oom_kills=0)
            case Command.READ_CARDS:
                self.tell("cards", cards=[], still_running=self._cluster.still_running.get(self._host))
            case Command.END_PART:
                self.tell("exit", code=-15, still_running=None)

    def hang_up(self) -> None:
        self.ended_by.append("hang_up")
        self._end()

    def kill(self, number: int) -> None:
        self.ended_by.append(str(number))

    def join(self, limit_s: float) -> None:
        """Return at once: nothing runs."""


TWO = (Device(name="cuda:0", model="H100", uuid="GPU-a"), Device(name="cuda:1", model="H100", uuid="GPU-b"))


@dataclass
class FakeCluster:
    """Starts a fake watcher for each host; a `Connect`."""

    clock: FakeClock = field(default_factory=FakeClock)
    nodes: dict[str, FakeNode] = field(default_factory=dict)
    devices: dict[str, tuple[Device, ...]] = field(default_factory=dict)
    behind_s: dict[str, float] = field(default_factory=dict)
    """By how much the clock of a host is behind."""
    refusals: dict[str, dict[type, tuple[str, str]]] = field(default_factory=dict)
    """Host → the kinds of requests that it refuses, with the error."""
    silent: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    """The hosts that open their devices so slowly that they hear a sign of life first."""
    still_running: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    """The hosts on which watchers were started."""

    def __call__(self, host: str, hear: Callable[[str], None], end: Callable[[], None]) -> FakeNode:
        self.started.append(host)
        self.nodes[host] = FakeNode(self, host, hear, end)
        return self.nodes[host]
