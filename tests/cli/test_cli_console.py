"""The console that commands print to."""

import sys
from io import BytesIO, TextIOWrapper

import pytest

from tuner.cli.console import open_console


def test_an_output_that_cannot_spell_a_letter_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii", write_through=True))
    open_console().print("61.2 ± 0.3")
    assert written.getvalue() == b"61.2 ? 0.3\n"
