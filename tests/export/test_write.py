import errno
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pandas as pd
import pytest

from tuner.errors import OutputError, StoreError
from tuner.export.tables import TABLES, export_study, prepare_folder, prepare_results, write_files

if TYPE_CHECKING:
    from conftest import FilledDatabase

NAMES = ["best_by_case.tsv", "case_manifest.tsv", "method_summary.tsv", "trials.tsv"]


@pytest.fixture
def filled(database: "FilledDatabase") -> "FilledDatabase":
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 1024, "agent_variant": "hiutil"}, utils=(61.0, 63.0))
    database.add(case, {"num_envs": 2048, "agent_variant": "hiutil"}, status="gpu_oom", detail='he said\t"no"')
    return database


def test_git_ignores_a_new_folder_of_results_and_an_existing_one_stays(tmp_path: Path) -> None:
    for folder in ("runs", "mine"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        prepare_results(tmp_path / folder)
    assert (tmp_path / "runs/.gitignore").read_text() == "*\n"
    assert list((tmp_path / "mine").iterdir()) == []


def test_all_tables_are_written_and_read_back(filled: "FilledDatabase", tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "pi_plus"
    assert export_study(filled.url, "pi_plus", folder) == [folder / name for name in NAMES]
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    trials = pd.read_csv(folder / "trials.tsv", sep="\t")
    assert list(trials["num_envs"]) == [1024, 2048]
    assert trials.loc[1, "detail"] == 'he said "no"'
    assert b"\r" not in (folder / "trials.tsv").read_bytes()


def test_a_study_of_several_objectives_has_its_fronts_besides(database: "FilledDatabase", tmp_path: Path) -> None:
    database.case("add_pi_plus", objective="min_avg_util,samples_per_s")
    assert export_study(database.url, "pi_plus", tmp_path)[-1] == tmp_path / "pareto.tsv"
    fronts = pd.read_csv(tmp_path / "pareto.tsv", sep="\t")
    assert (list(fronts.columns[:3]), len(fronts)) == (["case", "method", "trial"], 0)


def test_a_second_export_replaces_the_first(filled: "FilledDatabase", tmp_path: Path) -> None:
    export_study(filled.url, "pi_plus", tmp_path / "out")
    filled.case("amp_pi_plus")
    export_study(filled.url, "pi_plus", tmp_path / "out")
    assert len(pd.read_csv(tmp_path / "out" / "case_manifest.tsv", sep="\t")) == 2


@pytest.mark.parametrize(
    ("call", "number", "advice"),
    [
        ("os.fsync", errno.ENOSPC, "free some disk space"),
        ("os.fsync", errno.EIO, "choose another folder"),
        ("os.fsync", errno.EACCES, "choose another folder"),
        ("pathlib.Path.replace", errno.EPERM, "choose another folder"),
    ],
)
def test_a_write_that_fails_leaves_the_old_files(
    request: pytest.FixtureRequest, tmp_path: Path, call: str, number: int, advice: str
) -> None:
    filled, monkeypatch = request.getfixturevalue("filled"), request.getfixturevalue("monkeypatch")
    for name in NAMES:
        (tmp_path / name).write_text("old", encoding="utf-8")
    before = sorted(tmp_path.iterdir())

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(call, refuse)
        with pytest.raises(OutputError, match=f"cannot write .*best_by_case.tsv: .*{advice}"):
            export_study(filled.url, "pi_plus", tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    assert all((tmp_path / name).read_text(encoding="utf-8") == "old" for name in NAMES)


def test_a_file_that_cannot_grow_is_named(tmp_path: Path) -> None:
    """Its buffer is not empty when it is closed, and to write the rest fails again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OutputError, match=r"cannot write .*table.tsv: File too large"):
            write_files(tmp_path, {"table.tsv": b"x" * 4000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_nothing_is_replaced_before_everything_is_written(
    filled: "FilledDatabase", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "best_by_case.tsv").write_text("old", encoding="utf-8")
    monkeypatch.setitem(TABLES, "trials.tsv", full)
    with pytest.raises(OSError, match="No space left"):
        export_study(filled.url, "pi_plus", tmp_path)
    assert (tmp_path / "best_by_case.tsv").read_text(encoding="utf-8") == "old"


def test_a_folder_that_cannot_be_made_is_named(filled: "FilledDatabase", tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    with pytest.raises(OutputError, match=r"cannot write .*taken: .*choose another folder"):
        export_study(filled.url, "pi_plus", tmp_path / "taken")


def test_a_folder_is_made_and_seen_to_take_files(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "new" / "folder")
    assert not list((tmp_path / "new" / "folder").iterdir())
    with pytest.raises(OutputError, match="cannot write /proc: "):
        prepare_folder(Path("/proc"))


def test_an_unknown_study_writes_nothing(filled: "FilledDatabase", tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no study 'other'"):
        export_study(filled.url, "other", tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))
