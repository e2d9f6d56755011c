"""Several nodes as one machine, with a stand-in for `srun` that starts the real watchers here."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests_nodes import fake_nodes
from tests_replays import scripted_plan

from tuner.devices.nodes import NodeProcesses, Nodes, allocated, on_our_clock, open_nodes
from tuner.errors import DeviceError, DeviceLostError, LaunchError
from tuner.probe import OutputLine, ProbePlan
from tuner.study.spec import ProbeSpec, StudySpec

HOSTS = ("a", "b")
UNMET = "The client socket has timed out after 10000ms while trying to connect to (gpu1, 29500)."
SPEC = StudySpec.model_validate(
    {
        "name": "demo",
        "trainer": {"name": "command"},
        "devices": "cpu:2",
        "space": {"num_envs": {"ladder": [2]}},
        "slurm": {"nodes": 2},
    }
)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as here:
        fake_nodes(tmp_path_factory.mktemp("nodes"), here, *HOSTS)
        yield open_nodes(SPEC)


def plan(nodes: Nodes, folder: Path, code: str) -> ProbePlan:
    blank = scripted_plan(folder / "out", nodes.devices, ProbeSpec())
    slot = replace(blank.slot, nodes=len(HOSTS))
    progress = {"TUNER_PROGRESS": str(slot.progress)}
    argv = (sys.executable, "-u", "-c", code, "${SLURM_NODEID}")
    return replace(blank, argv=argv, slot=slot, cwd=folder, env=progress)


def everything_said(processes: NodeProcesses) -> list[OutputLine]:
    lines: list[OutputLine] = []
    while processes.exit_code() is None and not processes.lost:
        lines += processes.lines(0.1)
    return lines + processes.lines(0.0)


def test_a_plan_runs_on_each_node_and_all_is_heard(nodes: Nodes, tmp_path: Path) -> None:
    assert [device.name for device in nodes.devices] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
    code = (
        "import json, os, sys, time\n"
        "print('node', sys.argv[1], flush=True)\n"
        f"if sys.argv[1] == '1': print({UNMET!r}, flush=True)\n"
        "message = {'type': 'iteration', 'iteration': 0, 'rank': int(sys.argv[1]), 't_s': time.monotonic()}\n"
        "open(os.environ['TUNER_PROGRESS'], 'a').write(json.dumps(message) + chr(10))\n"
        "time.sleep(0.5)\n"
    )
    processes = nodes.start(plan(nodes, tmp_path, code))
    lines = everything_said(processes)
    assert processes.exit_code() == processes.end() == 0
    shown = [line.text for line in lines if line.stream == "console"]
    assert {"node 0", "node 1"} < set(shown)
    assert nodes.unmet == f"b: {UNMET}"
    told = [json.loads(line.text) for line in lines if line.stream == "progress"]
    assert sorted(message["rank"] for message in told) == [0, 1]
    assert {sample.device for sample in nodes.sample(1.0)} == {0, 1, 2, 3}
    assert (nodes.host_of("node 1"), nodes.host_of("node 2")) == ("b", None)
    assert "b: node 1" in (tmp_path / "out/console.log").read_text().splitlines()


def test_a_lost_node_ends_the_probe_and_is_named_and_nothing_is_left(nodes: Nodes, tmp_path: Path) -> None:
    code = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
    processes = nodes.start(plan(nodes, tmp_path, code))
    lines: list[OutputLine] = []
    while len(lines) < len(HOSTS):
        lines += processes.lines(0.1)
    processes.watchers[1].process.kill()
    everything_said(processes)
    with pytest.raises(DeviceLostError, match="the watcher of b is gone"):
        nodes.sample(1.0)
    processes.end()
    assert (nodes.quiet, processes.left) == (processes.lost, None)
    trainers = [int(line.text.split()[1]) for line in lines]
    assert not psutil.wait_procs([psutil.Process(pid) for pid in trainers if psutil.pid_exists(pid)], timeout=60)[1]


def test_a_command_that_no_node_has_is_named_with_the_node(nodes: Nodes, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"^[ab]: the trainer cannot be started: .*no-such-program"):
        nodes.start(replace(plan(nodes, tmp_path, ""), argv=("no-such-program",)))


def test_outside_an_allocation_the_message_says_how_to_get_one() -> None:
    with pytest.raises(DeviceError, match=r"this is no allocation of SLURM; submit with --launcher slurm, or .*salloc"):
        allocated({}, 2)


def test_too_few_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nodes(tmp_path, monkeypatch, *HOSTS)
    assert allocated(os.environ, 2) == HOSTS
    with pytest.raises(DeviceError, match="nodes is 3, and the allocation has 2"):
        allocated(os.environ, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"t_s": 10.0, "steps": 3}', {"t_s": 14.0, "steps": 3}),
        ('{"at_s": 1, "thin_from_s": 2.5}', {"at_s": 5.0, "thin_from_s": 6.5}),
        ('{"steps": 3}', {"steps": 3}),
    ],
)
def test_times_of_another_clock_become_ours(text: str, expected: dict[str, float]) -> None:
    assert json.loads(on_our_clock(text, 4.0)) == expected
    assert on_our_clock("no message", 4.0) == "no message"
