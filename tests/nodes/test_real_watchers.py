"""Real watchers, which a stand-in for `srun` starts here: a plan runs on each node, and nothing is ever left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests_nodes import CPU_SPEC, fake_nodes
from tests_replays import FakeClock, scripted_plan

from tuner.errors import DeviceError, LaunchError, TrainerError
from tuner.nodes.agent import Mailbox, node_lock, serve
from tuner.nodes.processes import NodeProcesses
from tuner.nodes.source import Nodes, allocated_hosts
from tuner.nodes.watcher import SILENT_S, Command, OpenDevices, RunPart, packed, srun
from tuner.probe import Device, OutputLine, ProbePlan
from tuner.study.spec import ProbeSpec

HOSTS = ("a", "b")


AHEAD = ("unshare", "--time", "--monotonic", "86400", "--fork", "true")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Watchers that serve all tests, as they serve all probes; where it can be, the clock of b is a day ahead."""
    with pytest.MonkeyPatch.context() as here:
        fake_nodes(tmp_path_factory.mktemp("nodes"), here, *HOSTS)
        if subprocess.run(AHEAD, capture_output=True, check=False).returncode == 0:
            here.setenv("SECONDS_AHEAD", "86400")
        with closing(Nodes(CPU_SPEC, allocated_hosts(os.environ, 2))) as nodes:
            yield nodes


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


def trainers_of(processes: NodeProcesses) -> list[psutil.Process]:
    """Return the processes whose ids the trainer prints, one on each node."""
    lines: list[OutputLine] = []
    while len(lines) < len(HOSTS):
        lines += processes.lines(0.1)
    return [psutil.Process(int(line.text.split()[1])) for line in lines]


STAYS = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"


def test_a_plan_runs_on_each_node_and_all_is_heard(nodes: Nodes, tmp_path: Path) -> None:
    code = (
        "import json, os, sys, time\n"
        "print('node', sys.argv[1], flush=True)\n"
        "message = {'type': 'iteration', 'iteration': 0, 'rank': int(sys.argv[1]), 't_s': time.monotonic()}\n"
        "open(os.environ['TUNER_PROGRESS'], 'a').write(json.dumps(message) + chr(10))\n"
        "time.sleep(0.5)\n"
    )
    assert [device.name for device in nodes.devices] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
    begun_s = time.monotonic()
    processes = nodes.start(plan(nodes, tmp_path, code))
    lines = everything_said(processes)
    ended_s = time.monotonic()
    assert processes.exit_code() == processes.end() == 0
    shown = [line.text for line in lines if line.stream == "console"]
    assert {"node 0", "node 1"} <= set(shown)
    told = [json.loads(line.text) for line in lines if line.stream == "progress"]
    assert sorted(message["rank"] for message in told) == [0, 1]
    assert all(begun_s < message["t_s"] < ended_s for message in told)
    samples = nodes.sample(time.monotonic() - begun_s)
    assert {sample.device for sample in samples if 0.0 < sample.t_s < ended_s - begun_s} == {0, 1, 2, 3}
    assert "b: node 1" in (tmp_path / "out/console.log").read_text().splitlines()


def test_a_part_of_fewer_cpu_ranks_shares_the_work_among_them(nodes: Nodes, tmp_path: Path) -> None:
    code = "import time; end = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass"
    whole = plan(nodes, tmp_path, code)
    processes = nodes.start(replace(whole, slot=replace(whole.slot, devices=nodes.devices[:2])))
    everything_said(processes)
    processes.end()
    assert {sample.device for sample in nodes.sample(1.0) if (sample.util_pct or 0.0) > 10.0} == {0, 1}


