"""Databases that earlier commits wrote are exported as before, and resumed, or refused with a way on.

`pi_plus_auto_two_h200` is the real search of three cases on GPUs, by several versions of 22 November 2026.
`before_kept` is a replayed search by the last version without such records. It has a confirmation, three configs out of
memory, two pruned ones, and a constraint with the misleading name of that time, `eligible`. Its table of the best has
today's column `replay_of`.
"""

import gzip
import shutil
from pathlib import Path

import optuna
import pytest
from tests_docs import ROOT
from tests_loop import Quiet, measured
from tests_mimickit import pi_plus_checkout
from typer.testing import CliRunner

from tuner.cli.main import app
from tuner.devices.found import AbsentDevices
from tuner.errors import StoreError
from tuner.export.recorded_table import Table
from tuner.export.tables import export_study
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import ProbeResult
from tuner.running.events import Ending
from tuner.running.job import Job, Workbench
from tuner.running.loop import optimize
from tuner.store.database import Database
from tuner.study.cases import select
from tuner.study.study_file import load
from tuner.trainers.registry import open_trainer

REAL = ROOT / "benchmarks/results/pi_plus_auto_two_h200"
REPLAYED = ROOT / "tests/data/databases/before_kept"
TABLE = ROOT / "benchmarks/tables/pi_plus_two_h200/deepmimic_pi_plus_ppo.parquet"


@pytest.fixture
def replayed(tmp_path: Path) -> Path:
    """Return a copy of the replayed database, in the folder in which a study with `--runs runs` looks for it."""
    file = tmp_path / "runs/earlier-replay/study.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.decompress((REPLAYED / "study.db.gz").read_bytes()))
    return file


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Return a copy of the database of the real search."""
    (tmp_path / "runs/pi_plus").mkdir(parents=True)
    return Path(shutil.copy(REAL / "study.db", tmp_path / "runs/pi_plus"))


def test_the_replayed_database_has_the_same_tables(replayed: Path, tmp_path: Path) -> None:
    assert_exports_are_as_in(REPLAYED, replayed, "earlier", tmp_path)


def test_the_real_database_has_the_same_tables(real: Path, tmp_path: Path) -> None:
    assert_exports_are_as_in(REAL, real, "pi_plus", tmp_path)


def test_the_replayed_search_goes_on(replayed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = trials_of(replayed)
    words = ["--study", str(REPLAYED / "study.yaml"), "--replay", str(TABLE), "--n-trials", "10"]
    result = CliRunner().invoke(app, ["optimize", *words])
    assert result.exit_code == 0, result.output
    assert "case deepmimic_pi_plus_ppo: 9 of 10 trials done" in result.output
    after = trials_of(replayed)
    assert after[: len(before)] == before
    assert len(after) > len(before)


def test_another_constraint_is_refused_with_a_way_on(
    replayed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (REPLAYED / "study.yaml").read_text(encoding="utf-8")
    Path("other.yaml").write_text(text.replace(">= 0.2", ">= 0.5"), encoding="utf-8")
    before = trials_of(replayed)
    result = CliRunner().invoke(app, ["optimize", "--study", "other.yaml", "--replay", str(TABLE)])
    assert isinstance(result.exception, StoreError)
    assert "constraints.samples_per_s: was '>= 0.2 * default', is '>= 0.5 * default'" in str(result.exception)
    assert "restore these settings to resume the study" in str(result.exception)
    assert trials_of(replayed) == before


def test_the_real_search_goes_on_and_soon_ends(real: Path, tmp_path: Path) -> None:
    """Today's rules ask for a few probes more than those of the search then, and resume all three cases.

    Its values are made up, so they are not what the recorded ones foretell, and the search looks at some more configs.
    """
    launched: list[ProbePlan] = []

    def usual(plan: ProbePlan, stop: Stop) -> ProbeResult:
        launched.append(plan)
        envs = int(plan.config["num_envs"])
        return measured(plan, 96.0 * envs / (envs + 1000))

    spec = load("pi_plus", {"MIMICKIT_ROOT": str(pi_plus_checkout(tmp_path / "MimicKit"))})
    header = Table.load(TABLE).header
    bench = Workbench(
        spec=spec,
        requested_study="pi_plus",
        trainer=open_trainer(spec.trainer),
        source=AbsentDevices(header.devices, header.source),
        folder=real.parent,
        variables={},
    )
    database = Database(f"sqlite:///{real}")
    job = Job(bench=bench, database=database, probe=usual, listener=Quiet(), interrupted=lambda: False)
    outcomes = optimize(job, select(bench.trainer.cases(), spec.cases))
    database.close()
    assert [one.case.name for one in outcomes] == ["add_pi_plus", "amp_pi_plus", "deepmimic_pi_plus_ppo"]
    assert {one.ending for one in outcomes} <= {Ending.ALREADY, Ending.EXHAUSTED}
    assert all("of a 24-hour training" in (one.why or "") for one in outcomes)
    assert len(launched) <= 10


def assert_exports_are_as_in(folder: Path, database: Path, study: str, tmp_path: Path) -> None:
    """Check that the tables of a database are those that lie in a folder, byte by byte."""
    written = {file.name: file.read_text() for file in export_study(f"sqlite:///{database}", study, tmp_path / "out")}
    kept = {file.name: file.read_text() for file in folder.glob("*.tsv")}
    assert len(kept) >= 3
    assert {name: written[name] for name in kept} == kept


def trials_of(file: Path) -> list[tuple[object, ...]]:
    """Return config, state, value and constraints of each trial of the database's one study."""
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{file}")
    return [(one.params, one.state, one.values, one.constraints) for one in study.trials]
