import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.output import MAX_LINE_BYTES, LineSplitter
from tuner.probe.probe_plan import LinePatterns, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.result import Score, Thin

ROWS = LinePatterns(patterns=(r"Iteration \| (?P<iteration>\S+)", r"Samples \| (?P<samples>\S+)"))


def test_a_return_is_read_beside_the_marks_and_may_be_negative() -> None:
    reader = ProgressReader(LinePatterns(patterns=(r"it (?P<iteration>\d+)", r"return (?P<return>\S+)")), 0.0)
    found = [
        reader.feed(OutputLine(t_s=float(t), text=text)) for t, text in enumerate(["it 1", "return -2.5", "return no"])
    ]
    assert [bool(one) for one in found] == [True, False, False]
    assert reader.score == Score(1.0, -2.5)
    reader.feed(OutputLine(t_s=4.0, text="return 1.2K"))
    assert reader.score == Score(4.0, 1200.0)


@pytest.mark.parametrize("printed", ["nan", "-NaN", "inf", "-inf", "Infinity", "1e400", "-1e20", "9" * 400])
@pytest.mark.parametrize("group", [r"(?P<return>\S+)", r"\[?(?P<return>-?[\d.e+-]+)"])
def test_a_return_that_is_no_usable_number_takes_the_place_of_an_older_one(printed: str, group: str) -> None:
    reader = ProgressReader(LinePatterns(patterns=(r"it (?P<iteration>\d+)", f"return {group}")), 0.0)
    reader.feed(OutputLine(t_s=1.0, text="return 50"))
    reader.feed(OutputLine(t_s=2.0, text=f"return {printed}"))
    assert reader.score
    assert reader.score.t_s == 2.0
    assert math.isnan(reader.score.value)


def test_the_first_rank_reports_the_score() -> None:
    reader = ProgressReader(LinePatterns(), 0.0)
    for rank, score in enumerate([3.5, 9.0]):
        told = {"type": "iteration", "iteration": 0, "rank": rank, "score": score}
        reader.feed(OutputLine(t_s=1.0, text=json.dumps(told), stream="progress"))
    assert reader.score == Score(1.0, 3.5)


@pytest.mark.parametrize("score", [10**20, 10**400, float("nan")])
def test_a_reported_score_that_is_no_usable_number_is_not_a_number(score: float) -> None:
    reader = ProgressReader(LinePatterns(), 0.0)
    told = {"type": "iteration", "iteration": 0, "score": score}
    reader.feed(OutputLine(t_s=1.0, text=json.dumps(told), stream="progress"))
    assert reader.score
    assert math.isnan(reader.score.value)


@given(st.lists(st.text(alphabet="ab \u00e9", min_size=1)), st.integers(1, 7))
def test_lines_do_not_depend_on_how_the_bytes_arrive(lines: list[str], size: int) -> None:
    data = "\n".join(lines).encode()
    splitter = LineSplitter()
    found = [line for start in range(0, len(data), size) for line in splitter.feed(data[start : start + size])]
    assert found + splitter.close() == lines


