"""Outputs whose counts make no sense: samples/s are right, or unknown with the reason."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from tests_probe import READINGS, iterations, probe

from tuner.probe.metrics import SAMPLES_PER_S, without_rough_speed
from tuner.probe.probe_plan import Answer, LinePatterns, Next, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.result import FailureKind, ProbeResult
from tuner.search.verdict import next_answer
from tuner.study.spec import ProbeSpec
from tuner.trainers.command_options import PRESETS

Lines = list[tuple[float, str]]
COUNTED = LinePatterns(patterns=(r"it (?P<iteration>\d+)",), samples_per_iteration=64)
TOTALS = LinePatterns(patterns=(r"it (?P<iteration>\d+) samples (?P<samples>\d+)",))
BARS = LinePatterns(patterns=PRESETS["tqdm"].progress, samples_per_iteration=8)
SELDOM = tuple(one for one in READINGS if one.t_s % 2 == 0)
"""A reading of each card every two seconds: the speed needs none."""


def measured(lines: Lines, patterns: LinePatterns, *, window_seconds: float = 5.0) -> ProbeResult:
    """Return what a study of utilisation keeps of such a trainer."""
    spec = ProbeSpec(window_seconds=window_seconds)

    def precise(so_far: ProbeResult | None) -> Answer:
        return next_answer(so_far, ["min_avg_util"], spec) if so_far else Answer(Next.GO)

    result, _ = probe(lines, patterns=patterns, stop=precise, readings=SELDOM, window_seconds=window_seconds)
    assert result.ok
    return without_rough_speed(result, ("min_avg_util",))


def unknown(result: ProbeResult, *facts: str) -> bool:
    """Return whether samples/s are unknown, and a note names the reason with its facts."""
    said = [note for note in result.notes if note.startswith("samples/s is unknown")]
    return result.samples_per_s is None and len(said) == 1 and all(fact in said[0] for fact in facts)


def line(number: int) -> str:
    return f"it {number} samples {64 * number}"


def test_a_machine_that_becomes_quiet_has_a_speed_and_its_error_shows_the_change() -> None:
    times = [*range(10, 40), *(40.0 + 0.05 * step for step in range(80)), *range(45, 60)]
    lines = [(float(t_s), line(number)) for number, t_s in enumerate(times)]
    result, _ = probe(lines, patterns=TOTALS, exit_at_s=61.0, iterations=len(lines), warmup_iterations=1)
    assert result.samples_per_s is not None
    assert without_rough_speed(result).samples_per_s is None


def with_old_lines(every: int) -> Lines:
    lines: Lines = []
    for number in range(100):
        lines.append((10.0 + 0.2 * number, line(number)))
        if number % every == every - 1:
            lines += [(10.001 + 0.2 * number, line(old)) for old in range(number + 1)]
    return lines


@pytest.mark.parametrize(
    "patterns",
    [TOTALS, COUNTED, LinePatterns(patterns=(r"samples (?P<samples>\d+)",))],
    ids=["both", "counted", "samples"],
)
def test_old_lines_that_are_printed_again_are_no_training(patterns: LinePatterns) -> None:
    assert unknown(measured(with_old_lines(10), patterns), "fell from", "to 0")


@pytest.mark.parametrize("first", [0, 300], ids=["from 0", "from the last"])
def test_old_lines_at_the_start_give_no_speed(first: int) -> None:
    old = [(9.0, line(number)) for number in range(300)]
    live = [(10.0 + 0.2 * number, line(first + number)) for number in range(200)]
    assert unknown(measured([*old, *live], TOTALS))


def test_counts_of_each_iteration_are_no_total() -> None:
    for seed in range(4):
        chance = random.Random(seed)
        lines = [(10.0 + number, f"it {number} samples {chance.gauss(11_400, 3_000):.0f}") for number in range(50)]
        assert unknown(measured(lines, TOTALS), "samples", "fell")


@pytest.mark.parametrize("rate", [5, 20, 53])
def test_output_from_a_buffer_gives_the_speed_between_its_bursts(rate: int) -> None:
    lines = [(10.0 + (number // 103 + 1) * 103 / rate, line(number)) for number in range(2000)]
    assert measured(lines, TOTALS).samples_per_s == pytest.approx(64 * rate)


def test_iterations_that_tell_no_samples_do_not_hide_those_of_the_others() -> None:
    printed = LinePatterns(patterns=(r"total (?P<samples>\d+)", r"SPS \d+"))
    lines = [
        (10.0 + 0.2 * number, text)
        for number in range(1, 200)
        for text in ([f"total {64 * number}"] if number % 4 else []) + [f"SPS {number}"]
    ]
    assert measured(lines, printed).samples_per_s == pytest.approx(320, rel=0.01)


@pytest.mark.parametrize(
    "patterns", [TOTALS, LinePatterns(patterns=(r"it (?P<iteration>\d+)",))], ids=["both", "alone"]
)
def test_iterations_have_a_speed_with_an_error_although_nothing_counts_samples(patterns: LinePatterns) -> None:
    lines = [(10.0 + 0.2 * number + 0.01 * (number % 2), line(number)) for number in range(200)]
    result = measured(lines, patterns)
    assert result.iterations_per_s == pytest.approx(5.0, rel=0.01)
    assert 0.0 < (result.iterations_per_s_se or 0.0) < 0.5
    assert (result.samples_per_s is None) == (patterns is not TOTALS)


def test_old_lines_give_iterations_no_speed() -> None:
    assert measured(with_old_lines(10), TOTALS).iterations_per_s is None


def bar(name: str, start_s: float, end: int, rate: float, unit: str = "it/s") -> Lines:
    return [
        (start_s + step / rate, f"{name}{100 * step // end}%|█ | {step}/{end} [00:01<00:10, {rate:.2f}{unit}]")
        for step in range(end + 1)
    ]


@pytest.mark.parametrize(("unit", "steps", "is_known"), [(" examples/s", 1000, True), ("it/s", 80, False)])
def test_bars_of_a_preparation_are_no_training(unit: str, steps: int, is_known: bool) -> None:
    names = ("Adding EOS to train dataset: ", "Tokenizing train dataset: ", "Truncating train dataset: ")
    prepares = [
        one
        for place, name in enumerate(names)
        for one in bar(name, 5.0 + place * (1.0 + steps / 100), steps, 100.0, unit)
    ]
    result = measured([*prepares, *bar("", prepares[-1][0] + 1.0, 500, 2.0)], BARS)
    assert result.samples_per_s == (pytest.approx(16) if is_known else None)
    assert is_known or unknown(result, "bars of 80 and 500 steps")


def in_turn(train: int, validate: int, names: Sequence[str] = ("", "")) -> Lines:
    lines: Lines = []
    now_s = 10.0
    for _ in range(5):
        lines += bar(names[0], now_s, train, 2.0)
        lines += bar(names[1], now_s + train / 2 + 0.5, validate, 20.0)
        now_s += train / 2 + validate / 20 + 1.0
    return lines


@pytest.mark.parametrize(
    ("validate", "names", "facts"),
    [
        (28, ("", ""), ("bars", "30", "28")),
        (60, ("", ""), ("bars", "30", "60")),
        (60, ("fit ", "check "), ("bars", "30", "60")),
    ],
    ids=["alike", "longer", "other names"],
)
def test_bars_that_take_turns_give_no_speed(validate: int, names: Sequence[str], facts: Iterable[str]) -> None:
    assert unknown(measured(in_turn(30, validate, names), BARS, window_seconds=40), *facts)


def test_a_bar_with_the_name_of_an_evaluation_takes_no_turn() -> None:
    result = measured(in_turn(30, 60, ("train ", "valid ")), BARS, window_seconds=40)
    assert result.samples_per_s == pytest.approx(16, rel=0.02)


def with_evaluations(every: int, text: str = "evaluating") -> Lines:
    """Steps of half a second, and after each `every` of them an evaluation of 10 s."""
    lines = [(20.0 + 0.5 * number + 10.0 * ((number - 1) // every), f"it {number}") for number in range(1, 300)]
    told = [(t_s + 0.01, text) for number, (t_s, _) in enumerate(lines, 1) if number % every == 0]
    return sorted([*lines, *told])


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        (in_turn(30, 60, ("train ", "valid ")), 15 / 19),
        (with_evaluations(20), 0.5),
        (with_evaluations(50, "saved last.pt"), None),
        (with_evaluations(400), None),
    ],
    ids=["epochs", "evaluations", "one checkpoint", "none"],
)
def test_the_share_of_steps_is_known_once_a_window_shows_how_often_they_pause(
    lines: Lines, share: float | None
) -> None:
    patterns = BARS if "train" in lines[0][1] else COUNTED
    result = measured(lines, patterns, window_seconds=36)
    assert result.step_share == (share and pytest.approx(share, rel=0.05))
    assert any("costs" in note for note in result.notes) == (lines != with_evaluations(400))


def test_lines_of_a_validation_are_no_training() -> None:
    lines: Lines = []
    for epoch in range(20):
        lines += [(10.0 + 17 * epoch + 0.5 * step, f"it {30 * epoch + step}") for step in range(1, 31)]
        lines += [(25.2 + 17 * epoch + 0.05 * step, f"it {step}") for step in range(1, 29)]
    assert unknown(measured(lines, COUNTED, window_seconds=40), "fell from 30 to 1")


def test_an_epoch_that_is_named_may_count_anew() -> None:
    named = replace(COUNTED, patterns=(r"epoch (?P<epoch>\d+) it (?P<iteration>\d+)",))
    lines = [(10.0 + number, f"epoch {number // 20} it {number % 20}") for number in range(90)]
    assert measured(lines, named, window_seconds=50).samples_per_s == pytest.approx(64, rel=0.02)


def test_a_compilation_within_the_window_gives_no_speed() -> None:
    for compile_s, step_s in [(6.0, 0.5), (3.0, 0.5), (1.5, 0.05), (20.0, 1.0)]:
        lines = [(5.0, "it 0"), *((5.0 + compile_s + step_s * number, f"it {number + 1}") for number in range(400))]
        assert unknown(measured(lines, COUNTED), "±")


def test_a_speed_that_is_the_objective_stays_with_its_error() -> None:
    slow, _ = probe(iterations(3, step_s=90.0), patterns=COUNTED, max_seconds=130)
    assert unknown(without_rough_speed(slow, ("min_avg_util",)), "0.711 ± 0.11")
    assert without_rough_speed(slow, (SAMPLES_PER_S,)) == slow


def test_a_healthy_run_that_is_over_too_early_is_no_reading() -> None:
    result, _ = probe(iterations(12, step_s=0.1), exit_at_s=33.0)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.kind.value) == (FailureKind.NO_READING, "no_reading")
    assert "iteration 11" in result.failure.detail
    assert "more steps or epochs" in result.failure.detail
    assert "exit code" not in result.failure.detail


def test_a_bar_that_is_drawn_before_its_first_step_has_no_iteration_yet() -> None:
    reader = ProgressReader(LinePatterns(patterns=PRESETS["tqdm"].progress), 0.0)
    bar = "{n}/564 [00:0{n}<?, ?it/s]"
    reports = [reader.feed(OutputLine(t_s=float(n), text=bar.format(n=n))) for n in range(3)]
    assert [one and one.iteration for one in reports] == [None, 1, 2]
