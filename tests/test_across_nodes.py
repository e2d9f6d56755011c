"""What a result says of its nodes."""

import pytest

from tuner.probe import DeviceSummary
from tuner.running.across_nodes import straggler

HOSTS = ("a", "b")


def summaries(*means: float | None, error: float = 0.5, kind: str = "cpu") -> list[DeviceSummary]:
    return [
        DeviceSummary(
            device=f"{kind}:{rank}",
            source="x",
            window_s=5.0,
            util_mean_pct=mean,
            util_se_pct=error,
            sm_mean_pct=mean,
            sm_se_pct=error,
        )
        for rank, mean in enumerate(means)
    ]


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
