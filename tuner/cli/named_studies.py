"""Which study an option `--study` names: a study file, or a folder of results under `runs/`, also that of a replay."""

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import StudyError
from tuner.export import printable, write_files
from tuner.records.urls import DATABASE, REPLAYED
from tuner.study import exposed, find, is_known, names, stands_in

if TYPE_CHECKING:
    from tuner.running.workbench import Workbench

STUDY_FILE = "study.yaml"
"""The study file in a folder of results: a copy as of the last run, or the only file of a study of `--set`."""


def with_results(runs: Path, *, replays: bool = True) -> list[str]:
    """Return the names of the folders with results, sorted; those of replays only where they are asked for."""
    folders = sorted(path.parent.name for path in runs.glob(f"*/{DATABASE}"))
    return [name for name in folders if replays or not is_replay(name, runs)]


def only_study(runs: Path, *, replays: bool) -> str:
    """Return the name of the only folder with results. Raises StudyError where there is none, or more than one."""
    match with_results(runs, replays=replays):
        case [only]:
            return only
        case []:
            raise StudyError(f"{runs}/ has no results yet; run `tuner optimize`, or name a --study")
        case several:
            raise StudyError(f"{runs}/ has results of {len(several)} studies; name one: --study {' or '.join(several)}")


def findable(study: str, runs: Path, *, replays: bool) -> str:
    """Return the name or the file by which a study is loaded; the name of a replay's folder stays as it is.

    Args:
        study: a study's name, the path of its file, or the name of a folder of results.
        runs: the folder of all results.
        replays: whether the command can show a replay.

    Raises:
        StudyError: for any other name, and for a replay that the command cannot show.
    """
    if study.endswith((".yaml", ".yml")) or is_known(study):
        return study
    if (file := runs / study / STUDY_FILE).is_file():
        return str(file)
    if is_replay(study, runs):
        if replays:
            return study
        raise StudyError(f"{study} is a replay, without a trainer; name the study, {study.removesuffix(REPLAYED)}")
    if (runs / study / DATABASE).is_file():
        raise StudyError(
            f"{runs / study} has results and no {STUDY_FILE}: an older version kept none, and none is kept of a file "
            "with a password or a key; give the path of the study's .yaml file"
        )
    here = ", ".join(with_results(runs)) or "none"
    raise StudyError(
        f"no study is called {study!r}; with results in {runs}/: {here}; in studies/ and with tuner: "
        f"{', '.join(names())}; or give a path to a .yaml file"
    )


def keep_study_file(bench: "Workbench") -> None:
    """Copy the file of a study beside its results, so that its name finds it anywhere. Raises OutputError.

    The results of a replay, and those of a study that stands in for another one, belong to no file. A file with a
    literal password or key stays where it is, because results are given to others.
    """
    file, copy = find(bench.asked_for), bench.folder / STUDY_FILE
    is_of_file = bench.folder.name == bench.spec.name and not stands_in(bench.spec, bench.asked_for)
    if not is_of_file or exposed(bench.spec) or (copy.is_file() and copy.samefile(file)):
        return
    origin = f"\n{_COPIED}{printable(str(file.resolve()))}, with which tuner ran in {printable(str(Path.cwd()))}\n"
    content = file.read_bytes() + origin.encode("utf-8", "replace")
    if not copy.is_file() or copy.read_bytes() != content:
        write_files(bench.folder, {STUDY_FILE: content})


_COPIED = "# a copy of "
"""The begin of the last line of a copy, which says where its study file is."""


def origin_of(study: str) -> str | None:
    """Return where the study file is of which `study` is a copy; None where it is none, or tuner runs there again."""
    file = Path(study)
    if file.name != STUDY_FILE or not file.is_file():
        return None
    last = file.read_text(encoding="utf-8", errors="replace").rstrip("\n").rpartition("\n")[2]
    is_elsewhere = last.startswith(_COPIED) and not last.endswith(f" ran in {Path.cwd()}")
    return last.removeprefix("# ") if is_elsewhere else None


def is_replay(study: str, runs: Path) -> bool:
    """Return whether a name is that of a folder with the results of a replay, which has no study file."""
    return study.endswith(REPLAYED) and not is_known(study) and (runs / study / DATABASE).is_file()
