"""A plan on several nodes: what is heard of which, in which order they fail, and how all end; watchers are fakes."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests_nodes import SPEC, FakeCluster
from tests_replays import scripted_plan

from tuner.errors import DeviceError, DeviceLostError, LaunchError, OutputError, TrainerError
from tuner.nodes.processes import LEAVE_S, QUIET_S, NodeProcesses, Timing
from tuner.nodes.source import Nodes
from tuner.nodes.watcher import SILENT_S, Command, RunPart
from tuner.probe import ProbePlan
from tuner.study.spec import ProbeSpec

HOSTS = ("a", "b")
AT_ONCE = Timing(0.05, 0.05)

Open = Callable[[], Nodes]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def opened(cluster: FakeCluster) -> Iterator[Open]:
    """Open the nodes, once all that they answer is said."""
    every: list[Nodes] = []

    def open_now() -> Nodes:
        every.append(Nodes(SPEC, HOSTS, cluster.clock, connect=cluster, timing=AT_ONCE))
        return every[-1]

    yield open_now
    for nodes in every:
        nodes.close()


@pytest.fixture
def nodes(opened: Open) -> Nodes:
    return opened()


@pytest.fixture
def plan(nodes: Nodes, tmp_path: Path) -> ProbePlan:
    blank = scripted_plan(tmp_path / "out", nodes.devices, ProbeSpec())
    return replace(blank, slot=replace(blank.slot, nodes=len(HOSTS)), cwd=tmp_path)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the person, beside which copies find a place."""
    (project := tmp_path / "project").mkdir()
    (kept := tmp_path / "kept").mkdir()
    monkeypatch.setenv("TMPDIR", str(kept))
    (project / "model.pt").write_text("mine")
    return project / "model.pt"


@pytest.fixture
def processes(nodes: Nodes, plan: ProbePlan) -> Iterator[NodeProcesses]:
    started = nodes.start(plan)
    yield started
    started.end()


def test_each_node_gets_its_part_and_the_host_of_the_first(cluster: FakeCluster, processes: NodeProcesses) -> None:
    assert processes.exit_code() is None
    for host in HOSTS:
        (part,) = [request for request in cluster.nodes[host].requests if isinstance(request, RunPart)]
        assert (part.head, len(part.plan.slot.local_devices)) == ("a.site", 2)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("LaunchError", LaunchError),
        ("TrainerError", TrainerError),
        ("DeviceError", DeviceError),
        ("OutputError", OutputError),
    ],
)
def test_the_refusal_of_a_node_keeps_its_class_and_ends_the_others(
    cluster: FakeCluster, nodes: Nodes, plan: ProbePlan, name: str, error: type[Exception]
) -> None:
    cluster.refusals["b"] = {RunPart: (name, "no such folder")}
    with pytest.raises(error, match=r"^b: no such folder$") as caught:
        nodes.start(plan)
    assert type(caught.value) is error
    assert cluster.nodes["a"].requests[-1] is Command.END_PART


def test_a_node_that_gives_up_later_raises_its_error_too(cluster: FakeCluster, processes: NodeProcesses) -> None:
    cluster.nodes["b"].tell("refused", error="OutputError", why="disk full")
    with pytest.raises(OutputError, match=r"^b: disk full$"):
        processes.lines(0.0)
    processes.end()
    assert cluster.nodes["a"].requests[-1] is Command.END_PART


def test_an_unknown_error_is_one_of_the_tuner(cluster: FakeCluster, processes: NodeProcesses) -> None:
    cluster.nodes["b"].tell("refused", error="NoDriverError", why="?")
    with pytest.raises(Exception, match=r"b: \?") as caught:
        processes.lines(0.0)
    assert type(caught.value).__name__ == "TunerError"


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(("b", 7), ("a", 1), 7), (("b", 7), ("a", 0), 7), (("a", 0), ("b", 0), 0)]
)
def test_all_nodes_have_to_end_and_the_first_that_failed_gives_the_code(
    cluster: FakeCluster, processes: NodeProcesses, first: tuple[str, int], second: tuple[str, int], expected: int
) -> None:
    for host, code in (first, second):
        assert processes.exit_code() is None
        cluster.nodes[host].tell("exit", code=code, still_running=None)
        processes.lines(0.0)
    assert (processes.exit_code(), processes.end()) == (expected, expected)
    assert Command.END_PART not in cluster.nodes["a"].requests


def test_after_a_failure_the_others_have_some_seconds_to_tell_of_it(
    cluster: FakeCluster, processes: NodeProcesses
) -> None:
    cluster.nodes["b"].tell("exit", code=1, still_running=None)
    processes.lines(0.0)
    cluster.clock.advance(LEAVE_S)
    cluster.nodes["a"].tell("beat")
    assert processes.exit_code() is None
    cluster.clock.advance(0.1)
    assert (processes.exit_code(), processes.lost) == (1, None)


