"""`tuner init`: make a study file from a command."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console

from tuner.cli.options import RUNS, Runs, devices_option, number_option, open_console, say, wrapped
from tuner.drafting.making import Wanted, make_study
from tuner.errors import StudyError
from tuner.study import LaunchName

Command = Annotated[list[str] | None, typer.Argument(help="The command line to tune, after `--`.", show_default=False)]
Launch = Annotated[
    list[str] | None,
    typer.Option(
        "--launch",
        help=f"A ready-made space: {', '.join(get_args(LaunchName))}. Repeat for more. The command is not watched.",
    ),
]
OnDevices = Annotated[str | None, devices_option("as many as the command has ranks")]
Searches = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        help="A flag and its values: batch_size=32,64 or num_envs=256..65536. Repeat for more. "
        "Default: at a terminal, you are asked.",
    ),
]
Name = Annotated[str | None, typer.Option(help="The name of the study; default: that of the script.")]
OutFile = Annotated[Path | None, typer.Option("--out", dir_okay=False, help="The file; default: studies/NAME.yaml.")]
Seconds = Annotated[
    float, number_option("--seconds", 1, "How long to watch the command; longer while torch makes no step.")
]
Python = Annotated[
    str | None, typer.Option(help="The Python of the trainer's environment; default: the command's own.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]
FreeBatch = Annotated[
    bool, typer.Option("--free-batch", help="Let batch and environments vary, which changes what is learnt.")
]
FreePrecision = Annotated[
    bool, typer.Option("--free-precision", help="Let the precision vary, which may change what is learnt.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Take what is proposed, without a question.")]


def init(
    command: Command = None,
    search: Searches = None,
    launch: Launch = None,
    name: Name = None,
    out: OutFile = None,
    devices: OnDevices = None,
    python: Python = None,
    seconds: Seconds = 60.0,
    free_batch: FreeBatch = False,
    free_precision: FreePrecision = False,
    yes: Yes = False,
    force: Force = False,
    runs: Runs = RUNS,
) -> None:
    """Make a study file: run a command once for up to a minute, and watch it.

    Example: tuner init -- python train.py --batch-size 32
    """
    wanted, console = Wanted.of(locals()), open_console()
    if not command:
        raise StudyError("name a command, as in `tuner init -- python train.py --batch-size 32`")
    study = study_of_command(console, command, wanted)
    console.print(f"next: `tuner try --study {shlex.quote(study)}` measures one config")


def study_of_command(console: Console, command: list[str], wanted: Wanted, *, to_search: bool = False) -> str:
    """Make the study of a command, and return how other commands name it; at a terminal, ask what to search.

    `to_search`: whether a search follows. Raises the errors of `make_study`.
    """
    ask = partial(_answer, width=console.width) if console.is_terminal and sys.stdin.isatty() else None
    return make_study(command, wanted, console.print, warn=say, ask=ask, to_search=to_search)


def _answer(prompt: str, width: int) -> str:
    """Show a question, wrapped between words, and return the line that a person types."""
    try:
        return input(f"{wrapped(prompt.strip(), width - len(' '))} ")
    except EOFError as end:
        raise typer.Abort from end
