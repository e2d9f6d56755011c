"""The console that commands print to."""

import builtins
import sys
from io import BytesIO, TextIOWrapper

import pytest
from rich.table import Table
from rich.text import Text

from tuner.cli.options import comment, open_console, say
from tuner.cli.screen import Bars, print_tables


@pytest.mark.parametrize("columns", ["0", "1", "2", "7"])
def test_a_terminal_without_a_width_gets_whole_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    comment("measured again")
    open_console().print("measured again", Table("measured"))
    assert capsys.readouterr().out.count("measured") == 3


def test_an_output_that_cannot_spell_a_letter_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii", write_through=True))
    open_console().print("61.2 ± 0.3")
    assert written.getvalue() == b"61.2 ? 0.3\n"


def test_a_notebook_gets_plain_text_without_ipywidgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    console = open_console()
    with Bars(console) as bars:
        bars.refresh()
        console.print("61.2")
    out, err = capsys.readouterr()
    assert (out.split(), err) == (["61.2"], "")


@pytest.mark.parametrize("text", ["train.py:100: UserWarning", "[red]", "[/x]", "a:b:"])
def test_text_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    console, table = open_console(), Table("config")
    table.add_row(text)
    console.print(text)
    print_tables(console, table)
    line, *rows = capsys.readouterr().out.splitlines()
    assert line == text
    assert any(text in row for row in rows)


HOSTILE = "a\x1b[2J\x07b\x9b31m\u202ec"


def test_no_control_character_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console, table = open_console(), Table(HOSTILE, "config")
    table.add_row(HOSTILE, HOSTILE)
    console.print(HOSTILE, style="red")
    console.print(Text(HOSTILE))
    print_tables(console, table)
    say(HOSTILE)
    open_console(stderr=True).print(HOSTILE)
    shown = "".join(capsys.readouterr())
    assert shown.count("a[2Jb31mc") == 7
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
