"""What every command shares: its options, the values that follow from them, and the console that it prints to."""

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TextIO

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tuner.errors import StudyError
from tuner.export import has_study, printable, relative_to_cwd
from tuner.records.urls import DATABASE, REPLAYED, STUDY_FILE, database_url
from tuner.study import StudySpec, is_fallback_of, literal_line, load, names, study_exists


def not_empty(text: Any) -> Any:
    """Return an option as it is. Raises typer.BadParameter for an empty one, such as `--cases "$UNSET_VARIABLE"`."""
    if text is not None and not "".join(text).strip(", "):
        raise typer.BadParameter("it is empty; leave the option out for the default")
    return text


def finite(number: float | None) -> float | None:
    """Return a number, or None, as it is. Raises typer.BadParameter for infinity and NaN."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter("it is no finite number")
    return number


def _folder(given: str | Path) -> Path:
    """Return the path of a folder. Raises typer.BadParameter for an empty path, which would mean the working one."""
    return Path(not_empty(str(given)))


def complete_studies(incomplete: str) -> list[str]:
    """Return what Tab offers after `--study`: studies whose names begin like `incomplete`, or else files."""
    return [name for name in names() if name.startswith(incomplete)]


STUDY = typer.Option(
    "--study",
    "-s",
    autocompletion=complete_studies,
    help="A name in studies/, a folder with results in runs/, or a path to a .yaml file.",
)
Study = Annotated[str, STUDY]


def devices_option(default: str) -> Any:
    """Return the option that names devices; `default` says what is used without it."""
    known = "auto, auto:CARDS, cpu:RANKS or CUDA indices (0,1)"
    return typer.Option("--devices", callback=not_empty, help=f"{known}; default: {default}.")


def number_option(name: str, least: float, help: str, most: float | None = None) -> Any:  # noqa: A002 - as in typer
    """Return the option for a finite number from `least` to `most`; None for no upper bound."""
    return typer.Option(name, min=least, max=most, callback=finite, help=help)


Devices = Annotated[str | None, devices_option("the study's")]
STORAGE_VARIABLE = "TUNER_STORAGE"
"""The environment variable for the URL of the database. Unlike an option, no process list shows it."""
Storage = Annotated[
    str | None,
    typer.Option(
        callback=not_empty,
        envvar=STORAGE_VARIABLE,
        help="SQLAlchemy URL of the database; default: a file in runs/STUDY.",
    ),
]
Hours = Annotated[float | None, number_option("--hours", 0, "Stop after this time; rerun to resume.")]
Runs = Annotated[
    Path,
    typer.Option(parser=_folder, metavar="PATH", help="Folder of the databases, probes and exports of all studies."),
]
Launcher = Annotated[
    Literal["local", "slurm"],
    typer.Option(help="slurm: as jobs of SLURM, with the resources that the study's `slurm` names."),
]

RUNS = Path("runs")


def load_shown(console: Console, study: str, *, to_show: bool = False) -> StudySpec:
    """Return a study, after printing whether its fallback stands in for it.

    `to_show`: whether variables for the trainer may be missing. Raises StudyError.
    """
    spec = load(study, to_show=to_show)
    for line in fallback_lines(spec, study):
        console.print(line)
    return spec


class ShownStudy(NamedTuple):
    """A study whose results a command shows."""

    spec: StudySpec
    folder: Path
    """The folder of its results; absolute."""
    url: str
    """The URL of its database."""


def open_shown(console: Console, study: str, storage: str | None, runs: Path) -> ShownStudy:
    """Return a study whose results a command shows; its trainer is not started, and may be missing.

    Where the trainer is missing, the study's fallback stands in, unless the study has results of its own. This prints
    what `load_shown` prints. Raises StudyError.
    """
    if is_replay(study, runs):
        spec = load(study.removesuffix(REPLAYED), fall_back=False, to_show=True)
        folder, storage = (runs / study).resolve(), None
    else:
        spec = _own_study_with_results(study, storage, runs) or load_shown(console, study, to_show=True)
        folder = (runs / spec.name).resolve()
    return ShownStudy(spec, folder, database_url(storage, folder))


def need_own_study(study: str | None, storage: str | None, runs: Path) -> None:
    """Raise StudyError where a fallback would stand in for a study with results: its best needs its own trainer."""
    if study and _own_study_with_results(study, storage, runs):
        raise StudyError(
            f"{study}: trainer.root is empty (is MIMICKIT_ROOT set?); its best configs need its own trainer"
        )


def _own_study_with_results(study: str, storage: str | None, runs: Path) -> StudySpec | None:
    """Return the study in place of its fallback, if the database has its results; otherwise, or without fallback, None.

    A study whose trainer is missing here is replaced by its fallback when it is loaded.
    """
    if not is_fallback_of(load(study, to_show=True), study):
        return None
    own = load(study, fall_back=False, to_show=True)
    return own if has_study(database_url(storage, (runs / own.name).resolve()), own.name) else None


def fallback_lines(spec: StudySpec, requested_study: str) -> Iterator[str]:
    """Yield a line if `spec` is the fallback of the study `requested_study`."""
    if is_fallback_of(spec, requested_study):
        yield (
            f"{requested_study}: trainer.root is empty (is MIMICKIT_ROOT set?); "
            f"its fallback {spec.name} stands in, and the results are stored under the fallback's name"
        )


def as_words(options: Mapping[str, object]) -> list[str]:
    """Return name → value of options as words of a command line. None and empty values are left out, lists repeat."""
    words: list[str] = []
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        for item in values:
            if item not in {None, ""}:
                words += [f"--{name}", str(item)]
    return words


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts; other text goes to stderr.")]


def plain(value: object) -> Any:
    """Return a value with its dataclasses, paths and enums as values of JSON; infinity and NaN become None."""
    return to_jsonable_python(value, inf_nan_mode="null")


def print_document(document: object) -> None:
    """Print a document, in ASCII: every encoding of stdout has those characters."""
    typer.echo(json.dumps(plain(document), indent=2))


_UNBROKEN = re.compile(r"`[^`\n]+`| ± |(?<=\d) (?=(?:%|s|min|h|MiB|samples/s|iterations/s)(?!\w))|(?<=min) (?=\d)")
"""Where no line is broken: in a command between backticks, around `±`, and before a unit."""


class _PlainConsole(Console):
    """A console that prints text as it is, breaks lines only between words, and prints no control characters."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **how: Any) -> None:
        """Print texts, wrapped at words behind the indent of their line; with `soft_wrap`, lines stay whole."""
        if soft_wrap is None:
            objects = tuple(wrapped(text, self.width) if isinstance(text, str) else text for text in objects)
        # rich itself breaks only what asks for it, such as a table: it would also break within commands
        super().print(*objects, soft_wrap=soft_wrap is not False, **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of what is printed, their texts without control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def wrapped(text: str, width: int, *, prefix: str = "") -> str:
    """Return a text whose lines fit a width where they can. No word is broken, and no command between backticks.

    Each line begins with `prefix`, such as that of a shell's comment.
    """
    parts = (part for line in text.split("\n") for part in _wrapped_lines(line, width - len(prefix)))
    return "\n".join(f"{prefix}{part}" for part in parts)


def _wrapped_lines(line: str, width: int) -> list[str]:
    """Return a line broken between words into lines that fit a width; the later ones are indented by four more."""
    if len(line) <= width:
        return [line]
    # what stays on one line has NULs in place of its spaces meanwhile, because `textwrap` breaks at spaces alone
    unbroken = _UNBROKEN.sub(lambda match: match[0].replace(" ", "\0"), line)
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    parts = textwrap.wrap(unbroken, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\0", " ") for part in parts]


def comment(text: str) -> None:
    """Print a comment of a shell script."""
    say(wrapped(text, open_console().width, prefix="# "))


def say(text: str, *, to_stderr: bool = False) -> None:
    """Print a line for a shell, without control characters and never wrapped."""
    typer.echo(printable(text), err=to_stderr)


def print_to_copy(text: str, console: Console | None = None) -> None:
    """Print a line to copy, byte for byte: where `console` prints, unless it is quiet; without a console to stdout."""
    if console is None or not console.quiet:
        typer.echo(os.fsencode(text), file=console.file if console else None)


def open_console(*, quiet: bool = False, stderr: bool = False) -> Console:
    """Return a console with the width of the terminal, of COLUMNS, or of 80 characters for a file or a pipe.

    It prints text as it is, without control characters: no `[red]` is a colour, and no `:100:` of a trainer's line an
    emoji. It prints `?` for a character that the output's encoding does not have. A `quiet` console prints nothing. A
    console on `stderr` leaves stdout to a document. In a notebook, too, it prints text, because rich's own form for it
    needs ipywidgets.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # not where tests replace it
        sys.stdout.reconfigure(errors="replace")
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "force_jupyter": False}
    console = _PlainConsole(**plain, quiet=quiet, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 80
    console.width = max(console.width, 20)  # a narrower terminal breaks the lines itself; some say 0
    return console


def print_written(console: Console, paths: Sequence[Path]) -> None:
    """Print the names of the written files, if any."""
    if paths:
        console.print(f"wrote {', '.join(map(str, map(relative_to_cwd, paths)))}")


def fall_silent(*streams: TextIO) -> None:
    """Discard everything that is written to these streams from now on, also what is still in their buffers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())  # the stream's own descriptor leads nowhere now
    os.close(nowhere)


def folders_with_results(runs: Path, *, replays: bool = True) -> list[str]:
    """Return the names of the folders in `runs` with results, sorted; those of replays only with `replays`."""
    folders = sorted(path.parent.name for path in runs.glob(f"*/{DATABASE}"))
    return [name for name in folders if replays or not is_replay(name, runs)]


def only_study(runs: Path, *, replays: bool) -> str:
    """Return the name of the only folder with results. Raises StudyError where there is none, or more than one."""
    match folders_with_results(runs, replays=replays):
        case [only]:
            return only
        case []:
            has_replays = bool(folders_with_results(runs))
            results = "results of replays alone, which have no trainer" if has_replays else "no results yet"
            raise StudyError(f"{runs}/ has {results}; run `tuner optimize`, or name a --study")
        case several:
            raise StudyError(f"{runs}/ has results of {len(several)} studies; name one: --study {' or '.join(several)}")


def name_to_load(study: str, runs: Path, *, replays: bool) -> str:
    """Return the name or the file by which `load` finds the study that a user names.

    The name of a replay's folder stays as it is: it has results, and no study file.

    Args:
        study: a study's name, the path of its file, or the name of a folder of results.
        runs: the folder of all results.
        replays: whether the command can show a replay.

    Raises:
        StudyError: for any other name, and for a replay that the command cannot show.
    """
    if study.endswith((".yaml", ".yml")) or study_exists(study):
        return study
    path = Path(study)
    if path.name != study and (path / DATABASE).is_file():  # the path of a folder of results
        if path.parent.resolve() != runs.resolve():
            options = literal_line(["--study", path.name, "--runs", str(path.parent)])
            raise StudyError(f"{study} is a folder of results; name it with {options}")
        study = path.name
    if (file := runs / study / STUDY_FILE).is_file():  # each search keeps its study file in its folder
        return str(file)
    if is_replay(study, runs):
        if replays:
            return study
        raise StudyError(f"{study} is a replay, without a trainer; name the study, {study.removesuffix(REPLAYED)}")
    if (runs / study / DATABASE).is_file():
        why = f"{runs / study} has results and no {STUDY_FILE}, as none is kept of a file with a password or a key"
        raise StudyError(f"{why}; give the path of the study's .yaml file")
    here = ", ".join(folders_with_results(runs)) or "none"
    raise StudyError(
        f"no study is called {study!r}; with results in {runs}/: {here}; in studies/ and with tuner: "
        f"{', '.join(names())}; or give a path to a .yaml file"
    )


def is_replay(study: str, runs: Path) -> bool:
    """Return whether a name is that of a folder with the results of a replay, which has no study file."""
    return study.endswith(REPLAYED) and not study_exists(study) and (runs / study / DATABASE).is_file()
