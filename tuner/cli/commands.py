"""The commands of `tuner`. The file of a command is imported when the command is called.

So no command waits for another command's packages: Optuna, pyarrow and sqlalchemy take most of a second together.
Until then a command is known by its name and its summary, which is all that `tuner --help` shows.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tuner.cli import loading

_COMMANDS = {
    "init": "Make a study file: run a command once for up to a minute and watch it, or take a trainer's preset.",
    "try": "Probe one config and show what was matched, counted and measured. The study's results stay as they are.",
    "doctor": "Check GPUs, trainer, database and disk, without starting a probe. Exit code 2 if there is a problem.",
    "optimize": "Run a study; the same command resumes it.",
    "worker": "Probe for a study that several workers share; start one for each set of cards, on any number of hosts.",
    "record": "Measure every config of a space, or a sample of it, and write tables; the same command resumes.",
    "recover": "For each case without a success, find one config that runs. Then name a num_envs that is safe "
    "for all cases.",
    "race": "Train a few configs of a search for the same time, and say which learns most; the same command resumes.",
    "status": "Show where a study stands.",
    "export": "Write a study's tables: best_by_case, case_manifest, method_summary, trials; pareto for several "
    "objectives.",
    "report": "Write one page about a study: the best configs, how certain they are, the failures, and the cost.",
    "diagnose": "Say why the GPUs of any Optuna study wait, and what to change. The database is only read.",
    "cases": "List the cases that the study's trainer knows. The cases of the study are marked with `*`.",
    "plan": "Print a shell script with the files, environment and command of one config per case. Nothing is started.",
    "dashboard": "Serve optuna-dashboard on a study, to this machine only, until Ctrl-C.",
    "scale": "Measure one GPU and several, alone and together, over each route; say how much is lost and where.",
    "compare": "Compare machines: speed-up, efficiency, samples for the money, and what to choose.",
    "schema": "Print what a study file may contain: its JSON schema, or a page of all keys.",
}
"""The name of each command → the first line of its help."""
_HOMES = {
    "try": "tuner.cli.attempt:attempt",
    "cases": "tuner.cli.preview:cases",
    "schema": "tuner.cli.preview:schema",
}
"""The homes of commands that are not `tuner.cli.NAME:NAME`."""


class Deferred(TyperCommand):
    """A command whose file is imported when the command is called, or when its options are completed."""

    def __init__(self, name: str, home: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._home = home

    def load(self) -> Any:
        """Import the command's file, and return the command itself."""
        module, _, function = self._home.partition(":")
        with loading():
            home = import_module(module)
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(getattr(home, function))
        return get_command(alone)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context of the command itself, with the options on the line."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class Commands(TyperGroup):
    """All commands, in the order of `tuner --help`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in _COMMANDS.items():
            self.add_command(Deferred(name, _HOMES.get(name, f"tuner.cli.{name}:{name}"), summary))
