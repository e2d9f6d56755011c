"""The options that several commands share, and the values that follow from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from sqlalchemy import URL

from tuner.cli import completion
from tuner.errors import StoreError
from tuner.search.siblings import lending_order
from tuner.study.cases import Case, select
from tuner.study.spec import StudySpec
from tuner.workbench import Workbench

Text = TypeVar("Text", str, list[str])


def _not_empty(text: Text | None) -> Text | None:
    """Refuse an option with an empty value, which is often an unset shell variable."""
    if text is not None and not "".join(text).strip(", "):
        raise typer.BadParameter("it is empty; leave the option out for the default")
    return text


def _folder(given: str | Path) -> Path:
    """Return the path of a folder. An empty path is refused, because it would mean the working directory."""
    return Path(_not_empty(str(given)) or "")


Study = Annotated[
    str,
    typer.Option(
        "--study", "-s", autocompletion=completion.studies, help="A name in studies/, or a path to a .yaml file."
    ),
]
Cases = Annotated[
    list[str] | None,
    typer.Option(
        callback=_not_empty,
        autocompletion=completion.cases,
        help="Globs of cases: separated by commas, or repeat the option; default: the study's.",
    ),
]
Devices = Annotated[
    str | None, typer.Option(callback=_not_empty, help="auto, cpu:RANKS or CUDA indices (0,1); default: the study's.")
]
STORAGE_VARIABLE = "TUNER_STORAGE"
"""The environment variable for the URL of the database. Unlike an option, no process list shows it."""
Storage = Annotated[
    str | None,
    typer.Option(
        callback=_not_empty,
        envvar=STORAGE_VARIABLE,
        help="SQLAlchemy URL of the database; default: a file in runs/STUDY.",
    ),
]
Hours = Annotated[float | None, typer.Option(min=0, help="Stop after this time; the same command continues.")]
Runs = Annotated[
    Path,
    typer.Option(parser=_folder, metavar="PATH", help="Folder of the databases, probes and exports of all studies."),
]
Out = Annotated[
    Path | None, typer.Option(parser=_folder, metavar="PATH", help="Folder for the tables; default: runs/STUDY/tables.")
]

Launcher = Annotated[
    Literal["local", "slurm"],
    typer.Option(help="slurm: as jobs of SLURM, with the resources that the study's `slurm` names."),
]

RUNS = Path("runs")
DATABASE = "study.db"
"""The file name of a study's default database."""


def storage_url(storage: str | None, spec: StudySpec, runs: Path) -> str:
    """Return the URL of the study's database: `storage`, or else the URL of its SQLite file."""
    return database_url(storage, (runs / spec.name).resolve())


def database_url(storage: str | None, folder: Path, file: str = DATABASE) -> str:
    """Return `storage`, or else the URL of a SQLite file in `folder`.

    Raises StoreError when a URL cannot contain the folder's name.
    """
    try:
        return storage or URL.create("sqlite", database=str(folder / file)).render_as_string()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{str(folder)!r} is not UTF-8, which a database's URL needs; name another --runs folder"
        ) from error


def chosen_cases(bench: Workbench, cases: Sequence[str] | None) -> list[Case]:
    """Return the requested cases, or else the study's cases. Raises StudyError for a glob that matches no case."""
    asked = [part.strip() for option in cases or () for part in option.split(",")]
    return select(bench.trainer.cases(), [part for part in asked if part] or bench.spec.cases)


def cases_to_search(bench: Workbench, cases: Sequence[str] | None) -> list[Case]:
    """Return the chosen cases in the order of the search. If a study asks for all, those that lend most come first."""
    chosen = chosen_cases(bench, cases)
    return lending_order(chosen) if not cases and bench.spec.cases == ("*",) else chosen


def as_words(options: Mapping[str, object]) -> list[str]:
    """Return options as words of a command line; an option that is None or empty is left out, a list repeats it."""
    return [
        word
        for name, value in options.items()
        for one in (value if isinstance(value, list) else [value])
        if one not in {None, ""}
        for word in (f"--{name}", str(one))
    ]