def test_a_node_that_hangs_when_another_fails_is_named(cluster: FakeCluster, processes: NodeProcesses) -> None:
    cluster.nodes["b"].tell("exit", code=1, still_running=None)
    processes.lines(0.0)
    cluster.clock.advance(max(LEAVE_S, QUIET_S) + 0.1)
    assert processes.exit_code() is None
    assert processes.lost == f"no word from a for {QUIET_S:g} s"


def test_a_silent_node_is_lost_after_its_time(cluster: FakeCluster, nodes: Nodes, processes: NodeProcesses) -> None:
    cluster.clock.advance(SILENT_S)
    cluster.nodes["a"].tell("beat")
    processes.lines(0.0)
    assert nodes.sample(1.0) == []
    cluster.clock.advance(0.5)
    processes.lines(0.0)
    with pytest.raises(DeviceLostError, match=r"^no word from b for 30 s$"):
        nodes.sample(1.0)


def test_a_watcher_that_is_gone_is_named_with_what_srun_says(
    cluster: FakeCluster, nodes: Nodes, processes: NodeProcesses
) -> None:
    cluster.nodes["b"].says("srun: error: node failure")
    cluster.nodes["b"].die()
    processes.lines(0.0)
    with pytest.raises(DeviceLostError, match=r"^the watcher of b is gone \(srun: error: node failure\)$"):
        nodes.sample(1.0)
    assert processes.exit_code() is None
    processes.end()
    assert processes.silent_at_end == processes.lost


def test_a_node_that_never_starts_is_lost(cluster: FakeCluster, nodes: Nodes, plan: ProbePlan) -> None:
    cluster.silent = {"b"}
    processes = nodes.start(plan)
    assert processes.lost is not None
    assert processes.lost.startswith("b: nothing has started")
    processes.end()
    assert cluster.nodes["b"].ended_by == ["hang_up", "15", "9"]
    assert cluster.nodes["a"].ended_by == []


def test_a_device_that_a_node_loses_is_named_with_the_node(cluster: FakeCluster, processes: NodeProcesses) -> None:
    cluster.nodes["b"].tell("lost", why="GPU-b does not answer")
    processes.lines(0.0)
    assert processes.lost == "b: GPU-b does not answer"


def test_lines_come_once_and_the_log_names_their_nodes(
    cluster: FakeCluster, processes: NodeProcesses, plan: ProbePlan
) -> None:
    cluster.nodes["a"].tell("line", text="one", stream="console")
    cluster.nodes["b"].says("srun: Step created")
    cluster.nodes["b"].says("srun: error: x")
    cluster.nodes["b"].tell("line", text="two", stream="console")
    assert [line.text for line in processes.lines(0.0)] == ["one", "srun: error: x", "two"]
    assert processes.lines(0.0) == []
    cluster.nodes["a"].tell("line", text="last", stream="console")
    processes.end()
    shown = plan.slot.console.read_text().splitlines()
    assert shown == ["a: one", "b: srun: Step created", "b: srun: error: x", "b: two", "a: last"]


def test_times_of_all_nodes_become_ours(cluster: FakeCluster, opened: Open, plan: ProbePlan) -> None:
    cluster.behind_s = {"a": -50.0, "b": 1000.0}
    cluster.clock.advance(200.0)
    nodes = opened()
    processes = nodes.start(plan)
    cluster.clock.advance(3.0)
    for host, here_s in (("a", 253.0), ("b", -797.0)):
        cluster.nodes[host].tell("line", text=json.dumps({"t_s": here_s}), stream="progress")
        cluster.nodes[host].tell("samples", samples=[{"t_s": here_s, "device": 1, "util_pct": 40.0}])
    assert [json.loads(line.text)["t_s"] for line in processes.lines(0.0)] == [203.0, 203.0]
    assert [(sample.device, sample.t_s) for sample in nodes.sample(3.0)] == [(1, 3.0), (3, 3.0)]
    assert nodes.sample(3.0) == []
    processes.end()


