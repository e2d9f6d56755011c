"""The options that several commands share, `--json` among them, and the values that follow from them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic_core import to_jsonable_python
from sqlalchemy import URL

from tuner.errors import StoreError
from tuner.study.load import names
from tuner.study.spec import StudySpec

Text = TypeVar("Text", str, list[str])


def not_empty(text: Text | None) -> Text | None:
    """Refuse an option with an empty value, which is often an unset shell variable."""
    if text is not None and not "".join(text).strip(", "):
        raise typer.BadParameter("it is empty; leave the option out for the default")
    return text


def _folder(given: str | Path) -> Path:
    """Return the path of a folder. An empty path is refused, because it would mean the working directory."""
    return Path(not_empty(str(given)) or "")


def studies(incomplete: str) -> list[str]:
    """Return what Tab offers after `--study`: the names of studies that begin so. Otherwise the shell offers files."""
    return [name for name in names() if name.startswith(incomplete)]


STUDY = typer.Option("--study", "-s", autocompletion=studies, help="A name in studies/, or a path to a .yaml file.")
Study = Annotated[str, STUDY]
Devices = Annotated[
    str | None, typer.Option(callback=not_empty, help="auto, cpu:RANKS or CUDA indices (0,1); default: the study's.")
]
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
RECORDED = "record.db"
"""The file name of what `tuner record` measures, beside the study's own: a search and a recording never mix."""
TABLES = "tables"
"""The folder of a study's recorded tables, inside the study's own folder."""


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


def as_words(options: Mapping[str, object]) -> list[str]:
    """Return options as words of a command line; an option that is None or empty is left out, a list repeats it."""
    return [
        word
        for name, value in options.items()
        for one in (value if isinstance(value, list) else [value])
        if one not in {None, ""}
        for word in (f"--{name}", str(one))
    ]


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts; other text goes to stderr.")]


def plain(value: object) -> Any:
    """Return a value, its dataclasses, paths and enums as values of JSON; infinity and NaN become None."""
    return to_jsonable_python(value, inf_nan_mode="null")


def print_document(document: object) -> None:
    """Print a document, in ASCII: every encoding of stdout has those characters."""
    typer.echo(json.dumps(plain(document), indent=2))
