"""Studies that real worker processes replay from a recorded table: how they are begun, read and compared."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna
import pyarrow as pa
import pyarrow.parquet as pq
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from tuner.export.write import export_study

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from tests_postgresql import Server, stoppable_server

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks/tables/pi_plus_two_h200/amp_pi_plus.parquet"
"""40 configs, all of which ran: what one gives does not depend on which others were probed before it."""
CASE, CONFIGS = TABLE.stem, 40
STUDY = """
name: {name}
trainer: {{name: mimickit, root: ., python: python3}}
cases: ["*"]
space: {{num_envs: {{ladder: [32]}}}}
probe: {{warm: false, iterations: 30, min_iterations: 30}}
pruner: {{name: none}}
search: {{sampler: random, trials: 1000}}
"""
"""No probe ends early, because an early end depends on the best so far, and so on the order of the trials."""
OF_THE_ORDER = {"trial", "started_at", "completed_at", "out_dir"}
"""The columns of `trials.tsv` that depend on the order and the time of the trials."""


@dataclass(kw_only=True)
class Studies:
    """Studies in one folder and in one kind of database."""

    folder: Path
    storage: str | None
    """The URL of a PostgreSQL database; None for SQLite files."""
    table: Path = TABLE

    def begin(self, name: str, workers: int) -> "subprocess.Popen[str]":
        """Start `tuner optimize --workers` on the table."""
        (self.folder / f"{name}.yaml").write_text(STUDY.format(name=name))
        return self._start(name, "optimize", "--workers", str(workers))

    def resume(self, name: str) -> int:
        """Run `tuner worker` until the study is complete, and write its tables; return the worker's exit code."""
        process = self._start(name, "worker")
        process.communicate()
        export_study(self.url(name), name, self.folder / f"runs/{name}-replay")
        return process.returncode

    def _start(self, name: str, command: str, *options: str) -> "subprocess.Popen[str]":
        words = [command, "--study", f"{name}.yaml", "--replay", str(self.table), *options]
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *words],
            cwd=self.folder,
            env=os.environ | ({"TUNER_STORAGE": self.storage} if self.storage else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def url(self, name: str) -> str:
        return self.storage or f"sqlite:///{self.folder}/runs/{name}-replay/study.db"

    def begun(self, name: str) -> int:
        """Return how many trials of a study have begun; 0 where there is no study."""
        if not (self.storage or (self.folder / f"runs/{name}-replay/study.db").exists()):
            return 0
        query = text("select count(*) from trials natural join studies where study_name = :name")
        engine = create_engine(self.url(name))
        try:
            with engine.connect() as connection:
                return connection.execute(query, {"name": f"{name}/{CASE}"}).scalar_one()
        except SQLAlchemyError:  # the tables are not there yet
            return 0
        finally:
            engine.dispose()

    def trials(self, name: str) -> list[FrozenTrial]:
        return optuna.load_study(study_name=f"{name}/{CASE}", storage=self.url(name)).get_trials()

    def exported(self, name: str) -> dict[str, dict[str, str]]:
        """Return config → its row of `trials.tsv` without `OF_THE_ORDER`. Interrupted trials are left out."""
        with (self.folder / f"runs/{name}-replay/trials.tsv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file, delimiter="\t") if row["status"] != "interrupted"]
        return {row["digest"]: {key: row[key] for key in row.keys() - OF_THE_ORDER} for row in rows}

    def best(self, name: str) -> str:
        """Return the digest of the best config in `best_by_case.tsv`."""
        with (self.folder / f"runs/{name}-replay/best_by_case.tsv").open(newline="") as file:
            return next(csv.DictReader(file, delimiter="\t"))["digest"]


def config_of(trial: FrozenTrial) -> str:
    return json.dumps(trial.params, sort_keys=True)


def interrupted(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and "interrupted" in json.dumps(trial.user_attrs, default=str)


def results(trials: list[FrozenTrial]) -> dict[str, tuple[str, float | None]]:
    """Return config → state and value of the trials that are over and were not interrupted."""
    over = [one for one in trials if one.state.is_finished() and not interrupted(one)]
    return {config_of(one): (one.state.name, one.value) for one in over}


def copied(table: Path, times: int, folder: Path) -> Path:
    """Write a table with each row of `table` several times: a new parameter, `copy`, numbers the copies."""
    rows, header = pq.read_table(table), json.loads(table.with_suffix(".json").read_text())
    copies = [rows.append_column("copy", pa.array([number] * len(rows))) for number in range(times)]
    header["space"]["copy"] = {"choices": list(range(times))}
    header["rows"] = len(rows) * times
    path = folder / table.name
    pq.write_table(pa.concat_tables(copies), path)
    path.with_suffix(".json").write_text(json.dumps(header))
    return path


@contextmanager
def databases(**settings: Any) -> Iterator[dict[str, tuple[Studies, Server | None]]]:
    """Yield the kind of database → studies in it, and its server. `settings` are those of `Studies`."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other, stoppable_server() as server:
        yield {
            "SQLite": (Studies(folder=Path(one), storage=None, **settings), None),
            "PostgreSQL": (Studies(folder=Path(other), storage=server.url, **settings), server),
        }