def test_counts_of_all_nodes_are_merged_although_their_files_have_the_same_name(
    cluster: FakeCluster, opened: Open, plan: ProbePlan
) -> None:
    """torchrun may have given rank 0 to the second node, whose clock is behind; that of rank 0 counts."""
    cluster.behind_s = {"b": 5.0}
    processes = opened().start(replace(plan, is_counted=True))
    for rank, host in enumerate(reversed(HOSTS)):
        behind_s = cluster.behind_s.get(host, 0.0)
        start = {"type": "start", "rank": rank, "world": 2, "data_rank": rank, "parameters": 9, "optimizer": "SGD"}
        steps = [
            {"type": "count", "steps": step, "at_s": step - behind_s, "rows": 10 * step, "forwards": step}
            for step in range(1, 13)
        ]
        for record in (start, *steps):
            cluster.nodes[host].tell("count", name="7.jsonl", text=json.dumps(record))
    told = [json.loads(line.text) for line in processes.lines(0.0) if line.stream == "progress"]
    last = [message for message in told if message["type"] == "iteration"][-1]
    assert (last["iteration"], last["samples"], last["t_s"]) == (12, 180, 12.0)
    processes.end()


def test_the_files_of_the_person_are_kept_once_for_all_nodes(
    cluster: FakeCluster, nodes: Nodes, plan: ProbePlan, model: Path, tmp_path: Path
) -> None:
    processes = nodes.start(replace(plan, cwd=model.parent, protects_files=True))
    (index,) = tmp_path.glob("kept/*/index")
    assert index.stat().st_mtime > time.time() + SILENT_S, "after a kill of the tuner, ranks write for so long"
    model.write_text("of the probe")
    for host in HOSTS:
        cluster.nodes[host].tell("exit", code=0, still_running=None)
    processes.lines(0.0)
    assert model.read_text() == "of the probe"
    processes.end()
    assert model.read_text() == "mine"


@pytest.mark.parametrize("is_silent", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
def test_files_are_put_back_only_when_no_rank_of_a_lost_node_writes_any_more(
    cluster: FakeCluster, nodes: Nodes, plan: ProbePlan, model: Path, *, is_silent: bool, is_last: bool
) -> None:
    processes = nodes.start(replace(plan, cwd=model.parent, protects_files=True))
    if is_silent:
        cluster.silent = {"b"}
    else:
        cluster.nodes["b"].die()
        processes.lines(0.0)
    processes.end()
    cluster.silent = set()
    model.write_text("of a rank that nobody reaches")
    if is_last:
        nodes.close()
    else:
        nodes.occupancy()
    assert model.read_text() == "mine"


def test_where_a_lost_node_does_not_answer_the_copies_stay_for_the_next_tuner(
    cluster: FakeCluster, nodes: Nodes, plan: ProbePlan, model: Path, tmp_path: Path
) -> None:
    processes = nodes.start(replace(plan, cwd=model.parent, protects_files=True))
    cluster.nodes["b"].die()
    processes.lines(0.0)
    processes.end()
    cluster.silent = {"b"}
    model.write_text("of a rank that nobody reaches")
    for _ in range(2):
        with pytest.raises(DeviceError):
            nodes.occupancy()
    nodes.close()
    nodes.close()
    assert model.read_text() == "of a rank that nobody reaches"
    assert list(tmp_path.glob("kept/*/index"))


def test_a_plan_on_fewer_nodes_does_not_hear_the_others(cluster: FakeCluster, nodes: Nodes, plan: ProbePlan) -> None:
    processes = nodes.start(replace(plan, slot=replace(plan.slot, nodes=1)))
    cluster.nodes["b"].tell("line", text="not of this plan", stream="console")
    cluster.nodes["b"].die()
    cluster.nodes["a"].tell("line", text="step 1", stream="console")
    assert [line.text for line in processes.lines(0.0)] == ["step 1"]
    assert (processes.lost, processes.exit_code()) == (None, None)
    processes.end()


def test_what_cannot_be_killed_is_named_until_it_has_ended(
    cluster: FakeCluster, nodes: Nodes, processes: NodeProcesses
) -> None:
    cluster.nodes["b"].tell("exit", code=None, still_running="pid 7 (train)")
    cluster.nodes["a"].tell("exit", code=0, still_running=None)
    processes.lines(0.0)
    assert (processes.exit_code(), processes.still_running) == (-1, "b: pid 7 (train)")
    cluster.still_running["b"] = "pid 7 (train)"
    nodes.occupancy()
    assert processes.still_running == "b: pid 7 (train)"
    del cluster.still_running["b"]
    nodes.occupancy()
    assert processes.still_running is None


def test_a_full_disk_leaves_nothing_open_and_ends_the_nodes(
    cluster: FakeCluster, nodes: Nodes, plan: ProbePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.probe.probe_plan.Slot.console", Path("/dev/full"))
    processes = nodes.start(plan)
    cluster.nodes["a"].tell("line", text="step 1", stream="console")
    with pytest.raises(OutputError, match="No space left"):
        processes.lines(0.0)
    processes.end()
    assert [cluster.nodes[host].requests[-1] for host in HOSTS] == [Command.END_PART, Command.END_PART]
