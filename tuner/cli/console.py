"""The console that commands print to: a terminal, a file or a pipe."""

import os
import sys
from io import TextIOWrapper
from typing import TextIO

from rich.console import Console

PLAIN_WIDTH = 160
"""The width in characters of tables that are printed to a file or a pipe."""


def open_console(*, quiet: bool = False, stderr: bool = False) -> Console:
    """Return a console with the width of the terminal, or `PLAIN_WIDTH` for a file or a pipe.

    It prints text as it is: no `[red]` is a colour, and no `:100:` of a trainer's line an emoji. It prints `?` for a
    character that the output's encoding does not have. A `quiet` console prints nothing. A console on `stderr` leaves
    stdout to a document.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=quiet, stderr=stderr)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def fall_silent(*streams: TextIO) -> None:
    """Discard everything that is written to these streams from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
