"""The copy of a study file that lies beside the study's results, so that its name finds it."""

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.export import printable, write_files
from tuner.records.urls import STUDY_FILE
from tuner.study import find, is_fallback_of, key_warnings

if TYPE_CHECKING:
    from tuner.running.job import Workbench

_COPIED = "# a copy of "
"""The beginning of a copy's remark, a comment that says of which file it is a copy, and where tuner ran."""


def keep_study_file(bench: "Workbench") -> None:
    """Copy the file of a study beside its results. Raises OutputError.

    The results of a replay, and those of a fallback in place of the requested study, belong to no file. A file with a
    literal password or key stays where it is, because results are given to others.
    """
    file, copy = find(bench.requested_study), bench.folder / STUDY_FILE
    is_of_file = bench.folder.name == bench.spec.name and not is_fallback_of(bench.spec, bench.requested_study)
    is_copy_itself = copy.is_file() and copy.samefile(file)  # tuner runs on the copy
    if not is_of_file or key_warnings(bench.spec) or is_copy_itself:
        return
    remark = f"{_COPIED}{_shown(file.resolve())}, with which tuner ran in {_shown(Path.cwd())}\n".encode()
    content = file.read_bytes()
    begins_with_comment = content.startswith(b"#") and b"\n" in content  # which may name the study's command
    place = content.index(b"\n") + 1 if begins_with_comment else 0
    content = content[:place] + remark + content[place:]
    if not copy.is_file() or copy.read_bytes() != content:
        write_files(bench.folder, {STUDY_FILE: content})


def _shown(path: Path) -> str:
    """Return a path as a remark has it: in one line, and in UTF-8."""
    return printable(str(path).replace("\n", " ")).encode("utf-8", "replace").decode()


def origin_of(study: str) -> str | None:
    """Return the remark in the copy `study` of a study file, which says where that file is: `a copy of …`.

    None where `study` is no copy, or where tuner runs again in the folder of the study file's last run.
    """
    file = Path(study)
    if file.name != STUDY_FILE or not file.is_file():
        return None
    head = file.read_text(encoding="utf-8", errors="replace").split("\n", 2)[:2]
    remark = next((line for line in head if line.startswith(_COPIED)), "")
    is_elsewhere = bool(remark) and not remark.endswith(f" tuner ran in {_shown(Path.cwd())}")
    return remark.removeprefix("# ") if is_elsewhere else None
