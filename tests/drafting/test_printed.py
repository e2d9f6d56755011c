"""How printed lines show progress where nothing counts inside: presets, report(), and one plain form."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tuner.drafting.printed import PrintedLines, PrintedProgress
from tuner.probe.output import LineSplitter
from tuner.probe.probe_plan import OutputLine

DATA = Path(__file__).parents[1] / "data/progress"


def found(texts: Iterable[str], likely: tuple[str, ...] = (), *, every_s: float = 1.0) -> PrintedProgress | None:
    printed = PrintedLines(likely)
    printed.feed(OutputLine(t_s=place * every_s, text=text) for place, text in enumerate(texts))
    return printed.progress


def test_a_popular_trainer_is_known_by_its_lines() -> None:
    for file, likely, preset, counts_samples in [
        ("sb3.log", (), "sb3", True),
        ("rsl_rl.log", (), "rsl_rl", True),
        ("rsl_rl.log", ("isaaclab",), "isaaclab", True),
        ("cleanrl.log", (), "cleanrl", True),
        ("lightning.log", (), "lightning", False),
        ("huggingface.log", (), "tqdm", False),
        ("huggingface.log", ("huggingface",), "huggingface", False),
        ("accelerate.log", ("accelerate",), "accelerate", False),
        ("skrl.log", ("skrl",), "skrl", False),
    ]:
        read = found(LineSplitter().feed((DATA / file).read_bytes()), likely)
        assert read is not None
        assert (read.preset, read.counts_samples, read.is_plain, read.contradiction) == (
            preset,
            counts_samples,
            False,
            "",
        )
        assert preset in read.by


def test_a_plain_form_counts_iterations_and_never_samples() -> None:
    for line, iterations in [
        ("Iteration: {n}/900, loss 0.{n}", [1, 2, 3, 4]),
        ("iter {n}: loss 2.3, samples {m}", [1, 2, 3, 4]),
        ("[step={m}] loss 2.3 | 812 samples/s", [64, 128, 192, 256]),
        ("Epoch [3][batch {n}]", [1, 2, 3, 4]),
        ("epoch {n} | step {m} | loss 2.3", [64, 128, 192, 256]),
        ("Epoch {n} took 3.1 s", [1, 2, 3, 4]),
        (" {n}%|#   | {n}/4 [00:0{n}<00:09, 1.02it/s]", [1, 2, 3, 4]),
        ("step {n},000", [1000, 2000, 3000, 4000]),
    ]:
        read = found(line.format(n=n, m=64 * n) for n in range(1, 5))
        assert read is not None
        assert [one.iteration for one in read.reports] == iterations
        assert not read.counts_samples
        assert {one.samples for one in read.reports} == {None}


def test_what_no_line_says_stays_unknown() -> None:
    for line in [
        "loss 2.{n}",
        "timesteps {n}",
        "env_step {n}",
        "{n} of 900",
        "the steps are {n}",
        "step 7",
        "step {n}.5m",
    ]:
        assert found(line.format(n=n) for n in range(1, 9)) is None


def test_a_list_that_is_printed_at_once_is_no_progress() -> None:
    assert found((f"step {n}" for n in range(9)), every_s=0.0) is None
    assert found(f"step {n}" for n in range(2)) is None


def test_a_count_that_starts_again_without_an_end_is_doubted() -> None:
    read = found(f"step {n % 10} loss 2.3" for n in range(30))
    assert read is not None
    assert "fell from 9 to 0" in read.contradiction


@pytest.mark.parametrize(("counted", "is_read"), [({}, True), ({"counted": True}, False)])
def test_what_a_trainer_reports_itself_goes_before_its_lines(counted: dict[str, bool], is_read: bool) -> None:
    printed = PrintedLines(())
    for number in range(4):
        told = {"type": "iteration", "iteration": number, "samples": 8 * number, **counted}
        line = OutputLine(t_s=float(number), text=json.dumps(told), stream="progress")
        printed.feed([line, OutputLine(t_s=float(number), text=f"step {number}")])
    read = printed.progress
    assert read is not None
    assert (read.by == "report()", read.counts_samples) == (is_read, is_read)
