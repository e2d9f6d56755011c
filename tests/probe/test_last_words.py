"""The line of an output that explains a crash."""

import pytest

from tuner.probe.evidence import RootCauses, last_words

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
    return last_words(causes, lines)


@pytest.mark.parametrize("prefix", ["[rank1]: ", ""])
def test_an_exception_without_a_message_is_shown_with_the_statement_that_raised_it(prefix: str) -> None:
    lines = TRACEBACK.replace("[rank1]: ", prefix).splitlines()
    assert words_of([*lines, "a peer has gone"]) == prefix + STATEMENT


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['  File "a.py", line 7, in run', "    train()", "ValueError: 3 rungs", "bye"], "ValueError: 3 rungs"),
        (["KeyError: 'first'", "torch.cuda.OutOfMemoryError: full"], "torch.cuda.OutOfMemoryError: full"),
        (["AssertionError"], "AssertionError"),
        (['  File "a.py", line 7, in run', "AssertionError"], "AssertionError in a.py, line 7"),
        (["loading", "Segmentation fault "], "Segmentation fault"),
        ([], "no output"),
    ],
)
def test_the_last_exception_is_quoted_or_else_the_last_line(lines: list[str], words: str) -> None:
    assert words_of(lines) == words


def test_a_long_line_is_shown_without_its_middle() -> None:
    words = words_of([f"ValueError: {'x' * 5_000} of 3 rungs"])
    assert len(words) < 450
    assert words.startswith("ValueError: xxx")
    assert words.endswith("xxx of 3 rungs")
