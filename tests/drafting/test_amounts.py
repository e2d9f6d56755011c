from collections.abc import Sequence

import pytest

from tuner.drafting.amounts import Checked, check
from tuner.drafting.progress_found import find_progress
from tuner.probe.protocols import OutputLine

PRINTED = "tokens per iteration will be: 2,048"
STEPS = [f"step {n} loss 2.{n}" for n in range(9)]
BAR = [f"{n:3d}%|#   | {n}/200 [00:0{n}<03:20, 1.0it/s]" for n in range(9)]


def checked(lines: Sequence[str], each: float, *, ranks: int = 1) -> Checked:
    """Check an answer about lines that came once in half a second, of a command with a batch of 8."""
    found = find_progress([OutputLine(t_s=place / 2, text=text) for place, text in enumerate(lines)])
    assert found is not None
    return check(found, each, batch=8, ranks=ranks, typed=[64, 8])


@pytest.mark.parametrize(
    ("lines", "ranks", "holds"),
    [
        ([PRINTED, *STEPS], 1, {32: True, 8: None, 3: False}),
        (["  Total train batch size = 32", "  Total optimization steps = 200", *BAR], 1, {32: True, 8: None, 3: False}),
        (["  Total train batch size = 32", "  Total optimization steps = 50", *BAR], 1, {32: None, 8: None, 64: False}),
        (["Effective batch size: 8 x 1 = 8", *STEPS], 1, {8: True, 1: None, 16: False}),
        (["local batch size 8, global batch size 16, steps 9", *STEPS], 2, {16: True, 8: None}),
        (["total batch size: 8", *(f"seen {8 * n} of 999" for n in range(9))], 1, {8: None, 1: None}),
        (["total batch size: 8", *(f"epoch {n} loss 2.{n}" for n in range(9))], 1, {8: None}),
        ([f"{step}, time 0.50 s, 16.{n}/s" for n, step in enumerate(STEPS)], 1, {8: True, 16: None, 1: None}),
        ([f"{step}, time 0.50 s, 16.{n}/s" for n, step in enumerate(STEPS)], 2, {8: None, 16: None}),
        ([f"{step}, {[10, 40][n % 2]}.0/s" for n, step in enumerate(STEPS)], 1, {8: True, 12: None}),
        ([f"{step}, time 0.05 s, 99.{n}/s" for n, step in enumerate(STEPS)], 1, {8: None}),
        (STEPS, 1, {8: None}),
    ],
    ids=[
        "tokens",
        "updates",
        "batches",
        "plain",
        "ranks",
        "samples",
        "epochs",
        "speed",
        "a rank's",
        "mean",
        "without",
        "none",
    ],
)
def test_an_answer_is_compared_with_what_the_command_prints(
    lines: Sequence[str], ranks: int, holds: dict[int, bool | None]
) -> None:
    assert {each: checked(lines, each, ranks=ranks).holds for each in holds} == holds


def test_a_fact_names_the_printed_words_and_number() -> None:
    because = checked([PRINTED, *STEPS], 32).because
    assert "tokens per iteration" in because
    assert "2048" in because


def test_facts_that_disagree_decide_nothing() -> None:
    lines = ["samples per step: 32", "images per step: 16", *STEPS]
    assert checked(lines, 32).holds is None


def test_a_number_that_only_comes_near_is_no_length() -> None:
    found = find_progress([OutputLine(t_s=n / 2, text=text) for n, text in enumerate([PRINTED, *STEPS])])
    assert found is not None
    assert check(found, 8, batch=8, ranks=1, typed=[250]).holds is None
    assert check(found, 8, batch=8, ranks=1, typed=[250, 256]).holds
