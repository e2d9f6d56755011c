from dataclasses import dataclass
from pathlib import Path

import pytest
from tests_table import MadeUp, recorded

from tuner.probe.result import ProbeResult
from tuner.replay.table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A recorded table, and the results that were really measured."""

    path: Path
    table: Table
    results: list[ProbeResult]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Record the whole invented space once."""
    folder, prober = tmp_path_factory.mktemp("recorded"), MadeUp()
    recorded(folder, prober)
    path = folder / "walk.parquet"
    return Made(path=path, table=Table.load(path), results=prober.results)
