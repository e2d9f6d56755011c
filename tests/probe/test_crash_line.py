"""The line of an output that explains a crash."""

import pytest

from tuner.probe.evidence import RootCauses, crash_line

TRACEBACK = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/MimicKit/mimickit/learning/amp_agent.py", line 114, in _store_disc_replay_data
[rank1]:     self._disc_buffer.push(disc_data)
[rank1]:   File "/home/me/MimicKit/mimickit/learning/experience_buffer.py", line 112, in push
[rank1]:     assert(n <= self._buffer_length)
[rank1]:            ^^^^^^^^^^^^^^^^^^^^^^^^
[rank1]: AssertionError"""
STATEMENT = "AssertionError in experience_buffer.py, line 112: assert(n <= self._buffer_length)"


def words_of(lines: list[str]) -> str:
    causes = RootCauses()
    for line in lines:
        causes.feed(line)
    return crash_line(causes, lines)


@pytest.mark.parametrize("prefix", ["[rank1]: ", ""])
def test_an_exception_without_a_message_is_shown_with_the_statement_that_raised_it(prefix: str) -> None:
    lines = TRACEBACK.replace("[rank1]: ", prefix).splitlines()
    assert words_of([*lines, "a peer has gone"]) == prefix + STATEMENT


def test_the_last_exception_is_quoted_or_else_the_last_line() -> None:
    for lines, words in [
        (['  File "a.py", line 7, in run', "    train()", "ValueError: 3 rungs", "bye"], "ValueError: 3 rungs"),
        (["KeyError: 'first'", "torch.cuda.OutOfMemoryError: full"], "torch.cuda.OutOfMemoryError: full"),
        (["AssertionError"], "AssertionError"),
        (['  File "a.py", line 7, in run', "AssertionError"], "AssertionError in a.py, line 7"),
        (["loading", "Segmentation fault "], "Segmentation fault"),
        (["| Train_Return | 6.72 |", "---------------"], "| Train_Return | 6.72 |"),
        (["\\o/"], "\\o/"),
        ([], "no output"),
    ]:
        assert words_of(lines) == words


def test_a_long_line_is_shown_without_its_middle() -> None:
    words = words_of([f"ValueError: {'x' * 5_000} of 3 rungs"])
    assert len(words) < 450
    assert words.startswith("ValueError: xxx")
    assert words.endswith("xxx of 3 rungs")


@pytest.mark.parametrize(
    "ends",
    [
        "W1128 16:16:33 9 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 8 closing signal",
        "[2024-05-01 10:00:00] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) of 7",
    ],
)
def test_the_message_of_a_rank_is_quoted_before_what_torchrun_says_of_its_end(ends: str) -> None:
    torchrun = [
        ends,
        "Traceback (most recent call last):",
        '  File "/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "train.py FAILED",
    ]
    assert (
        words_of(["loading", "unknown key in config: num_wrokers", *torchrun]) == "unknown key in config: num_wrokers"
    )
    assert words_of(["ValueError: no such robot", "bye", *torchrun]) == "ValueError: no such robot"
    assert "ChildFailedError" in words_of(torchrun)
