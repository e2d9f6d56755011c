"""Whole probes on two nodes that fail in the ways that nodes fail, and what the result says; watchers are fakes."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests_nodes import SPEC, FakeCluster
from tests_replays import scripted_plan

from tuner.nodes.processes import Timing
from tuner.nodes.source import Nodes
from tuner.nodes.watcher import Command
from tuner.probe import Answer, FailureKind, Next, ProbeResult
from tuner.running.prober import prober_on
from tuner.study.spec import ProbeSpec

LIMITS = ProbeSpec(iterations=6, warmup_iterations=1, window_seconds=2)
OOM = f"torch.OutOfMemoryError: CUDA out of memory. {'GPU 1 has a total capacity of 79 GiB. ' * 14}"
ECHO = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"

Script = Callable[[], Iterator[None]]


@pytest.fixture
def cluster() -> FakeCluster:
    """Two nodes whose clocks differ by a day."""
    return FakeCluster(behind_s={"b": 86_400.0})


@pytest.fixture
def nodes(cluster: FakeCluster) -> Iterator[Nodes]:
    with closing(Nodes(SPEC, ("a", "b"), cluster.clock, connect=cluster, timing=Timing(0.05, 0.05))) as nodes:
        yield nodes


@pytest.fixture
def probe(cluster: FakeCluster, nodes: Nodes, tmp_path: Path) -> Callable[..., ProbeResult]:
    """Probe while a script goes on: one step at each look, and half a second between two steps."""
    prober, numbers = prober_on(nodes, clock=cluster.clock), iter(range(9))

    def once(script: Script, last: Next = Next.GO) -> ProbeResult:
        steps = script()
        blank = scripted_plan(tmp_path / f"{next(numbers)}", nodes.devices, LIMITS)
        plan = replace(blank, slot=replace(blank.slot, nodes=2), cwd=tmp_path)

        def stop(_: ProbeResult | None) -> Answer:
            cluster.clock.advance(0.5)
            return Answer(Next.GO if next(steps, "over") is None else last)

        return prober(plan, stop)

    return once


Probe = Callable[..., ProbeResult]


def failed(result: ProbeResult) -> tuple[FailureKind, str]:
    assert result.failure is not None
    return result.failure.kind, result.failure.detail


def say(cluster: FakeCluster, host: str, *lines: str, **ended: Any) -> None:
    for line in lines:
        cluster.nodes[host].tell("line", text=line, stream="console")
    if ended:
        cluster.nodes[host].tell("exit", still_running=None, **ended)


def trains(cluster: FakeCluster, iterations: int) -> Iterator[None]:
    """Let all ranks report iterations, at the time on the clock of their node."""
    for iteration in range(iterations):
        for rank in range(4):
            host = "ab"[rank // 2]
            t_s = cluster.clock.now() - cluster.behind_s.get(host, 0.0)
            message = {"type": "iteration", "iteration": iteration, "rank": rank, "t_s": t_s, "samples": 2 * iteration}
            cluster.nodes[host].tell("line", text=json.dumps(message), stream="progress")
        yield


def test_a_training_on_both_nodes_is_measured(cluster: FakeCluster, probe: Probe) -> None:
    result = probe(lambda: trains(cluster, 20))
    assert result.ok
    assert result.samples_per_s == pytest.approx(2 * 4 / 0.5)
    assert [cluster.nodes[host].requests[-1] for host in "ab"] == [Command.END_PART, Command.END_PART]


def test_a_rank_out_of_memory_on_the_second_node_is_named_before_its_echo(cluster: FakeCluster, probe: Probe) -> None:
    def script() -> Iterator[None]:
        yield from trains(cluster, 2)
        say(cluster, "b", "Traceback (most recent call last):", OOM, code=1)
        yield
        say(cluster, "a", ECHO, code=1)
        yield

    kind, detail = failed(probe(script))
    assert kind is FailureKind.GPU_OOM
    assert detail.startswith("b: torch.OutOfMemoryError: CUDA out of memory")


def test_a_process_that_the_kernel_kills_on_the_second_node_is_short_of_memory(
    cluster: FakeCluster, probe: Probe
) -> None:
    def script() -> Iterator[None]:
        yield from trains(cluster, 2)
        say(cluster, "b", code=-9, oom_kills=1)
        say(cluster, "a", code=1)
        yield

    kind, detail = failed(probe(script))
    assert kind is FailureKind.HOST_OOM
    assert detail == "b: the kernel ended 1 process(es)"


def test_a_rendezvous_that_cannot_be_reached_is_named_with_its_node(cluster: FakeCluster, probe: Probe) -> None:
    unmet = "DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (a, 29500)."

    def script() -> Iterator[None]:
        say(cluster, "b", f"torch.distributed.{unmet}", code=1)
        yield
        say(cluster, "a", code=1)
        yield

    kind, detail = failed(probe(script))
    assert kind is FailureKind.NCCL
    assert detail.startswith("the ranks of the nodes do not meet: b: ")


def test_a_node_that_dies_is_named_and_the_next_probe_gets_a_new_watcher(cluster: FakeCluster, probe: Probe) -> None:
    def dies() -> Iterator[None]:
        yield from trains(cluster, 2)
        cluster.nodes["b"].says("srun: error: Node failure on b")
        cluster.nodes["b"].die()
        while True:
            cluster.nodes["a"].tell("beat")
            yield

    kind, detail = failed(probe(dies))
    assert kind is FailureKind.GPU_LOST
    assert "the watcher of b is gone (srun: error: Node failure on b)" in detail
    assert Command.END_PART in cluster.nodes["a"].requests
    assert probe(lambda: trains(cluster, 20)).ok
    assert cluster.started == ["a", "b", "b"]


def test_a_node_that_hangs_is_named(cluster: FakeCluster, probe: Probe) -> None:
    def hangs() -> Iterator[None]:
        yield from trains(cluster, 2)
        while True:
            say(cluster, "a", "waiting")
            yield

    kind, detail = failed(probe(hangs))
    assert kind is FailureKind.HANG
    assert detail == "no new iteration; the last line: waiting; no word from b for 5 s"


@pytest.mark.parametrize("heard_first", [True, False])
def test_scancel_and_a_preemption_interrupt_the_probe_on_all_nodes(
    cluster: FakeCluster, probe: Probe, heard_first: bool
) -> None:
    """SLURM sends TERM to all steps: the watchers end their parts, before or after this side has heard of it."""

    def script() -> Iterator[None]:
        yield from trains(cluster, 2)
        if heard_first:
            for host in "ab":
                say(cluster, host, code=-15)

    kind, _ = failed(probe(script, Next.INTERRUPTED))
    assert kind is FailureKind.INTERRUPTED
