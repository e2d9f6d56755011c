"""The options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from sqlalchemy import URL

from tuner.errors import StoreError
from tuner.study.cases import Case, select
from tuner.study.spec import StudySpec
from tuner.workbench import Workbench

Text = TypeVar("Text", str, list[str])


def _given(text: Text | None) -> Text | None:
    """Refuse an option whose value is empty, as an unset shell variable leaves it."""
    if text is not None and not "".join(text).strip(", "):
        raise typer.BadParameter("it is empty; leave the option out for the default")
    return text


def _folder(given: str | Path) -> Path:
    """Read the path of a folder, which may not be empty either: that would be the working directory."""
    return Path(_given(str(given)) or "")


Study = Annotated[str, typer.Option("--study", "-s", help="A name in studies/, or a path to a .yaml file.")]
Cases = Annotated[
    list[str] | None,
    typer.Option(callback=_given, help="Globs of cases, one each time or several with commas; default: the study's."),
]
Devices = Annotated[
    str | None, typer.Option(callback=_given, help="auto, cpu:RANKS or CUDA indices (0,1); default: the study's.")
]
Storage = Annotated[
    str | None, typer.Option(callback=_given, help="SQLAlchemy URL of the database; default: a file in runs/STUDY.")
]
Hours = Annotated[float | None, typer.Option(min=0, help="Stop after so long; the same command goes on.")]
Runs = Annotated[
    Path, typer.Option(parser=_folder, metavar="PATH", help="Folder of all studies' databases, probes and exports.")
]
Out = Annotated[
    Path | None, typer.Option(parser=_folder, metavar="PATH", help="Folder of the tables; default: runs/STUDY/tables.")
]

RUNS = Path("runs")
DATABASE = "study.db"
"""The file of a study's own database."""


def storage_url(storage: str | None, spec: StudySpec, runs: Path) -> str:
    """Give the URL of the study's database: as asked for, or its own SQLite file."""
    return database_url(storage, (runs / spec.name).resolve())


def database_url(storage: str | None, folder: Path, file: str = DATABASE) -> str:
    """Give the URL asked for, or that of a SQLite file in `folder`. Raises StoreError where no URL can spell that."""
    try:
        return storage or URL.create("sqlite", database=str(folder / file)).render_as_string()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{str(folder)!r} is not spelled in UTF-8, which a database's URL must be; name another --runs folder"
        ) from error


def chosen_cases(bench: Workbench, cases: Sequence[str] | None) -> list[Case]:
    """Give the cases asked for, or the study's own. Raises StudyError for a glob that matches none."""
    asked = [part.strip() for option in cases or () for part in option.split(",")]
    return select(bench.trainer.cases(), [part for part in asked if part] or bench.spec.cases)
