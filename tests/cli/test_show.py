"""What a person reads at the end: the best, and what it changes."""

from dataclasses import replace

import pytest

from tuner.cli.show import learning_changed, summary_table
from tuner.export.summary import Best, CaseSummary

BEST = Best(
    trial=3,
    value=87.0,
    readings=1,
    num_envs=512,
    variant="hiutil",
    samples_per_s=9000.0,
    vs_default=0.2143,
    changes_learning=("update_epochs", "batch_size"),
)


def summary(best: Best | None) -> CaseSummary:
    return CaseSummary(
        case="walk", status="ok", objective="min_avg_util", best=best, ok=1, pruned=0, failed=0, running=0
    )


@pytest.mark.parametrize(
    ("best", "lines"),
    [
        (BEST, ["walk: the best makes 0.21 of default's samples/s; update_epochs, batch_size change what is learnt"]),
        (
            replace(BEST, vs_default=None, changes_learning=("agent_variant",)),
            ["walk: the best has no default measured at its rung beside it; agent_variant changes what is learnt"],
        ),
        (replace(BEST, changes_learning=()), []),
        (None, []),
    ],
)
def test_a_best_that_changes_learning_says_so(best: Best | None, lines: list[str]) -> None:
    assert learning_changed([summary(best)]) == lines


def test_a_best_read_several_times_says_so() -> None:
    table = summary_table([summary(BEST), summary(replace(BEST, readings=3)), summary(None)])
    assert list(table.columns[2].cells) == ["87.0", "87.0 (mean of 3)", ""]
