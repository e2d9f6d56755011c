"""The command `tuner`: its groups put together, and every error a user can cause turned into exit code 2."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from tuner import __version__
from tuner.cli import database, doctor, optimize, plan, preview, record, recover
from tuner.errors import TunerError

app = typer.Typer(
    help="Find the launch settings that keep the GPUs of a training run busiest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    doctor.doctor,
    optimize.optimize,
    record.record,
    recover.recover,
    database.status,
    database.export,
    preview.cases,
    plan.plan,
    database.dashboard,
    preview.schema,
):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tuner {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
]


@app.callback()
def _of_every_command(version: Version = False) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Run the command line."""
    try:
        app()
    except TunerError as error:
        Console(stderr=True).print(f"tuner: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
