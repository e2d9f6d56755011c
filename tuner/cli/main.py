"""The command `tuner`: its subcommands, each imported when it is called, and errors as exit code 2."""

import errno
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tuner import __version__
from tuner.cli import ended_by_ctrl_c
from tuner.errors import StudyError, TunerError

_HOMES = {
    "init": "setup:init",
    "try": "setup:attempt",
    "doctor": "setup:doctor",
    "failed": "soak:failed",
    "status": "show:status",
    "export": "show:export",
    "recover": "record:recover",
    "compare": "scale:compare",
    "decide": "scale:decide",
    "record": "record:record",
    "soak": "soak:soak",
    "race": "race:race",
    "verify": "verify:verify",
    "dashboard": "report:dashboard",
    "worker": "optimize:worker",
    "cases": "show:cases",
    "schema": "show:schema",
}
"""The homes of commands that are not `NAME:NAME`: a file of this folder, and a function in it."""
_GROUPS = {
    "Start": ("optimize", "status", "report", "plan"),
    "Set up": ("init", "try", "doctor", "cases", "schema"),
    "Inspect": ("export", "dashboard", "diagnose", "compare", "record"),
    "Memory and learning": ("soak", "failed", "verify", "race", "recover"),
    "Several GPUs": ("scale", "decide", "worker"),
}
"""The groups of `tuner --help` → their commands, in this order."""
_PANELS = {
    "The command": (
        *("search", "launch", "free_batch", "free_precision", "yes", "name", "python", "seconds", "force"),
    ),
    "The study": ("study", "cases", "settings", "max_seconds", "n_trials", "hours", "replay"),
    "Machines": ("devices", "workers", "gpus_per_trial", "launcher", "cores"),
    "Results": ("storage", "runs", "quiet", "as_json", "out"),
}
"""The groups of a command's options → the parameters in them; the others stand under "Options"."""
_OF_RESULTS = ("status", "report", "plan", "export", "dashboard", "soak", "failed", "verify", "race")
"""The commands about the results of a study; without a --study, they take the only study that has results."""
_OF_COMMANDS = ("optimize", "init", "doctor")
"""The commands that take a training command, after `--`."""


class _OneCommand(TyperCommand):
    """A command whose help shows its switches without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, `--help` included."""
        return _without_values(super().get_params(ctx))


def _without_values(options: list[Any]) -> list[Any]:
    """Return options whose switches show no value."""
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


class Deferred(TyperCommand):
    """A command whose file is imported when the command is called, or when its options are completed."""

    def __init__(self, name: str, group: str) -> None:
        """Read the command's line of help from its source, which is quicker than an import.

        `group`: where the list of commands shows it.
        """
        file, _, self._function = _HOMES.get(name, f"{name}:{name}").partition(":")
        self._module = f"tuner.cli.{file}"
        source = Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8")
        docstring = re.search(rf'^def {self._function}\(.*?"""(.*?)$', source, re.DOTALL | re.MULTILINE)
        super().__init__(name, help=docstring and docstring[1], rich_help_panel=group)

    @cached_property
    def command(self) -> Any:
        """The command of the imported file, with its groups of options and an example."""
        # the command, whose help is its docstring; the last paragraph of it is the example
        with ended_by_ctrl_c():
            imported = import_module(self._module)
        app_of_one_command = typer.Typer(add_completion=False)
        body = getattr(imported, self._function)
        text, _, example = cleandoc(body.__doc__).rpartition("\n\n")
        # behind the first word of a training command, all words are the command's own, as for `nohup` or `env`
        settings = {"allow_interspersed_args": self.name not in _OF_COMMANDS}
        app_of_one_command.command(self.name, cls=_OneCommand, context_settings=settings, help=text, epilog=example)(
            body
        )
        command = get_command(app_of_one_command)
        parameters = {str(parameter.name): parameter for parameter in command.params}
        # its study: found by its name, and left out where only one study has results
        if command.callback and {"study", "runs"} <= parameters.keys():
            command.callback = partial(_call_for_study, str(self.name), command.callback)
        if "study" in parameters and self.name in _OF_RESULTS:
            study: Any = parameters["study"]
            study.required = False
            study.help = f"{study.help} Default: the only study with results in runs/."
        # the groups of its options: a command without a training command has none about it
        panels = {panel: names for panel, names in _PANELS.items() if "command" in parameters or panel != "The command"}
        panel_of = {name: panel for panel, names in panels.items() for name in names}
        for name in parameters.keys() & panel_of.keys():
            parameters[name].rich_help_panel = panel_of[name]  # pyright: ignore[reportAttributeAccessIssue]
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return typer's context of the imported command, with the options of the line read.

        Raises StudyError where the name of a study stands in place of the training command.
        """
        if self.name in _OF_COMMANDS and args and _is_study(args[0]):
            instead = shlex.join(["tuner", "optimize" if self.name == "init" else self.name, "--study", *args])
            raise StudyError(f"{args[0]} is the name of a study, and no program: `{instead}`")
        return self.command.make_context(info_name, args, parent=parent, **extra)


@cache
def _deferred(name: str, group: str) -> Deferred:
    """Return a command, which is made once in a process that runs several command lines."""
    return Deferred(name, group)


def _is_study(word: str) -> bool:
    """Return whether a word is the name of a study in `studies/`, and no program has that name."""
    from tuner.study import study_exists  # noqa: PLC0415 - `tuner --help` needs no study

    return study_exists(word) and shutil.which(word) is None


def _call_for_study(command: str, function: Callable[..., object], /, **options: Any) -> object:
    """Call a command's function after finding the study that its option `--study` means, and return what it returns.

    The function gets the name or the file by which `load` finds the study. A command about results takes the only study
    with results where none is named. Raises StudyError.
    """
    study, runs = options["study"], options["runs"]
    if not study and command not in _OF_RESULTS:  # an empty text names none, either
        return function(**options)
    if command == "diagnose" and options["storage"]:  # this may be any study, also one without a file
        return function(**options)
    from tuner.cli.options import name_to_load, only_study  # noqa: PLC0415 - `tuner --help` needs no study
    from tuner.running.kept_file import origin_of  # noqa: PLC0415

    replays = command in {"status", "report", "export", "dashboard"}  # they show the results of a replay, too
    if study is None and options["storage"]:
        raise StudyError("name a --study: what lies in runs/ says nothing of the studies in a --storage")
    if study is None:
        study = only_study(runs, replays=replays)
        typer.echo(f"study {study}, the only one with results in {runs}/", err=True)
    options["study"] = name_to_load(study, runs, replays=replays)
    if origin := origin_of(options["study"]):
        typer.echo(f"{options['study']} is {origin}; start tuner there, as relative paths in it begin here", err=True)
    return function(**options)


class Commands(TyperGroup):
    """All commands, in the order of `tuner --help`."""

    def __init__(self, **attributes: Any) -> None:
        """Add each command to its group; typer gives `attributes`."""
        super().__init__(**attributes)
        for group, names in _GROUPS.items():
            for name in names:
                self.add_command(_deferred(name, group))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options before the subcommand, `--help` included."""
        return _without_values(super().get_params(ctx))


