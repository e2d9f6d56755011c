from dataclasses import dataclass
from pathlib import Path

import pytest
from tests_table import KINDS, KINDS_TRAINER, MadeUp, recorded, study

from tuner.export.recorded_table import Table
from tuner.probe.result import ProbeResult
from tuner.study.spec import StudySpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A recorded table, and the results that were really measured."""

    path: Path
    table: Table
    results: list[ProbeResult]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Record the whole invented space once."""
    return _recorded(tmp_path_factory.mktemp("recorded"), study())


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Record a space with every kind of value once."""
    return _recorded(tmp_path_factory.mktemp("kinds"), study(space=KINDS, trainer=KINDS_TRAINER))


def _recorded(folder: Path, chosen: StudySpec) -> Made:
    prober = MadeUp()
    recorded(folder, prober, chosen=chosen)
    path = folder / "walk.parquet"
    return Made(path=path, table=Table.load(path), results=prober.results)