def test_carriage_returns_end_lines_and_bad_bytes_are_shown() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"Building 1/4\rBuilding 2/4\r\n\xff!\n") == ["Building 1/4", "Building 2/4", "\ufffd!"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;32miter\x1b[0m 3\x1b[K", "iter 3"),
        (b"\x1b]0;a title\x07loss 0.1\x1b(B", "loss 0.1"),
        (b"ding\x07 \x00\x9b\xc2\x9b2J", "ding \ufffd2J"),
        (b"a\ttab and caf\xc3\xa9\xc2\xa0\xe2\x96\x88", "a\ttab and caf\xe9\xa0\u2588"),
    ],
    ids=["colour", "title", "bell", "text"],
)
def test_what_a_terminal_would_obey_is_left_out(raw: bytes, text: str) -> None:
    assert LineSplitter().feed(raw + b"\n") == [text]


@given(st.text())
def test_a_line_holds_no_control_character_but_tabs(text: str) -> None:
    splitter = LineSplitter()
    for line in (*splitter.feed(text.encode(errors="replace")), *splitter.close()):
        assert not any(ord(letter) < 32 and letter != "\t" for letter in line)


def test_coloured_progress_is_understood() -> None:
    lines = LineSplitter().feed(b"\x1b[32mIteration\x1b[0m | \x1b[1m7\x1b[0m\nSamples | 64\n")
    assert marks(ProgressReader(ROWS, 0.0), *lines) == [(7, 64)]


def test_a_log_without_a_newline_stays_small() -> None:
    splitter = LineSplitter()
    for _ in range(100):
        assert splitter.feed(b"x" * MAX_LINE_BYTES) == []
    assert len(splitter.close()[0]) == MAX_LINE_BYTES


def test_what_ends_a_line_that_is_too_long_is_kept() -> None:
    splitter = LineSplitter()
    for _ in range(3):
        splitter.feed(b"." * MAX_LINE_BYTES)
    (line,) = splitter.feed(b"CUDA out of memory\n")
    assert line.endswith(".CUDA out of memory")
    assert len(line) == MAX_LINE_BYTES


def marks(reader: ProgressReader, *texts: str) -> list[tuple[int, int | None]]:
    found = (reader.feed(OutputLine(t_s=1.0, text=text)) for text in texts)
    return [(mark.iteration, mark.samples) for mark in found if mark]


def test_a_mark_is_complete_with_its_last_row() -> None:
    reader = ProgressReader(ROWS, 0.0)
    assert marks(reader, "Iteration | 0", "loss | 3", "Samples | 64", "Iteration | 1") == [(0, 64)]


def test_what_is_no_count_is_no_mark() -> None:
    for bad in ["nan", "inf", "-3", "many"]:
        assert marks(ProgressReader(ROWS, 0.0), f"Iteration | {bad}", "Samples | 64") == []


def test_progress_that_goes_backwards_is_no_mark() -> None:
    texts = ["Iteration | 5", "Samples | 1", "Iteration | 4", "Samples | 2", "Iteration | 5", "Samples | 3"]
    assert marks(ProgressReader(ROWS, 0.0), *texts) == [(5, 1)]


def record(**fields: object) -> OutputLine:
    return OutputLine(t_s=9.0, text=json.dumps(fields), stream="progress")


def test_a_record_is_a_mark_at_its_own_time() -> None:
    mark = ProgressReader(LinePatterns(), 100.0).feed(record(iteration=2, rank=1, samples=7, busy_s=0.5, t_s=104.0))
    assert mark is not None
    assert (mark.iteration, mark.rank, mark.samples, mark.busy_s, mark.t_s) == (2, 1, 7, 0.5, 4.0)


@pytest.mark.parametrize("value", ["why?", 5, None])
def test_a_record_may_have_any_other_key(value: object) -> None:
    mark = ProgressReader(LinePatterns(), 100.0).feed(record(iteration=0, after=value, name=value))
    assert mark is not None
    assert mark.iteration == 0


@pytest.mark.parametrize("stamp_s", [99.0, 1e9, None], ids=["before", "after", "none"])
def test_a_time_stamp_outside_the_probe_is_replaced_by_the_time_of_reading(stamp_s: float | None) -> None:
    mark = ProgressReader(LinePatterns(), 100.0).feed(record(iteration=2, t_s=stamp_s))
    assert mark is not None
    assert mark.t_s == 9.0


def test_a_time_stamp_that_stands_still_is_replaced_by_the_time_of_reading() -> None:
    reader = ProgressReader(LinePatterns(), 100.0)
    found = [reader.feed(record(iteration=number, t_s=104.0)) for number in range(2)]
    assert [mark.t_s for mark in found if mark] == [4.0, 9.0]


def test_a_count_that_falls_is_unknown() -> None:
    reader = ProgressReader(LinePatterns(), 0.0)
    found = [reader.feed(record(iteration=number, samples=count)) for number, count in enumerate([10, 5, 8, 20])]
    assert [mark.samples for mark in found if mark] == [10, None, None, 20]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1]", '"x"', "[" * 100_000, '{"iteration": "x"}', '{"iteration": NaN}'),
        *('{"iteration": 1, "rank": -1}', '{"iteration": 1, "rank": "x"}', f'{{"iteration": {10**400}}}'),
    ],
    ids=range(10),
)
def test_garbage_in_the_progress_file_is_no_mark(text: str) -> None:
    assert ProgressReader(LinePatterns(), 0.0).feed(OutputLine(t_s=0.0, text=text, stream="progress")) is None


def test_ranks_count_for_themselves() -> None:
    reader = ProgressReader(LinePatterns(), 0.0)
    assert all(reader.feed(record(iteration=0, rank=rank)) for rank in range(2))


def test_what_is_thin_lies_in_its_iteration() -> None:
    for told, thin in [
        ({"thin_from_s": 104.0, "thin_by": 8}, Thin(4.0, 8.0)),
        ({"thin_from_s": 104.0}, None),
        ({"thin_by": 8}, None),
        ({"thin_from_s": 104.0, "thin_by": 1.0}, None),
        ({"thin_from_s": 104.0, "thin_by": math.inf}, None),
        ({"thin_from_s": 100.5, "thin_by": 8}, None),  # begins before the iteration
        ({"thin_from_s": 106.0, "thin_by": 8}, None),
    ]:
        reader = ProgressReader(LinePatterns(), origin_s=100.0)
        messages = [{"iteration": 0, "t_s": 101.0}, {"iteration": 1, "t_s": 106.0, **told}]
        lines = [OutputLine(t_s=7.0, text=json.dumps(message), stream="progress") for message in messages]
        assert [mark.thin for mark in map(reader.feed, lines) if mark] == [None, thin]


