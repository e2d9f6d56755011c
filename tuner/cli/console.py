"""Where commands print: terminals, files and pipes."""

import os
import sys
from io import TextIOWrapper
from typing import TextIO

from rich.console import Console

PLAIN_WIDTH = 160
"""Columns of tables that go to a file or a pipe."""


def open_console() -> Console:
    """Give a console that fits the terminal, or is wide enough for a table elsewhere; what it cannot spell is a `?`."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=PLAIN_WIDTH)


def fall_silent(*streams: TextIO) -> None:
    """Let what is written to these go nowhere from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
