"""The facts of a real study: three cases of MimicKit on two H200s."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_docs import ROOT
from tests_filled import FilledDatabase, filled

from tuner.export.reader import StudyReader, connect
from tuner.report.facts import CaseFacts, StudyFacts, gather

DATABASE = ROOT / "benchmarks/results/pi_plus_auto_two_h200/study.db"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a study's folder with its database, and without the probes' folders."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(DATABASE, folder / "study.db")
    return folder


@pytest.fixture(scope="session")
def study(folder: Path) -> StudyFacts:
    return gather(StudyReader(connect(f"sqlite:///{folder}/study.db"), "pi_plus"), folder)


@pytest.fixture(scope="session")
def cases(study: StudyFacts) -> dict[str, CaseFacts]:
    return {case.summary.case: case for case in study.cases}


@pytest.fixture
def database(tmp_path: Path, empty_file: Path) -> Iterator[FilledDatabase]:
    """Return an empty study database in the study's folder."""
    file = shutil.copy(empty_file, tmp_path / "study.db")
    with filled(f"sqlite:///{file}") as made:
        yield made