LINE = LinePatterns(patterns=(r"step (?P<iteration>\d+).* samples (?P<samples>\d+)",))


def test_counts_are_read_as_people_print_them() -> None:
    for printed, samples in [
        ("12,800", 12_800),
        ("1,234,567", 1_234_567),
        ("1.28e+04", 12_800),
        ("12.8K", 12_800),
        ("1.2M", 1_200_000),
        ("12_800", 12_800),
        ("12", 12),
        ("12MB", 12),
        ("12,", 12),
        ("12, 800", 12),
        ("12,34", 12),
    ]:
        assert marks(ProgressReader(LINE, 0.0), f"step 3 | samples {printed}") == [(3, samples)]


@given(st.integers(0, 2**53), st.sampled_from(["{}", "{:,}", "{:_}"]))
def test_a_count_is_the_same_however_it_is_grouped(count: int, form: str) -> None:
    assert marks(ProgressReader(LINE, 0.0), f"step 3 | samples {form.format(count)} x") == [(3, count)]


@pytest.mark.parametrize("printed", ["1.8m", "1.8b", "12T"])
def test_a_letter_that_may_mean_another_power_is_refused_and_never_left_out(printed: str) -> None:
    counts = LinePatterns(patterns=(r"samples (?P<samples>[\d.]+)",))
    assert marks(ProgressReader(counts, 0.0), f"step 3 | samples {printed}") == [(1, None)]


@pytest.mark.parametrize("huge", [2**31, 2**63, 10**400])
def test_an_iteration_that_no_database_can_hold_is_no_mark(huge: int) -> None:
    assert marks(ProgressReader(LINE, 0.0), f"step {huge} samples 1") == []
    assert ProgressReader(LinePatterns(), 0.0).feed(record(iteration=huge)) is None


def test_samples_that_no_database_can_hold_are_unknown() -> None:
    assert marks(ProgressReader(LINE, 0.0), f"step 1 samples {2**63}") == [(1, None)]


def test_counts_that_start_again_each_epoch_go_on() -> None:
    bar = LinePatterns(patterns=(r"Epoch (?P<epoch>\d+):.* (?P<iteration>\d+)/\d+ ",))
    texts = [f"Epoch {epoch}: | {step}/3 [" for epoch in range(3) for step in range(1, 4)]
    assert [one for one, _ in marks(ProgressReader(bar, 0.0), *texts)] == list(range(1, 10))


def test_without_an_epoch_only_a_deep_fall_is_a_new_start() -> None:
    plain = LinePatterns(patterns=(r"step (?P<iteration>\d+)",))
    texts = [f"step {number}" for number in (1, 2, 3, 2, 4, 5, 6, 7, 1, 2)]
    assert [one for one, _ in marks(ProgressReader(plain, 0.0), *texts)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def counted(*patterns: str) -> ProgressReader:
    return ProgressReader(LinePatterns(patterns=patterns), 0.0)


def test_matches_without_a_number_count_as_iterations() -> None:
    assert marks(counted("epoch finished"), "epoch finished", "saving", "epoch finished") == [(1, None), (2, None)]
    texts = ["samples 64", "== end of update ==", "== end of update ==", "samples 192", "== end of update =="]
    assert marks(counted(r"samples (?P<samples>\d+)", "^== end"), *texts) == [(1, 64), (2, None), (3, 192)]


def test_a_line_that_repeats_its_samples_is_no_other_iteration() -> None:
    texts = [f"global_step={samples}, return={samples % 7}" for samples in (128, 128, 256, 250, 256, 384)]
    assert marks(counted(r"global_step=(?P<samples>\d+)"), *texts) == [(1, 128), (2, 256), (3, 384)]


def test_ranks_count_their_own_lines() -> None:
    reader = counted(r"rank (?P<rank>\d) is done")
    found = [reader.feed(OutputLine(t_s=1.0, text=f"rank {rank} is done")) for rank in (0, 1, 1, 0)]
    assert [(one.rank, one.iteration) for one in found if one] == [(0, 1), (1, 1), (1, 2), (0, 2)]


def test_a_report_has_an_iteration_of_its_own() -> None:
    reader = counted("epoch finished")
    assert reader.feed(record(samples=7)) is None
    assert reader.feed(record(iteration=5)) is not None
