"""The console that commands print to: a terminal, a file or a pipe."""

import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tuner.export.harmless import printable

PLAIN_WIDTH = 160
"""The width in characters of tables that are printed to a file or a pipe."""


class _Harmless(Console):
    """Lets no control character reach the output but those with which rich itself draws."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of what is printed, their texts without control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def say(text: str, *, to_stderr: bool = False) -> None:
    """Print a line for people or for a shell, without control characters and never wrapped."""
    typer.echo(printable(text), err=to_stderr)


def open_console(*, quiet: bool = False, stderr: bool = False) -> Console:
    """Return a console with the width of the terminal, or `PLAIN_WIDTH` for a file or a pipe.

    It prints text as it is, without control characters: no `[red]` is a colour, and no `:100:` of a trainer's line an
    emoji. It prints `?` for a character that the output's encoding does not have. A `quiet` console prints nothing. A
    console on `stderr` leaves stdout to a document.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = _Harmless(highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=quiet, stderr=stderr)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def fall_silent(*streams: TextIO) -> None:
    """Discard everything that is written to these streams from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
