import json
from pathlib import Path

import pytest

from tuner.drafting.progress import Found, find_patterns, find_progress
from tuner.probe.lines import LineSplitter
from tuner.probe.protocols import Line

DATA = Path(__file__).parents[1] / "data"


def lines(*texts: str, every_s: float = 0.5) -> list[Line]:
    return [Line(t_s=place * every_s, text=text) for place, text in enumerate(texts)]


def recorded(file: str) -> list[Line]:
    return lines(*LineSplitter().feed((DATA / file).read_bytes()))


def found_in(*texts: str) -> Found:
    found = find_progress(lines(*texts))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("file", "likely", "preset"),
    [
        ("progress/sb3.log", (), "sb3"),
        ("progress/rsl_rl.log", (), "rsl_rl"),
        ("progress/rsl_rl.log", ("isaaclab", "rsl_rl"), "isaaclab"),
        ("progress/lightning.log", (), "lightning"),
        ("progress/lightning_tqdm.log", ("lightning",), "lightning"),
        ("progress/huggingface.log", (), "tqdm"),
        ("progress/huggingface.log", ("huggingface",), "huggingface"),
        ("progress/cleanrl.log", (), "cleanrl"),
        ("progress/torchrun.log", (), None),
        ("healthy/ok_hiutil_e1024.log", (), "mimickit"),
    ],
)
def test_real_output_is_recognised(file: str, likely: tuple[str, ...], preset: str | None) -> None:
    found = find_progress(recorded(file), likely)
    assert found is not None
    assert found.preset == preset


@pytest.mark.parametrize(
    ("file", "patterns"),
    [
        (
            "progress/sb3.log",
            (r"\|\s+iterations\s+\|\s*(?P<iteration>\d+)", r"\|\s+total_timesteps\s+\|\s*(?P<samples>\d+)"),
        ),
        ("progress/rsl_rl.log", (r"Learning\s+iteration\s*(?P<iteration>\d+)/", r"Total\s+steps:\s*(?P<samples>\d+)")),
        ("progress/torchrun.log", (r"step\s*(?P<iteration>\d+)/.*?samples\s*(?P<samples>\d+)",)),
        ("healthy/ok_cpu2.log", (r"\|\s+Iteration\s+\|\s*(?P<iteration>\d+)", r"\|\s+Samples\s+\|\s*(?P<samples>\d+)")),
    ],
)
def test_patterns_are_found_by_the_form_of_real_lines_alone(file: str, patterns: tuple[str, ...]) -> None:
    assert find_patterns([line.text for line in recorded(file)]) == patterns


@pytest.mark.parametrize(
    ("texts", "iterations", "samples"),
    [
        ([f"epoch 0 [{n}/90] loss 0.{n}" for n in (10, 20, 30, 40)], [10, 20, 30, 40], [None] * 4),
        ([f"2026-11-23 07:0{n}:59,123 INFO it={n} t=1{n}.5s" for n in range(4)], [0, 1, 2, 3], [None] * 4),
        ([f"{n} 0.{9 - n}" for n in range(1, 6)], [1, 2, 3, 4, 5], [None] * 5),
        (
            [f"update {n} | 1.5{n} s | frames {n * 12},800 | reward -{n}.5" for n in range(1, 5)],
            [1, 2, 3, 4],
            [12800, 24800, 36800, 48800],
        ),
        ([f"global_step={n * 4096}, SPS=900" for n in (1, 2, 3)], [1, 2, 3], [4096, 8192, 12288]),
        ([f"time_elapsed {n} | batch {7 * n}" for n in (1, 2, 3)], [7, 14, 21], [None] * 3),
    ],
    ids=["counter in brackets", "clock", "bare numbers", "thousands", "steps alone", "time"],
)
def test_lines_that_no_preset_knows_are_understood(
    texts: list[str], iterations: list[int], samples: list[int | None]
) -> None:
    found = found_in("starting", *texts)
    assert found.preset is None
    assert [one.iteration for one in found.reports] == iterations
    assert [one.samples for one in found.reports] == samples


@pytest.mark.parametrize(
    "texts",
    [
        ["waiting for a lock"] * 20,
        [f"worker {n % 2} is ready" for n in range(6)],
        [f"layer {n % 7} done" for n in range(70)],
        [f"loading shard {n}" for n in range(2)],
        [f"time elapsed {n}" for n in range(9)],
    ],
    ids=["no number", "no growth", "a cycle", "too few", "time alone"],
)
def test_lines_without_progress_are_not_understood(texts: list[str]) -> None:
    assert find_progress(lines(*texts)) is None


def test_a_list_that_is_printed_at_once_is_no_progress() -> None:
    assert find_progress(lines(*(f"({n}): Linear(in_features=128)" for n in range(9)), every_s=0.0)) is None


def test_reports_of_the_trainer_itself_come_first() -> None:
    told = [
        Line(t_s=float(n), text=json.dumps({"iteration": n, "samples": 8 * n, "t_s": n}), stream="progress")
        for n in range(4)
    ]
    found = find_progress([*recorded("progress/sb3.log"), *told])
    assert found is not None
    assert (found.preset, found.patterns, found.reports[-1].samples) == (None, (), 24)


def test_one_iteration_of_a_likely_preset_is_enough_at_the_end() -> None:
    table = recorded("progress/sb3.log")[:12]
    assert find_progress(table, ("sb3",)) is None
    found = find_progress(table, ("sb3",), last=True)
    assert found is not None
    assert (found.preset, found.iteration_s) == ("sb3", None)


def test_lines_that_begin_a_preset_are_waited_for() -> None:
    episodes = [f"global_step={n * 40}, episodic_return={n}" for n in range(1, 9)]
    found = found_in(*episodes)
    assert (found.preset, found.is_sure) == (None, False)
    found = find_progress(lines(*episodes, "SPS: 400"), last=True)
    assert found is not None
    assert (found.preset, found.is_sure, found.reports[-1].samples) == ("cleanrl", True, 320)


def test_the_length_of_an_iteration_leaves_out_the_first() -> None:
    steps = [Line(t_s=t_s, text=f"step {n}") for n, t_s in enumerate([30.0, 40.0, 42.0, 44.0])]
    found = find_progress(steps)
    assert found is not None
    assert found.iteration_s == 2.0
