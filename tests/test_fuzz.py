"""Whatever a file, a URL, a database or a trainer's output holds: it is read, or refused with one message.

`FUZZ_TRIES=3000 pytest --timeout 0 tests/test_fuzz.py` tries many more.
"""

import os
from pathlib import Path

import pytest

from tests.support.tests_fuzz.subjects import SUBJECTS
from tests.support.tests_fuzz.tries import ATTRIBUTES, fuzz

TRIES = int(os.environ.get("FUZZ_TRIES", "15"))
ATTRIBUTE_TRIES = TRIES // 5
"""Each of them opens, shows and exports a study."""


@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_ends_in_a_traceback(name: str, tmp_path: Path) -> None:
    outcome = fuzz(name, tmp_path, ATTRIBUTE_TRIES if name == ATTRIBUTES else TRIES)
    assert outcome.tracebacks == []
    assert outcome.tries
