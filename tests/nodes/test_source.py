"""The devices of several nodes as one list, and watchers that are lost between two probes; watchers are fakes."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_nodes import SPEC, TWO, FakeCluster, fake_nodes
from tests_replays import scripted_plan

from tuner.errors import DeviceError, DeviceLostError
from tuner.nodes.processes import Timing
from tuner.nodes.source import Nodes, allocated_hosts
from tuner.nodes.watcher import MOST_DRIFT, Command, NodeClock, OpenDevices, on_our_clock
from tuner.study.spec import ProbeSpec, StudySpec


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def open_now(cluster: FakeCluster) -> Nodes:
    return Nodes(SPEC, ("a", "b"), cluster.clock, connect=cluster, timing=Timing(0.05, 0.05))


@pytest.fixture
def nodes(cluster: FakeCluster) -> Iterator[Nodes]:
    with closing(open_now(cluster)) as nodes:
        yield nodes


def test_the_devices_of_all_nodes_are_numbered_through(nodes: Nodes) -> None:
    assert [device.name for device in nodes.devices] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert [device.uuid for device in nodes.devices] == ["GPU-a", "GPU-b", "GPU-a", "GPU-b"]


def test_nodes_with_different_numbers_of_devices_are_refused_and_left_alone(cluster: FakeCluster) -> None:
    cluster.devices["b"] = TWO[:1]
    with pytest.raises(DeviceError, match=r"different numbers of devices: \{'a': 2, 'b': 1\}"):
        open_now(cluster)
    assert all("hang_up" in node.ended_by for node in cluster.nodes.values())


def test_a_node_that_cannot_open_its_devices_says_why(cluster: FakeCluster) -> None:
    cluster.refusals["b"] = {OpenDevices: ("DeviceError", "no card cuda:1 here")}
    with pytest.raises(DeviceError, match=r"^b: no card cuda:1 here$"):
        open_now(cluster)


def test_a_node_that_does_not_answer_is_named(cluster: FakeCluster) -> None:
    cluster.silent = {"b"}
    with pytest.raises(DeviceLostError, match=r"^b tells no devices; srun says nothing$"):
        open_now(cluster)
    assert all("hang_up" in node.ended_by for node in cluster.nodes.values())


def test_a_watcher_that_opens_its_devices_slowly_hears_that_the_tuner_is_there(cluster: FakeCluster) -> None:
    cluster.slow = {"b"}
    with closing(Nodes(SPEC, ("a", "b"), cluster.clock, connect=cluster, timing=Timing(30.0, 0.05, 0.01))) as nodes:
        assert len(nodes.devices) == 4


def test_a_watcher_that_cannot_be_started_leaves_none_behind(cluster: FakeCluster) -> None:
    def connect(host: str, *both: object) -> object:
        if host == "b":
            raise DeviceError("srun cannot be started: Exec format error")
        return cluster(host, *both)  # type: ignore[arg-type]

    with pytest.raises(DeviceError, match="Exec format error"):
        Nodes(SPEC, ("a", "b"), cluster.clock, connect=connect, timing=Timing(0.05, 0.05))  # type: ignore[arg-type]
    assert "hang_up" in cluster.nodes["a"].ended_by


def test_a_lost_watcher_is_started_again_before_the_cards_are_looked_at(cluster: FakeCluster, nodes: Nodes) -> None:
    assert nodes.occupancy() == ()
    assert cluster.started == ["a", "b"]
    cluster.nodes["a"].die()
    nodes.occupancy()
    assert cluster.started == ["a", "b", "a"]
    assert [type(request).__name__ for request in cluster.nodes["a"].requests] == ["OpenDevices", "Command"]


def test_cards_are_those_of_all_nodes(cluster: FakeCluster, nodes: Nodes) -> None:
    cluster.silent = {"a", "b"}
    used = {"device": {"name": "cuda:0", "model": "H100"}, "mem_used_mib": 70.0, "util_pct": 0.0}
    for host, pid in (("a", 1), ("b", 2)):
        card = {**used, "occupants": [{"pid": pid, "mem_mib": 5.0}]}
        cluster.nodes[host].tell("cards", cards=[card], still_running=None)
    assert [card.occupants[0].pid for card in nodes.occupancy()] == [1, 2]


def test_a_node_that_does_not_come_back_is_lost_and_one_that_refuses_says_why(
    cluster: FakeCluster, nodes: Nodes
) -> None:
    cluster.nodes["b"].die()
    cluster.silent = {"b"}
    with pytest.raises(DeviceLostError, match=r"^b tells no devices"):
        nodes.occupancy()
    cluster.silent = set()
    cluster.refusals["a"] = {Command: ("DeviceError", "GPU-a does not answer")}
    cluster.nodes["b"].die()
    with pytest.raises(DeviceError, match=r"^a: GPU-a does not answer$"):
        nodes.occupancy()


def test_killed_processes_count_on_all_nodes(cluster: FakeCluster, nodes: Nodes) -> None:
    cluster.nodes["a"].tell("beat", oom_kills=3)
    cluster.nodes["b"].tell("beat", oom_kills=4)
    cluster.nodes["b"].tell("beat")
    assert nodes.oom_kills() == 7


def test_a_plan_on_fewer_nodes_takes_their_first_devices(cluster: FakeCluster, nodes: Nodes, tmp_path: Path) -> None:
    blank = scripted_plan(tmp_path / "out", nodes.devices[:2], ProbeSpec())
    for count in (1, 2):
        slot = replace(blank.slot, nodes=count, out_dir=tmp_path / f"{count}")
        processes = nodes.start(replace(blank, slot=slot, cwd=tmp_path))
        for host in ("a", "b")[:count]:
            samples = [{"t_s": 0.0, "device": device} for device in range(2 // count)]
            cluster.nodes[host].tell("samples", samples=samples)
        processes.lines(0.0)
        assert [sample.device for sample in nodes.sample(0.0)] == [0, 1]
        processes.end()


def test_with_placements_a_trial_has_the_devices_of_the_fewest_nodes(cluster: FakeCluster) -> None:
    placed = {"num_envs": {"ladder": [2]}, "nodes": {"choices": [1, 2]}}
    spec = StudySpec.model_validate(SPEC.model_dump(exclude_unset=True) | {"space": placed})
    with closing(Nodes(spec, ("a", "b"), cluster.clock, connect=cluster, timing=Timing(0.05, 0.05))) as nodes:
        assert [device.name for device in nodes.devices] == ["cuda:0", "cuda:1"]


OFFSETS = st.floats(-1e6, 1e6)


@given(
    OFFSETS,
    st.floats(-MOST_DRIFT / 2, MOST_DRIFT / 2),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), min_size=1),
)
def test_a_clock_is_known_to_within_the_fastest_message_however_it_drifts(
    offset_s: float, drift: float, messages: list[tuple[float, float]]
) -> None:
    """`messages`: the time since the one before, and the time that it travels."""
    clock, sent_s, heard_s = NodeClock(), 0.0, 0.0
    for pause_s, travel_s in messages:
        sent_s += pause_s
        heard_s = max(heard_s, sent_s + travel_s)
        there_s = sent_s * (1 + drift) - offset_s
        clock.update(there_s, heard_s)
        behind_s = sent_s - there_s
        assert clock.behind_s >= behind_s - drift_of(messages) - 1e-6
        assert clock.behind_s <= heard_s - there_s + 1e-6


def test_a_clock_that_drifts_is_followed_and_a_slow_message_changes_little() -> None:
    """It loses 500 parts in a million."""
    clock = NodeClock()
    for sent_s, heard_s, behind_s in ((0.0, 10.0, 10.0), (100.0, 110.05, 10.05), (200.0, 219.0, 10.158_95)):
        clock.update(sent_s, heard_s)
        assert clock.behind_s == pytest.approx(behind_s)


def drift_of(messages: list[tuple[float, float]]) -> float:
    """Return the most by which an old estimate may be wrong: what clocks drift apart while a message travels."""
    return MOST_DRIFT * sum(travel_s for _, travel_s in messages)


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


def test_outside_an_allocation_the_message_says_how_to_get_one() -> None:
    with pytest.raises(DeviceError, match=r"this is not a SLURM allocation; submit with --launcher slurm, or .*salloc"):
        allocated_hosts({}, 2)


def test_too_few_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nodes(tmp_path, monkeypatch, "a", "b")
    assert allocated_hosts(os.environ, 2) == ("a", "b")
    with pytest.raises(DeviceError, match="nodes is 3, and the allocation has 2"):
        allocated_hosts(os.environ, 3)