def test_the_end_of_a_probe_ends_all_ranks_and_no_watcher(nodes: Nodes, tmp_path: Path) -> None:
    processes = nodes.start(plan(nodes, tmp_path, STAYS))
    trainers = trainers_of(processes)
    processes.end()
    assert not any(trainer.is_running() for trainer in trainers)
    assert (nodes.occupancy(), processes.still_running, processes.silent_at_end) == ((), None, None)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"argv": ("no-such-program",)}, LaunchError, r"^[ab]: the trainer cannot be started: .*no-such-program"),
        ({"cwd": Path("/no/such/folder")}, TrainerError, r"^[ab]: the trainer cannot be started in /no/such/folder"),
    ],
)
def test_what_a_node_lacks_is_named_with_the_node(
    nodes: Nodes, tmp_path: Path, changes: dict[str, object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        nodes.start(replace(plan(nodes, tmp_path, ""), **changes))  # type: ignore[arg-type]
    assert type(caught.value) is error


def test_after_a_killed_srun_the_next_probe_waits_for_the_end_of_the_last(nodes: Nodes, tmp_path: Path) -> None:
    processes = nodes.start(plan(nodes, tmp_path, STAYS))
    trainers = trainers_of(processes)
    processes.watchers[1].connection.kill(signal.SIGKILL)
    everything_said(processes)
    assert processes.lost is not None
    assert processes.lost.startswith("the watcher of b is gone")
    processes.end()
    nodes.occupancy()
    assert not any(trainer.is_running() for trainer in trainers)
    again = nodes.start(plan(nodes, tmp_path / "again", "print('up')"))
    everything_said(again)
    assert again.end() == 0


@pytest.mark.parametrize("number", [None, signal.SIGUSR2])
def test_a_watcher_whose_tuner_or_time_is_over_ends_its_trainer_and_tells_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals | None
) -> None:
    """The pipe of its requests closes, as after a `kill -9` of the tuner, or SLURM tells all steps of the end."""
    fake_nodes(tmp_path, monkeypatch, "a")
    watcher = subprocess.Popen(srun("a"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False)
    assert watcher.stdin
    assert watcher.stdout
    blank = scripted_plan(tmp_path / "out", [Device(name=f"cpu:{rank}", model="x") for rank in range(2)], ProbeSpec())
    part = replace(blank, argv=(sys.executable, "-c", STAYS), cwd=tmp_path, env={})
    watcher.stdin.write(packed(OpenDevices(spec=CPU_SPEC, number=0)) + packed(RunPart(plan=part, head="a")))
    watcher.stdin.flush()
    lines = (json.loads(line) for line in watcher.stdout)
    trainer = next(int(line["text"].split()[1]) for line in lines if line["kind"] == "line")
    if number is None:
        watcher.stdin.close()
    else:
        watcher.send_signal(number)
    assert "exit" in [line["kind"] for line in lines]
    watcher.wait(60)
    watcher.stdin.close()
    watcher.stdout.close()
    assert not psutil.pid_exists(trainer)


def test_only_one_watcher_works_on_a_node(tmp_path: Path) -> None:
    name = f"{os.getpid()}-{tmp_path.name}"
    first = node_lock(name, 0.0)
    with pytest.raises(DeviceError, match="another tuner of this allocation works on"):
        node_lock(name, 0.0)
    first.close()
    node_lock(name, 0.0).close()


class OneLook(Mailbox):
    """A tuner that asks for the cards once, and is gone."""

    def __init__(self, at_first: Callable[[], None]) -> None:
        super().__init__(FakeClock())
        self._at_first = at_first

    def next(self, timeout_s: float) -> Command:
        self._at_first()
        self.is_gone.set()
        return Command.READ_CARDS


def test_what_a_killed_tuner_has_left_is_put_back_once_all_nodes_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, ranks of the killed tuner may run on another node."""
    (model := tmp_path / "model.pt").write_text("of a probe")
    (store := tmp_path / "tuner-kept-1").mkdir()
    (store / "0").write_text("mine")
    (store / "index").write_text(json.dumps({str(model): [0, 4, 0]}))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    at_first: list[str] = []
    serve(OneLook(lambda: at_first.append(model.read_text())), OpenDevices(spec=CPU_SPEC, number=0), FakeClock())
    assert (at_first, model.read_text(), store.exists()) == (["of a probe"], "mine", False)


def test_requests_come_whole_and_their_silence_or_end_is_noticed() -> None:
    clock = FakeClock()
    mailbox = Mailbox(clock)
    line = packed(Command.READ_CARDS)
    mailbox.feed(b"\n" + line[:5])
    assert mailbox.next(0.0) is None
    mailbox.feed(line[5:] + packed(Command.END_PART))
    assert (mailbox.next(0.0), mailbox.next(0.0), mailbox.next(0.0)) == (Command.READ_CARDS, Command.END_PART, None)
    clock.advance(SILENT_S)
    assert not mailbox.is_silent
    clock.advance(0.1)
    assert mailbox.is_silent
    mailbox.feed(b"\n")
    assert not mailbox.is_silent
    assert not mailbox.is_gone.is_set()
    mailbox.feed(b"")
    assert mailbox.is_gone.is_set()
