"""Whatever a file, a URL, a database or a trainer's output holds: it is read, or refused with one message.

`python -m benchmarks.fuzz.tries` tries many more.
"""

from pathlib import Path

import pytest

from benchmarks.fuzz.subjects import SUBJECTS
from benchmarks.fuzz.tries import ATTRIBUTES, fuzz

TRIES, ATTRIBUTE_TRIES = 40, 5


@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_ends_in_a_traceback(name: str, tmp_path: Path) -> None:
    outcome = fuzz(name, tmp_path, ATTRIBUTE_TRIES if name == ATTRIBUTES else TRIES)
    assert outcome.tracebacks == []
    assert outcome.tries
