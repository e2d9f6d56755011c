"""What a result says of its nodes."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.nodes.source import straggler, with_nodes
from tuner.probe import DeviceSummary, Failure, FailureKind, ProbeResult

HOSTS = ("a", "b")
LONG = f"torch.OutOfMemoryError: CUDA out of memory. {'GPU 1 has a total capacity of 79 GiB. ' * 20}See documentation"
UNMET = "The client socket has timed out after 10000ms while trying to connect to (gpu1, 29500)."


def summaries(*means: float | None, error: float = 0.5, kind: str = "cpu") -> list[DeviceSummary]:
    return [
        DeviceSummary(
            device=f"{kind}:{rank}",
            source="x",
            util_mean_pct=mean,
            util_se_pct=error,
            sm_mean_pct=mean,
            sm_se_pct=error,
        )
        for rank, mean in enumerate(means)
    ]


def named(
    detail: str,
    a: tuple[str, ...] = (),
    b: tuple[str, ...] = (),
    *,
    kind: FailureKind = FailureKind.CRASH,
    rule: str = "exit",
    **changes: Any,
) -> str:
    """Return the detail of a failure after what the consoles of two nodes have shown."""
    watchers = [SimpleNamespace(host=host, recent=deque(lines)) for host, lines in zip(HOSTS, (a, b), strict=True)]
    processes: Any = SimpleNamespace(watchers=watchers, **{"silent_at_end": None, "short_of_memory": []} | changes)
    failure = Failure(kind=kind, rule=rule, detail=detail)
    result = ProbeResult(config={}, plan_digest="", started_at="", total_s=9.0, failure=failure)
    known = with_nodes(result, processes).failure
    assert known is not None
    assert (known.kind, known.rule) == (kind, rule)
    return known.detail


def test_a_straggler_becomes_a_note_of_the_result() -> None:
    processes: Any = SimpleNamespace(
        watchers=[SimpleNamespace(host=host, recent=()) for host in HOSTS], silent_at_end=None
    )
    result = ProbeResult(config={}, plan_digest="", started_at="", total_s=9.0, devices=tuple(summaries(50, 60)))
    (note,) = with_nodes(result, processes).notes
    assert note.startswith("b works 20 % longer in each step than a")


def test_a_long_line_is_known_although_a_detail_shortens_it() -> None:
    detail = f"{LONG[:200]} … {LONG[-200:]}"
    assert named(detail, b=("up", f"  {LONG}")) == f"b: {detail}"


def test_a_line_is_known_inside_a_detail_that_says_more() -> None:
    detail = "exit code 1: ValueError: shape 'x' is invalid"
    assert named(detail, a=("is invalid",), b=("ValueError: shape 'x' is invalid",)) == f"b: {detail}"


def test_no_node_is_named_where_several_show_the_line_or_none_does() -> None:
    assert named("KeyError: 5", a=("KeyError: 5",), b=("KeyError: 5",)) == "KeyError: 5"
    assert named("KeyError: 5", a=("",), b=("Epoch 5",)) == "KeyError: 5"


def test_the_node_whose_kernel_has_killed_is_named() -> None:
    what: dict[str, Any] = {"kind": FailureKind.HOST_OOM, "rule": "kernel"}
    text = "the kernel ended 1 process(es)"
    assert named(text, short_of_memory=["b"], **what) == f"b: {text}"
    assert named(text, short_of_memory=["a", "b"], **what) == text


def test_a_node_that_was_quiet_at_the_end_is_named_once() -> None:
    quiet = "no word from b for 5 s"
    assert named("no new iteration", silent_at_end=quiet) == f"no new iteration; {quiet}"
    assert named(quiet, silent_at_end=quiet, kind=FailureKind.GPU_LOST) == quiet


@pytest.mark.parametrize("line", [UNMET, "torch.distributed.elastic.RendezvousTimeoutError: "])
def test_ranks_that_do_not_meet_are_named_with_the_reason(line: str) -> None:
    assert named("exit code 1: x", b=(line,)) == f"the ranks of the nodes do not meet: b: {line}"
    assert named("CUDA out of memory", b=(line,), kind=FailureKind.GPU_OOM) == "CUDA out of memory"


def test_the_node_that_works_longest_in_a_step_is_named() -> None:
    assert straggler(summaries(50, 50, 60, 58), HOSTS) == (
        "b works 18 % longer in each step than a, which waits for it"
    )
    assert straggler(summaries(62, 50, kind="cuda"), HOSTS) == (
        "a works 24 % longer in each step than b, which waits for it"
    )


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_no_node_is_named_where_none_is_surely_slower(kind: str) -> None:
    assert straggler(summaries(50, 52, kind=kind), HOSTS) is None
    assert straggler(summaries(50, 60, error=8, kind=kind), HOSTS) is None
    assert straggler(summaries(50, None, kind=kind), HOSTS) is None
    assert straggler([], HOSTS) is None
