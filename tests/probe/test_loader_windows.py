"""Windows of trainers whose batches come from the workers of a loader, in bursts."""

import math
import random
from statistics import fmean
from typing import Any

import pytest
from tests_probe import probe

from tuner.probe.probe_plan import LinePatterns, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.quantities import Quantity
from tuner.probe.summaries import samples_per_s
from tuner.probe.window import Marks, find_window
from tuner.trainers.command import loader_queue

WORKERS, PREFETCHED, EPOCH, BATCH = 16, 2, 195, 64
QUEUE = WORKERS * PREFETCHED
BAR = r"(?P<iteration>\d+)/\d+"


def batches(seed: int, *, count: int, make_s: float = 3.7, step_s: float = 0.12, end_s: float = 7.5) -> list[float]:
    """Return when each batch has been trained.

    Workers deliver in turn, and each makes at most `PREFETCHED` batches ahead. They begin anew at each epoch. All of
    them are slow at times, as on a busy machine.
    """
    chance, now_s, done = random.Random(seed), 0.0, []
    while len(done) < count:
        began_s, taken_s, made_s, slow = now_s, [], [], 0.0
        now_s += 0.0 if done else 20.0  # the model is built while the first queue fills
        for place in range(EPOCH):
            slow = 0.95 * slow + chance.gauss(0.0, 0.05)
            free_s = made_s[place - WORKERS] if place >= WORKERS else began_s
            room_s = taken_s[place - QUEUE] if place >= QUEUE else began_s
            made_s.append(max(free_s, room_s) + make_s * math.exp(slow + chance.gauss(0.0, 0.1)))
            taken_s.append(max(now_s, made_s[place]))
            now_s = taken_s[-1] + step_s
            done.append(now_s)
        now_s += end_s - make_s
    return done[:count]


def truth(seed: int) -> float:
    """Return the samples per second within an epoch, once its first queue has been used up."""
    times_s = batches(seed, count=8 * EPOCH)
    spans = [times_s[end] - times_s[end - EPOCH + 1 + QUEUE] for end in range(EPOCH - 1, len(times_s), EPOCH)]
    return BATCH * len(spans) * (EPOCH - 1 - QUEUE) / sum(spans)


def told(seed: int) -> Quantity | None:
    """Return what a probe tells that ends once its error is below 3 %, or after two minutes."""
    patterns = LinePatterns(patterns=(BAR,), samples_per_iteration=BATCH)
    reader, marks, found = ProgressReader(patterns, 0.0), Marks(1, BATCH), None
    for place, t_s in enumerate(batches(seed, count=3 * EPOCH)):
        if report := reader.feed(OutputLine(t_s=t_s, text=f"{place % EPOCH + 1}/{EPOCH}")):
            marks.add(report)
        if place % 16 == 0 or t_s > 120:
            limits: dict[str, Any] = {"least_s": 5.0, "least_iterations": 7}
            window = find_window(marks.complete, warmup_iterations=1, ran_out=False, queue=QUEUE, **limits)
            found = samples_per_s(window) if window and not window.is_queued else found
        if t_s > 120 or (found and found.error and found.error <= 0.03 * found.value):
            break
    return found


def test_of_ten_probes_nine_hold_the_truth_within_twice_their_error() -> None:
    expected = fmean(truth(seed) for seed in range(10))
    known = [(one.value, one.error) for one in map(told, range(10)) if one and one.error]
    assert len(known) == 10
    assert sum(abs(mean - expected) <= 2 * error for mean, error in known) >= 9
    assert max(error / mean for mean, error in known) < 0.2


def test_a_probe_goes_on_until_the_first_queue_is_used_up() -> None:
    lines = [(t_s, f"{place}/500") for place, t_s in enumerate(batches(0, count=EPOCH, step_s=0.3))]
    result, _ = probe(lines, patterns=LinePatterns(patterns=(BAR,), samples_per_iteration=BATCH, queue=QUEUE))
    assert result.window_s is not None
    assert result.total_s - result.window_s >= lines[QUEUE][0]


def test_an_epoch_s_end_is_counted_by_itself() -> None:
    lines = [(10.0 + place + 7.5 * (place // 30), f"{place % 30 + 1}/30") for place in range(90)]
    patterns = LinePatterns(patterns=(BAR,), samples_per_iteration=BATCH)
    result, _ = probe(lines, patterns=patterns, window_seconds=60)
    assert result.samples_per_s == pytest.approx(BATCH)
    (note,) = result.notes
    assert all(fact in note for fact in ("epoch", "7.5 s", "20 %", "30 iterations"))
    assert result.window_s is not None
    assert result.trained_s == pytest.approx(result.window_s - 7.5)


@pytest.mark.parametrize(("line", "what"), [("Saving model checkpoint", "checkpoint"), ("Evaluating …", "evaluation")])
def test_what_the_output_tells_of_in_a_long_iteration_is_no_part_of_the_window(line: str, what: str) -> None:
    times_s = [10.0 + place + 12.0 * (place >= 20) for place in range(80)]
    lines = [*((t_s, f"{place}/500") for place, t_s in enumerate(times_s)), (30.5, line)]
    patterns = LinePatterns(patterns=(BAR,), samples_per_iteration=BATCH)
    result, _ = probe(lines, patterns=patterns, window_seconds=60)
    assert result.samples_per_s == pytest.approx(BATCH)
    (note,) = result.notes
    assert what in note
    assert "12.0 s" in note


def test_a_queue_that_was_not_used_up_leaves_samples_per_s_unknown() -> None:
    lines = [(20.0 + 0.2 * place, f"{place}/500") for place in range(200)]
    patterns = LinePatterns(patterns=(BAR,), samples_per_iteration=BATCH, queue=250)
    result, _ = probe(lines, patterns=patterns, exit_at_s=60.0)
    assert (result.ok, result.samples_per_s) == (True, None)
    (note,) = result.notes
    assert "samples/s is unknown" in note
    assert "loader" in note


def test_a_config_with_workers_knows_the_queue_of_its_loader() -> None:
    assert loader_queue({"num_workers": 16, "prefetch_factor": 4}) == 64
    assert loader_queue({"dataloader_num_workers": 8}) == 16
    assert loader_queue({"workers": 0, "prefetch_factor": 2}) == 0
    assert loader_queue({"batch_size": 8}) == 0
