"""Counts that start again at each epoch, printed by one rank or by several."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.probe.probe_plan import LinePatterns, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.trainers.command_options import PRESETS

PLAIN = r"step (?P<iteration>\d+)"
NAMED = r"epoch (?P<epoch>\d+) step (?P<iteration>\d+)"
BAR = r"(?P<iteration>\d+)/\d+"


def counted(pattern: str, lines: Iterable[tuple[float, str]]) -> list[int]:
    reader = ProgressReader(LinePatterns(patterns=(pattern,)), 0.0)
    found = [reader.feed(OutputLine(t_s=t_s, text=text)) for t_s, text in lines]
    return [report.iteration for report in found if report]


def printed(form: str, epochs: int, steps: Sequence[int], *, end: int, late_s: float = 0.0) -> list[tuple[float, str]]:
    """Return what one rank prints that makes one step a second, and prints these steps of each epoch."""
    return [
        (epoch * end + step + late_s, form.format(epoch=epoch, step=step, end=end))
        for epoch in range(epochs)
        for step in steps
    ]


@settings(max_examples=25)
@given(
    form=st.sampled_from(["epoch {epoch} step {step}", "{step}/{end}"]),
    end=st.integers(20, 300),
    epochs=st.integers(2, 4),
    late_s=st.floats(0.1, 3.0),
)
def test_several_ranks_count_like_one(form: str, end: int, epochs: int, late_s: float) -> None:
    pattern = NAMED if "epoch" in form else BAR
    one = printed(form, epochs, range(1, end + 1), end=end)
    both = sorted([*one, *printed(form, epochs, range(1, end + 1), end=end, late_s=late_s)])
    assert counted(pattern, both) == counted(pattern, one) == list(range(1, epochs * end + 1))


@settings(max_examples=25)
@given(end=st.integers(50, 300), every=st.integers(1, 10), epochs=st.integers(2, 4))
def test_an_epoch_has_all_its_steps_though_the_last_ones_are_not_printed(end: int, every: int, epochs: int) -> None:
    steps = range(0, end, every)
    lines = printed("[{step}/{end}]", epochs, steps, end=end)
    assert counted(r"\[(?P<iteration>\d+)/", lines) == [epoch * end + step for epoch in range(epochs) for step in steps]


def test_a_count_from_zero_without_an_end_has_one_step_more() -> None:
    lines = printed("step {step}", 3, range(0, 100, 10), end=100)
    assert counted(PLAIN, lines) == list(range(0, 300, 10))


def test_few_lines_of_an_epoch_are_no_lines_of_another_rank() -> None:
    lines = printed("{step}/{end}", 4, (0, 50), end=100)
    assert counted(BAR, lines) == [0, 50, 100, 150, 200, 250, 300, 350]


def bar(name: str, first: int, last: int, end: int) -> list[str]:
    return [f"{name}{step}%|█ | {step}/{end} [00:01<00:10, 9.8it/s]" for step in range(first, last + 1)]


@pytest.mark.parametrize(
    ("texts", "steps"),
    [
        ([*bar("", 0, 60, 500), *bar("", 0, 50, 50), *bar("", 60, 120, 500), *bar("", 0, 50, 50)], 120),
        ([*bar("", 0, 60, 500), *bar("", 0, 99, 99), *bar("", 61, 120, 500), *bar("", 0, 99, 99)], 120),
        ([*bar("train ", 0, 30, 30), *bar("valid ", 0, 40, 40), *bar("train ", 0, 30, 30)], 60),
        ([*bar("Map: ", 0, 90, 900), *bar("", 0, 60, 500)], 60),
        ([*bar("sanity ", 0, 3, 3), *bar("", 0, 60, 500)], 60),
    ],
    ids=[
        "evaluations inside",
        "long evaluations inside",
        "a name that evaluates",
        "a preparation",
        "a check before",
    ],
)
def test_of_several_bars_the_one_of_the_training_counts(texts: list[str], steps: int) -> None:
    assert counted(PRESETS["tqdm"].progress[0], enumerate(texts))[-1] == steps


@pytest.mark.parametrize(
    ("texts", "count_problem"),
    [
        ([*bar("", 0, 30, 30), *bar("", 0, 20, 20)], "bars of 30 and 20 steps"),
        ([*bar("fit ", 0, 30, 30), *bar("check ", 0, 40, 40), *bar("fit ", 0, 30, 30)], "bars of 30 and 40 steps"),
        ([*bar("", 0, 99, 99), *bar("", 0, 60, 500)], "bars of 99 and 500 steps"),
        ([*bar("", 0, 0, 500), *bar("", 0, 50, 50), *bar("", 0, 90, 500)], "bars of 50 and 500"),
        ([*bar("", 0, 9, 30), *bar("", 0, 9, 30)], "fell from 9 to 0"),
        ([f"it {20 * step}/400k" for step in range(9)] + ["it 1k/400k", "it 2k/400k"], "rounded, as 1k"),
    ],
    ids=["turns", "other names", "a preparation", "an evaluation first", "broken off", "rounded"],
)
def test_what_may_be_no_training_is_doubted(texts: list[str], count_problem: str) -> None:
    pattern = r"it (?P<iteration>\d+)" if texts[0].startswith("it") else PRESETS["tqdm"].progress[0]
    reader = ProgressReader(LinePatterns(patterns=(pattern,)), 0.0)
    found = [reader.feed(OutputLine(t_s=float(place), text=text)) for place, text in enumerate(texts)]
    assert count_problem in (reader.count_problem or "")
    assert found[-1] is not None  # the probe goes on


def test_an_evaluation_inside_lines_that_were_read_at_once_counts_nothing() -> None:
    at_once = [(1.0, text) for text in bar("", 0, 60, 500)]
    later = enumerate([*bar("", 0, 15, 50), *bar("", 61, 90, 500)], 2)
    assert counted(PRESETS["tqdm"].progress[0], [*at_once, *later])[-1] == 90


def test_a_line_of_the_training_may_tell_of_an_evaluation() -> None:
    texts = [f"{'best val acc 0.9 | ' * (step > 50)}loss 2.3 [{step}/500]" for step in range(100)]
    assert counted(r"loss .*\[(?P<iteration>\d+)/", enumerate(texts)) == list(range(100))


def test_the_same_last_line_of_each_epoch_is_an_iteration_of_its_own() -> None:
    assert counted(NAMED, [(t_s, f"epoch {t_s} step 50") for t_s in range(3)]) == [50, 100, 150]


def test_a_bar_of_epochs_around_bars_of_steps_counts_no_steps() -> None:
    inner = [f" 1%|█ | {step}/100 [00:01<00:10, 9.8it/s]" for step in range(101)]
    texts = [text for epoch in range(3) for text in (f"Epoch:  {epoch}%| | {epoch}/30 [00:00<?, ?it/s]", *inner)]
    assert counted(PRESETS["tqdm"].progress[0], enumerate(texts))[-1] == 300


@pytest.mark.parametrize("name", ["Epoch", "Train epoch"])
def test_the_bars_of_two_ranks_count_once(name: str) -> None:
    both = [
        (epoch * 10 + step / 10 + late_s, f"{name} {epoch}:  1%|█  | {step}/100 [00:01<00:10, 9.8it/s, loss=2.3]")
        for epoch in range(3)
        for step in range(101)
        for late_s in (0.0, 0.35)
    ]
    assert counted(PRESETS["tqdm"].progress[0], sorted(both))[-1] == 300
