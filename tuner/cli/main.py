"""The command `tuner` with all its subcommands. It turns every error that a user can cause into exit code 2."""

import errno
import sys
from typing import Annotated, NoReturn

import typer

from tuner import __version__
from tuner.cli.commands import Commands
from tuner.cli.console import fall_silent, open_console
from tuner.errors import TunerError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_OUT_OF_REACH = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EIO, errno.ESTALE, errno.ENOTCONN),  # a disk or a server no longer answers
)

app = typer.Typer(
    cls=Commands,
    help="Find the launch settings that keep the GPUs of a training run busiest.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tuner {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
]


@app.callback()
def _of_every_command(version: Version = False) -> None:
    """Accept the options that stand before the subcommand."""


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="tuner")
    except TunerError as error:
        _refuse(str(error))
    except OSError as error:
        if error.filename and error.errno in _OUT_OF_REACH:
            _refuse(f"{error.filename} cannot be used: {error.strerror}; name another path, or fix this one")
        if error.errno == errno.ENOENT and not error.filename:  # os.getcwd() fails without a file name
            _refuse("the working directory no longer exists; change to another one, then run the command again")
        if error.errno not in _FULL:
            raise
        fall_silent(sys.stdout)  # the rest of its buffer would fail again
        _refuse(f"the output cannot be written: {error.strerror}; free some disk space, then run the command again")
    except KeyboardInterrupt:
        sys.exit(130)


def _refuse(message: str) -> NoReturn:
    open_console(stderr=True).print(f"tuner: {message}", style="red")
    sys.exit(2)
