"""Measures what a study of many trials costs: to show it, to export it, and to go on with it.

    python -m benchmarks.costs.scale [--trials 10000] [--asks 3]

The script fills a SQLite database with synthetic trials of one case. Each measurement runs in a process of its own. For
`tuner status` and `tuner export` this is the command itself, so its start counts. For the others the imports are done
before the clock starts. An ask is an ask and a tell with the sampler TPE. Plain Optuna does so with
`study.ask`, a suggestion for each parameter, and `study.tell`. CPU seconds depend less on other work than wall seconds.
"""

import argparse
import json
import multiprocessing
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import optuna
from optuna.distributions import distribution_to_json
from optuna.pruners import NopPruner
from optuna.storages._rdb import models
from optuna.trial import TrialState
from rich import box
from rich.console import Console
from rich.table import Table
from sqlalchemy import insert

from benchmarks.costs.export import MOMENT, probe_record
from tuner.kept.case_record import KeptCase
from tuner.kept.trial import KeptProbe
from tuner.search.choosing import Strategy
from tuner.search.strategies import by_drawing
from tuner.search.trials import distribution
from tuner.search.verdict import State, Verdict
from tuner.store.case_study import CaseStudy
from tuner.store.database import Database
from tuner.study.space import Config, Parameter, Space, described, launch_digest
from tuner.study.spec import SearchSpec

NAME = "bench/walk"
SPACE = Space(tuple(Parameter(name=f"p{place}", values=tuple(range(1, 17))) for place in range(5)))
"""A million configs, so that no search comes to an end."""
STUDY_FILE = """
name: bench
trainer: {name: command, options: {command: "true {p0} {p1} {p2} {p3} {p4}"}}
space: {p0: {choices: [1, 2]}, p1: {choices: [1]}, p2: {choices: [1]}, p3: {choices: [1]}, p4: {choices: [1]}}
"""
KIB_PER_MIB = 1024

Measured = tuple[float, float, float]
"""Wall seconds, CPU seconds, and the peak memory of the process in MiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--asks", type=int, default=3, help="after the first one")
    options = parser.parse_args()
    table = Table("what", "wall, s", "CPU, s", "peak, MiB", box=box.MARKDOWN, title=f"{options.trials:,} trials")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.yaml"
        file.write_text(STUDY_FILE, encoding="utf-8")
        (Path(folder) / "runs/bench").mkdir(parents=True)
        url = f"sqlite:///{folder}/runs/bench/study.db"
        fill(url, options.trials)
        for command in ("--version", "status", "export"):
            words = [command] if command == "--version" else [command, "--study", str(file), "--runs", f"{folder}/runs"]
            add(table, f"`tuner {command}`", of_command(words))
        for subject in (ours, plain):
            first, rest = in_own_process(subject, url, options.asks)
            add(table, f"{subject.__doc__}: opened, and the first ask", first)
            add(table, f"{subject.__doc__}: each further ask", rest)
    Console().print(table)


def add(table: Table, what: str, measured: Measured) -> None:
    wall_s, cpu_s, peak_mib = measured
    table.add_row(what, f"{wall_s:.2f}", f"{cpu_s:.2f}", f"{peak_mib:,.0f}")


LAUNCHER = """
import os, sys, time
begun_s = time.perf_counter()
child = os.fork()
if not child:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), time.perf_counter() - begun_s, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""Starts a command from a process of its own: on Linux a command's peak memory is at least that of who starts it."""


def of_command(words: list[str]) -> Measured:
    """Run a command of the tuner and return what its process took."""
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "tuner", *words]
    launched = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    exit_code, wall_s, cpu_s, peak_kib = map(float, launched.stdout.split())
    if exit_code:
        raise SystemExit(f"tuner {' '.join(words)} ended with exit code {exit_code:.0f}")
    return wall_s, cpu_s, peak_kib / KIB_PER_MIB


Subject = Callable[[str], Callable[[], object]]
"""Opens a study and returns what asks for a trial and tells it."""


def in_own_process(subject: Subject, url: str, asks: int) -> tuple[Measured, Measured]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (subject, url, asks))