app = typer.Typer(
    cls=Commands,
    help="Make a training faster, and its GPUs busier, without a change to its script.",
    epilog="Example: tuner optimize -- python train.py --batch-size 32",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    """Print the version and end, if it is wanted."""
    if wanted:
        typer.echo(f"tuner {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
]


@app.callback()
def _of_every_command(version: Version = False) -> None:
    """Accept the options that stand before the subcommand."""


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Let TERM and the loss of the terminal end a command as Ctrl-C does, unless they are ignored or handled."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        """Handle a signal as Python handles Ctrl-C."""
        if number == signal.SIGHUP:
            from tuner.cli.options import fall_silent  # noqa: PLC0415 - as below

            fall_silent(sys.stdout, sys.stderr)  # writing to a terminal that is gone raises an error
        raise KeyboardInterrupt

    # `nohup` ignores SIGHUP, and a caller may handle TERM: such signals are left as they are
    unhandled = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


def main() -> None:
    """Run the command line: errors that a user or the machine causes end in one line and exit code 2."""
    try:
        with _ended_as_by_ctrl_c():
            app(prog_name="tuner")
    except TunerError as error:
        _refuse(str(error))
    except (OSError, RuntimeError, MemoryError, ImportError) as error:
        if (reason := _fault_of_machine(error)) is None:  # a fault of tuner: the traceback is needed
            raise
        if isinstance(error, OSError) and error.errno in _FULL:
            from tuner.cli.options import fall_silent  # noqa: PLC0415 - `tuner --help` needs no other command's options

            fall_silent(sys.stdout)  # the rest of its buffer would fail again
        _refuse(reason)
    except KeyboardInterrupt:
        sys.exit(130)


_FULL = (errno.ENOSPC, errno.EDQUOT)
"""No disk space is left."""


def _fault_of_machine(error: Exception) -> str | None:
    """Return which limit or path of the machine has caused an error, and what to do; None for any other error."""
    again = "then run the command again"
    out_of_reach = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP}
    out_of_reach |= {errno.EIO, errno.ESTALE, errno.ENOTCONN}  # a disk or a server no longer answers
    limits = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EADDRINUSE}  # setrlimit(2), and ports
    text = None
    match error:
        case MemoryError():
            text = f"memory ran out; see `ulimit -a` and `free`, {again} to resume"
        case ImportError() if not (error.name or "").startswith("tuner"):
            last_line = [line for line in str(error).splitlines() if line.strip()][-1]  # numpy's has a page before it
            remedy = "install tuner anew, or raise the limit that `ulimit -a` shows"
            text = f"a library cannot be loaded: {last_line}; {remedy}"
        case RuntimeError() if str(error).startswith("Symlink loop"):  # Path.resolve(), before Python 3.13
            text = f"{error}; remove the link, or name another path"
        case OSError(filename=str() as name) if error.errno in out_of_reach or name.startswith("/proc/"):
            text = f"{name} cannot be used: {error.strerror}; name another path, or fix this one, {again}"
        case OSError(errno=errno.ENOENT, filename=None):  # os.getcwd() fails without a file name
            text = f"the working directory no longer exists; change to another one, {again}"
        case OSError() if error.errno in limits:
            text = f"{error.strerror}; end what holds it, or raise the limit that `ulimit -a` shows, {again} to resume"
        case OSError() if error.errno in _FULL:
            text = f"the output cannot be written: {error.strerror}; free some disk space, {again}"
    return text


def _refuse(message: str) -> NoReturn:
    """Print an error, in red where the memory suffices for that, and end with exit code 2."""
    try:
        from tuner.cli.options import open_console  # noqa: PLC0415 - as above

        open_console(stderr=True).print(f"tuner: {message}", style="red")
    except MemoryError:
        sys.stderr.write(f"tuner: {message}\n")
    sys.exit(2)
