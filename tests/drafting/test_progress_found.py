import json
import re
from pathlib import Path

import pytest

from tuner.drafting.progress_found import Found, find_patterns, find_progress
from tuner.probe.output import LineSplitter
from tuner.probe.probe_plan import LinePatterns
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.protocols import OutputLine

DATA = Path(__file__).parents[1] / "data"


def lines(*texts: str, every_s: float = 0.5) -> list[OutputLine]:
    return [OutputLine(t_s=place * every_s, text=text) for place, text in enumerate(texts)]


def recorded(file: str) -> list[OutputLine]:
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


def epochs(form: str, steps: range, *between: str) -> list[str]:
    """Return the lines of four epochs of 200 steps, with some other lines after each epoch."""
    texts: list[str] = []
    for epoch in range(4):
        texts += [form.format(epoch=epoch, step=step, pct=step // 2, any=step % 7) for step in steps]
        texts += between
    return texts


FROM_0, FROM_1 = range(0, 200, 10), range(10, 201, 10)


@pytest.mark.parametrize(
    ("texts", "pattern"),
    [
        (
            epochs(
                "Epoch: [{epoch}]  [{step:3d}/200]  eta: 0:00:1{any}  lr: 0.1  img/s: 12{any}.4 (120.1)",
                FROM_0,
                "Epoch: [0] Total time: 0:00:05",
                *(f"Test:   [{n}/10]  eta: 0:00:01  loss: 2.3" for n in range(10)),
            ),
            r"Epoch:\s+\[\s*(?P<epoch>\d+)\]\W*(?P<iteration>\d+)/.*?img/s:\s*(?P<samples_per_s>",
        ),
        (
            epochs(
                "Train: {epoch} [{step:>4d}/200 ({pct:>3d}%)]  Loss: 6.9{any} (6.9)  Time: 0.04{any}s, 17{any}.50/s",
                FROM_0,
                *(f"Test: [{n:>4d}/20]  Time: 0.123" for n in (0, 20)),
            ),
            r"Train:\s*(?P<epoch>\d+)\W*(?P<iteration>\d+)/",
        ),
        (
            epochs(
                "11/23 07:06:1{any} - mmengine - INFO - Epoch(train)  {epoch} [{step:>3d}/200]  lr: 1.0e-02",
                FROM_1,
                "11/23 07:06:59 - mmengine - INFO - Saving checkpoint at 1 epochs",
            ),
            r"Epoch\(train\)\s*(?P<epoch>\d+)\W*(?P<iteration>\d+)/",
        ),
        (
            epochs("{step}/200 ━━━━━━━━━━ {any}s 45ms/step - accuracy: 0.1{any} - loss: 2.3{any}", FROM_1, "Epoch 2/9"),
            r"^\W*(?P<iteration>\d+)/",
        ),
        (
            epochs(
                "Train Epoch: {epoch} [{step}/200 ({pct}%)]\tLoss: 2.3{any}", FROM_0, "Test set: Accuracy: 99/100 (99%)"
            ),
            r"Train\s+Epoch:\s*(?P<epoch>\d+)\W*(?P<iteration>\d+)/",
        ),
        (epochs("Epoch {epoch}, Step {step}, Loss 2.3{any}", FROM_0), r"Epoch\s*(?P<epoch>\d+).*?,\s+Step\s*(?P<iter"),
    ],
    ids=["torchvision", "timm", "mmengine", "keras", "mnist", "words"],
)
def test_iterations_within_epochs_go_on_over_epochs(texts: list[str], pattern: str) -> None:
    found = found_in("starting", *texts)
    assert pattern in found.patterns[-1]
    first = found.reports[0].iteration
    assert [one.iteration - first for one in found.reports] == list(range(0, 800, 10))


@pytest.mark.parametrize(
    ("texts", "pattern", "last"),
    [
        (
            [f"Epoch[{n // 9}] Iteration[{n}/9] Loss: 2.3" for n in range(1, 36)],
            r"\]\s+Iteration\[\s*(?P<iteration>\d+)/",
            35,
        ),
        (
            [
                text
                for n in range(9)
                for text in (f"iter {n * 10}: time 4{n}ms", *[f"step {n * 10}: val 2"] * (n % 3 == 0))
            ],
            r"iter\s*(?P<iteration>\d+)",
            80,
        ),
        (
            [f"train[{n * 100}]: loss=2.3{n}, steps_per_sec=12.{n}" for n in range(9)],
            r"train\[\s*(?P<iteration>\d+)\]",
            800,
        ),
        ([f"[rank {n % 2}] step {n // 2} | loss 2.3" for n in range(20)], r"\]\s+step\s*(?P<iteration>\d+)", 9),
        (
            [f"[{rank}] step={n} loss=2.3" for n in range(0, 90, 10) for rank, n in ((1, n + 10), (0, n))],
            r"\]\s+step=\s*(?P<iteration>\d+)",
            90,
        ),
        ([f"train {'━' * n}╺{'─' * (9 - n)} {n}/90" for n in range(9)], r"train\s*\W*(?P<iteration>\d+)/", 8),
        ([f"train [{'=' * n}>{'.' * (9 - n)}] step {n}" for n in range(9)], r"step\s*(?P<iteration>\d+)", 8),
        ([f"Epoch {n}/9" for n in range(1, 9)], r"Epoch\s*(?P<iteration>\d+)/", 8),
        (
            [f"episode {n} step {n * 9 + n % 3} length {n % 4 + 3}" for n in range(1, 9)],
            r"step\s*(?P<iteration>\d+)",
            74,
        ),
    ],
    ids=[
        "a count over all epochs",
        "two counts",
        "steps per second",
        "each rank",
        "a rank ahead",
        "a bar of blocks",
        "a bar of marks",
        "epochs alone",
        "steps beside episodes",
    ],
)
def test_the_number_that_counts_is_chosen(texts: list[str], pattern: str, last: int) -> None:
    found = found_in(*texts)
    assert (found.patterns, found.reports[-1].iteration) == ((pattern,), last)
    assert not found.prints_speeds


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u202f"])
def test_spaces_between_thousands_are_read_where_the_lines_decide(space: str) -> None:
    def printed(form: str, *values: int) -> list[str]:
        return [form.replace("N", f"{value:,}".replace(",", space)) for value in values]

    found = found_in(*printed("epoch 1  samples N  loss 2.3", *range(1024, 30_000, 1024)))
    assert [one.samples for one in found.reports] == list(range(1024, 30_000, 1024))
    found = found_in(*printed("step N/200 000  loss 2.3", *range(25, 3000, 25)))
    assert found.reports[-1].iteration == 2975
    both = printed("step N/900 samples M", *range(9)), printed("N", *range(1024, 30_000, 1024))
    read = ProgressReader(
        LinePatterns(patterns=find_patterns([line.replace("M", more) for line, more in zip(*both, strict=False)])), 0.0
    )
    assert read.feed(OutputLine(t_s=0.0, text=f"step 1{space}500/9{space}000 samples 48{space}000")) is not None
    irregular = [1000 * n + 7 * n * n % 1000 for n in (*range(2, 30, 3), *range(30, 40))]
    assert "(?P<" not in "".join(find_patterns(printed("epoch 1  samples N  loss 2.3", *irregular)))


@pytest.mark.parametrize(
    ("texts", "last"),
    [
        ([f"epoch 1 {n} 200" for n in range(100, 190, 10)], 180),
        ([f"epoch 1 {n} 200 samples {n * 1024:,}" for n in range(100, 190, 10)], 180),
        ([f"step {n} {456 + n * n % 97}" for n in range(120, 140)], 139),
        ([f"epoch {n // 40 + 1} {n % 40 * 10:03}" for n in range(100)], 990),
    ],
    ids=["an end", "commas", "a number beside it", "an epoch and its steps"],
)
def test_two_numbers_beside_each_other_stay_two(texts: list[str], last: int) -> None:
    assert found_in(*texts).reports[-1].iteration == last


def block(*forms: str, steps: int = 12, **more: int) -> list[str]:
    """Return lines of these forms, step by step. `{n}` is the step, `{x}` a number that goes up and down."""
    return [form.format(n=n, x=n % 4 + 3, big=4096 * n, one=64 * n) for n in range(1, steps) for form in forms]


@pytest.mark.parametrize(
    ("texts", "patterns"),
    [
        (
            block("| nupdates | {n} |", "| serial_timesteps | {one} |", "| total_timesteps | {big} |"),
            (r"\|\s+nupdates\s+\|\s*(?P<iteration>\d+)", r"\|\s+total_timesteps\s+\|\s*(?P<samples>\d+)"),
        ),
        (
            block("iteration {n}/99 | global_step: {n} | consumed_samples: {one} | tokens: {big}"),
            (r"\|\s+global_step:\s*(?P<iteration>\d+).*?\|\s+consumed_samples:\s*(?P<samples>\d+)",),
        ),
        (
            block('{{"ts": 17639000{n:02d}, "global_step": {n}, "loss": 0.{x}}}'),
            (r',\s+"global_step":\s*(?P<iteration>\d+)',),
        ),
        (
            block("| RUNNING | 10.0.0.1:1234 | {n} | {n}.5 | {big} |"),
            (r"\|\s+RUNNING\s+\|\s*[-+\w.,:]++\W*+(?P<iteration>\d+)",),
        ),
        (
            block("Epoch[1] Iteration[{n}0/500] Loss: 2.{x}"),
            (r"Epoch\[\s*(?P<epoch>\d+).*?\]\s+Iteration\[\s*(?P<iteration>\d+)/",),
        ),
        (
            block("stop] epoch=0/micro_step={one}/global_step={n}, lr=[0.{x}]"),
            (r"stop\]\s+epoch=\s*(?P<epoch>\d+).*?/global_step=\s*(?P<iteration>\d+)",),
        ),
        (block("│ Train {n}s │", "│ Env {n}GB │", "│ Epoch {n} │"), (r"│\s+Epoch\s*(?P<iteration>",)),
        (block("frames 2.{n:02d}M | rew {x}"), (r"frames\s*(?P<samples>",)),
        (block("Training | | ▃▅▇ {n}/12 [{x}]"), (r"Training\s*\W*(?P<iteration>\d+)/",)),
        (block("INFO | rank14726 | step={n} loss={x}"), (r"\S+\s+\|\s+step=\s*(?P<iteration>\d+)",)),
        (block("update {n}/90 fps 12{x}"), (r"update\s*(?P<iteration>\d+)/.*?fps\s*(?P<samples_per_s>",)),
        (block("step={n} loss=0.{x} 32{x}.5 samples/s/gpu"), (r"step=\s*(?P<iteration>\d+)",)),
        (
            block("iteration {n} | env steps {big}"),
            (r"iteration\s*(?P<iteration>\d+).*?\|\s+env\s+steps\s*(?P<samples>",),
        ),
        (block("uptime={n} [{n}0] loss={x}"), (r"uptime=\s*[-+\w.,:]++\W*+(?P<iteration>\d+)\]",)),
    ],
    ids=[
        "largest total",
        "same growth",
        "date",
        "address",
        "brackets",
        "slashes",
        "units",
        "millions",
        "bar",
        "a process",
        "an end before a speed",
        "a speed of a rank",
        "two words",
        "uptime",
    ],
)
def test_the_number_is_read_that_was_chosen(texts: list[str], patterns: tuple[str, ...]) -> None:
    found = find_patterns(texts)
    assert len(found) == len(patterns)
    for one, expected in zip(found, patterns, strict=True):
        assert one.startswith(expected) if expected.endswith(">") else one == expected


def test_a_long_line_with_many_numbers_is_read_at_once() -> None:
    trained = [f"\x1b[K 1/3 0G 1.{n} 0.6899 0.1276 64 64: 0% ──── {n}/400 4.9it/s 0.{n}s" for n in range(10, 40)]
    checked = [
        f"\x1b[K Class Images Box(P R mAP50 mAP50-95): 75% ━━━━ {n}/40 1.1it/s 1.9s<0.{n}s" for n in range(10, 40)
    ]
    (pattern,) = find_patterns([*trained, *checked])  # takes minutes where the pattern can split a number in many ways
    assert not any(re.search(pattern, line) for line in checked)
    assert [match["iteration"] for line in trained[:2] if (match := re.search(pattern, line))] == ["10", "11"]


def test_lines_without_a_count_are_iterations() -> None:
    found = found_in(*(f"{{'loss': '2.3{n}', 'learning_rate': '4.5e-05', 'epoch': '0.{16 + n}'}}" for n in range(9)))
    assert found.patterns == (r"\{'loss':\s+'\s*",)
    assert (found.counts_numbers, found.reports[-1].iteration) == (False, 9)


@pytest.mark.parametrize(
    "texts",
    [
        ["waiting for a lock"] * 20,
        [f"worker {n % 2} is ready" for n in range(6)],
        [f"layer {n % 7} done" for n in range(70)],
        [f"loading shard {n}" for n in range(2)],
        [f"time elapsed {n}" for n in range(9)],
        [f"Epoch 0 {'━' * 40} {n // 3}% -:--:--" for n in range(40)],
    ],
    ids=["no number", "no growth", "a cycle", "too few", "time alone", "a percentage"],
)
def test_lines_without_progress_are_not_understood(texts: list[str]) -> None:
    assert find_progress(lines(*texts)) is None


def test_a_list_that_is_printed_at_once_is_no_progress() -> None:
    assert find_progress(lines(*(f"({n}): Linear(in_features=128)" for n in range(9)), every_s=0.0)) is None


def test_reports_of_the_trainer_itself_come_first() -> None:
    told = [
        OutputLine(t_s=float(n), text=json.dumps({"iteration": n, "samples": 8 * n, "t_s": n}), stream="progress")
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
    steps = [OutputLine(t_s=t_s, text=f"step {n}") for n, t_s in enumerate([30.0, 40.0, 42.0, 44.0])]
    found = find_progress(steps)
    assert found is not None
    assert found.iteration_s == 2.0


def test_a_bar_s_samples_are_counted_with_its_steps() -> None:
    bar = "Epoch #1:  12%|#   | {n}/5000 [00:06<00:44, 98.9it/s, env_episode=20, env_step={samples}, gradient_step={n}]"
    found = found_in(*(bar.format(n=n, samples=n + 640) for n in range(10, 90, 10)))
    assert [(one.iteration, one.samples) for one in found.reports] == [(n, n + 640) for n in range(10, 90, 10)]


def test_steps_of_environments_over_a_lifetime_are_samples() -> None:
    texts = [
        text
        for n in range(1, 5)
        for text in (
            f" 'num_env_steps_sampled_lifetime': {1000 * n},",
            f"      'weights_seq_no': {n - 1}.0}},",
            f" 'iterations_since_restore': {n},",
            f"      'weights_seq_no': {n}.0}},",
            f" 'timers': {{'training_iteration': 3.7{n}}},",
            f" 'training_iteration': {n},",
        )
    ]
    assert [(one.iteration, one.samples) for one in found_in(*texts).reports] == [(n, 1000 * n) for n in range(1, 5)]


@pytest.mark.parametrize(
    ("line", "counts_epochs"),
    [("Epoch: [0][{n:3d}/80] Loss 6.9", False), ("| Epoch | {n} |", True), ("iter {n}, epoch 3", False)],
)
def test_a_count_within_an_epoch_counts_no_epochs(line: str, counts_epochs: bool) -> None:
    ranks = [line.format(n=n) for n in range(1, 80, 10) for _ in range(2)]
    late = ["Epoch: [1][  1/80] Loss 6.9", "Epoch: [0][ 71/80] Loss 6.9"] if "[0]" in line else []
    assert found_in(*ranks, *late).counts_epochs is counts_epochs


@pytest.mark.parametrize(
    ("line", "called"),
    [("g_step {0} d_step {1} loss 0.{0}", "g_step 4"), ("Epoch 1: {0}/100 loss 0.{0}", ""), ("[{0}/100] step", "")],
)
def test_the_word_before_a_count_says_which_count_it_is(line: str, called: str) -> None:
    assert found_in(*(line.format(count, 5 * count) for count in range(5))).called == called


def test_a_bar_of_a_preparation_is_none_of_the_training() -> None:
    scans = [f"train: Scanning labels... 64 images: {n}% ━━ {n}/100 99.0it/s 0.{n}s" for n in range(0, 101, 4)]
    trains = [f"   1/3   0G   7.{n}   64: {n}% ━━ {n}/400 30.1it/s 0.{n}s<9s" for n in range(8)]
    assert find_progress(lines(*scans)) is None
    assert [one.iteration for one in found_in(*scans, *trains).reports] == list(range(8))


def test_a_first_step_that_is_printed_beside_every_tenth_one_is_a_count() -> None:
    found = found_in(*(f"step: {n:2}  loss: 7.{n}  tps: 1,{400 + n}" for n in (1, 10, 20, 30)))
    assert [one.iteration for one in found.reports] == [1, 10, 20, 30]


def test_a_count_that_begins_again_comes_to_no_first_end() -> None:
    texts = [f"Reading files {n}/5 done" for n in range(6)]
    assert [found_in(*texts[:seen]).to_end_s for seen in (6, 4)] == [0.0, 1.0]
    assert found_in(*texts, *texts).to_end_s is None


def test_a_warm_up_that_counts_with_the_words_of_the_training_is_left_out() -> None:
    warm_up = [f"step {n}/40 loss nan" for n in range(5, 41, 5)]
    trains = [f"step {n}/4000 loss 2.{n}" for n in range(5, 41, 5)]
    assert find_patterns(warm_up) == (r"step\s*(?P<iteration>\d+)/",)
    found = found_in(*warm_up, *trains)
    assert found.patterns == (r"step\s*(?P<iteration>\d+)/(?!\s*(?:40)\b)",)
    assert [one.iteration for one in found.reports] == list(range(5, 41, 5))
    assert not found.doubt
    assert "took turns" in found_in(*warm_up, *(line.replace("/4000", "/90") for line in trains)).doubt


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("iter {n} bs {grown} loss 2.{n}", "from 8 to 16"),
        ("iter {n} {{'batch_size': {grown}, 'loss': 2.{n}}}", "from 8 to 16"),
        ("iter {n} batch {grown}/40 loss 2.{n}", ""),
        ("iter {n} batch {n} loss 2.{n}", ""),
        ("iter {n} update {slow} batch {slow} loss 2.{n}", ""),
        ("iter {n} bs {short} loss 2.{n}", ""),
    ],
    ids=["grows", "of a dictionary", "a count with an end", "a count", "a slow count", "a last batch"],
)
def test_a_batch_that_changes_by_itself_is_told(line: str, sizes: str) -> None:
    numbers = [
        {"n": n, "grown": 8 * (1 + n // 12), "slow": n // 4, "short": 3 if n % 12 == 11 else 8} for n in range(36)
    ]
    lines = [OutputLine(t_s=n / 2, text=line.format(**one)) for n, one in enumerate(numbers)]
    found = find_progress(lines)
    assert found is not None
    assert found.doubt.rpartition(", ")[2] == sizes