def _measure(subject: Subject, url: str, asks: int) -> tuple[Measured, Measured]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened: list[Callable[[], object]] = []
    first = _timed(lambda: (opened.append(subject(url)), opened[0]()))
    rest = [_timed(opened[0]) for _ in range(asks)]
    wall_s, cpu_s, peak_mib = (mean(part) for part in zip(*rest, strict=True))
    return first, (wall_s, cpu_s, peak_mib)


def _timed(work: Callable[[], object]) -> Measured:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return time.perf_counter() - wall_s, time.process_time() - cpu_s, peak_kib / KIB_PER_MIB


def ours(url: str) -> Callable[[], object]:
    """the tuner with tpe"""
    study = case_study(Database(url))
    study.take_back(Path("none"))

    def ask() -> None:
        asked = study.ask(None)
        if asked is None:
            raise SystemExit("nothing is left to ask")
        record = KeptProbe(status="ok", config=asked.config, digest=launch_digest(asked.config))
        study.tell(asked, Verdict(state=State.COMPLETE, status="ok", value=50.0), record)

    return ask


def plain(url: str) -> Callable[[], object]:
    """plain Optuna with TPE"""
    study = optuna.load_study(study_name=NAME, storage=url, sampler=optuna.samplers.TPESampler(seed=0))

    def ask() -> None:
        trial = study.ask()
        for parameter in SPACE.parameters:
            trial.suggest_categorical(parameter.name, parameter.values)
        study.tell(trial, 50.0)

    return ask


def case_study(database: Database, space: Space = SPACE, strategy: Strategy | None = None) -> CaseStudy:
    """Open the case; its search is TPE unless there is another `strategy`."""
    return CaseStudy(
        database,
        NAME,
        space=space,
        strategy=lambda count: strategy or by_drawing(space, SearchSpec(sampler="tpe"), resumed_at=count),
        pruner=NopPruner(),
        identity={"space": described(space), "objective": "min_avg_util"},
        case=KeptCase(case="walk", method="walk", objective="min_avg_util"),
    )


def fill(
    url: str, trials: int, space: Space = SPACE, value: Callable[[Config, random.Random], float] | None = None
) -> None:
    """Begin a case, and write its trials directly into the tables: to ask and tell them would take hours.

    `value` says what a config measures, by default anything.
    """
    database = Database(url)
    case_study(database, space)
    study_id = database.storage.get_study_id_from_name(NAME)
    draw = random.Random(0)
    with database.storage.engine.begin() as connection:
        for first in range(0, trials, 10_000):
            numbers = range(first, min(first + 10_000, trials))
            for model, rows in trial_rows(study_id, numbers, draw, space, value or _anything).items():
                connection.execute(insert(model), rows)
    database.close()


def _anything(_: Config, draw: random.Random) -> float:
    return draw.uniform(20.0, 90.0)


def trial_rows(
    study_id: int,
    numbers: range,
    draw: random.Random,
    space: Space = SPACE,
    value: Callable[[Config, random.Random], float] = _anything,
) -> dict[type, list[dict[str, Any]]]:
    rows: dict[type, list[dict[str, Any]]] = defaultdict(list)
    times = {"_datetime_start_utc": MOMENT, "_datetime_complete_utc": MOMENT}
    kinds = {parameter.name: distribution_to_json(distribution(parameter)) for parameter in space.parameters}
    for number in numbers:
        key, ok = {"trial_id": number + 1}, number % 5 != 0
        config: Config = {parameter.name: draw.choice(parameter.values) for parameter in space.parameters}
        util_pct = value(config, draw)
        state = TrialState.COMPLETE if ok else TrialState.PRUNED
        rows[models.TrialModel].append(key | {"number": number, "study_id": study_id, "state": state} | times)
        record = probe_record(number, ok=ok, util_pct=util_pct) | {"config": config, "digest": launch_digest(config)}
        rows[models.TrialUserAttributeModel].append(key | {"key": "probe", "value_json": json.dumps(record)})
        rows[models.TrialParamModel] += [
            key
            | {
                "param_name": one.name,
                "param_value": one.values.index(config[one.name]),
                "distribution_json": kinds[one.name],
            }
            for one in space.parameters
        ]
        if ok:
            told = {"objective": 0, "value": util_pct, "value_type": models.TrialValueModel.TrialValueType.FINITE}
            rows[models.TrialValueModel].append(key | told)
    return rows


if __name__ == "__main__":
    main()
