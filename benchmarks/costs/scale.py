"""Measures what large studies cost: `tuner status`, `tuner export`, and an ask of the samplers `tpe` and `gain`.

    python -m benchmarks.costs.scale [--trials 2000 10000] [--asks 2] [--of-gain 60 1000]

The script fills SQLite databases with synthetic trials of one case. Each measurement runs in a process of its own. For
the commands this is the command itself, so its start counts. For the others the imports are done before the clock
starts. An ask is an ask and a tell. TPE has a space of a million configs, `gain` the largest that it lists: 100,000.
CPU seconds depend less on other work than wall seconds.
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
from datetime import datetime
from pathlib import Path
from statistics import fmean
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

from tuner.records.case_record import CaseRecord
from tuner.records.trial import ProbeRecord
from tuner.search.choosing import Strategy
from tuner.search.gain.chooser import Gain, by_gain
from tuner.search.gain.expected_gain import Goal
from tuner.search.strategies import by_drawing
from tuner.search.trials import distribution
from tuner.search.verdict import Verdict
from tuner.store.case_study import CaseStudy
from tuner.store.database import Database
from tuner.study.space import LADDER, Config, Parameter, Space, described, launch_digest
from tuner.study.spec import SearchSpec

NAME = "bench/walk"
MILLION = Space(tuple(Parameter(name=f"p{place}", values=tuple(range(1, 17))) for place in range(5)))
STEPS = 10
LISTED = Space(
    (
        Parameter(name=LADDER, values=tuple(32 << step for step in range(STEPS))),
        Parameter(name="backend", values=tuple("abcdefghij")),
        *(Parameter(name=name, values=tuple(range(1, STEPS + 1))) for name in ("workers", "prefetch", "batch")),
    )
)
"""100,000 configs."""
STUDY_FILE = """
name: bench
trainer: {name: command, options: {command: "true {p0} {p1} {p2} {p3} {p4}"}}
space: {p0: {choices: [1, 2]}, p1: {choices: [1]}, p2: {choices: [1]}, p3: {choices: [1]}, p4: {choices: [1]}}
"""
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
KIB_PER_MIB = 1024
MOMENT = datetime.fromisoformat("2026-11-21T00:00:00")

Measured = tuple[float, float, float]
"""Wall seconds, CPU seconds, and the peak memory of the process in MiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="*", default=[2_000, 10_000])
    parser.add_argument("--of-gain", type=int, nargs="*", default=[60, 1_000], help="trials of the studies of `gain`")
    parser.add_argument("--asks", type=int, default=2, help="after the first one")
    options = parser.parse_args()
    table = Table("trials", "what", "wall, s", "CPU, s", "peak, MiB", box=box.MARKDOWN)

    def add(trials: int, what: str, measured: Measured) -> None:
        wall_s, cpu_s, peak_mib = measured
        table.add_row(f"{trials:,}", what, f"{wall_s:.2f}", f"{cpu_s:.2f}", f"{peak_mib:,.0f}")

    for trials in options.trials:
        with tempfile.TemporaryDirectory() as name:
            file, runs = Path(name) / "bench.yaml", Path(name) / "runs"
            file.write_text(STUDY_FILE, encoding="utf-8")
            (runs / "bench").mkdir(parents=True)
            fill(url := f"sqlite:///{runs}/bench/study.db", trials, MILLION)
            for command in ("status", "export"):
                add(trials, f"`tuner {command}`", of_command(command, "--study", str(file), "--runs", str(runs)))
            first, further = in_own_process("tpe", url, options.asks)
        add(trials, "`tpe`: opened, and the first ask", first)
        add(trials, "`tpe`: each further ask", further)
    for trials in options.of_gain:
        with tempfile.TemporaryDirectory() as name:
            fill(url := f"sqlite:///{name}/study.db", trials, LISTED)
            first, further = in_own_process("gain", url, options.asks)
        add(trials, "`gain`: opened, and the first ask", first)
        add(trials, "`gain`: each further ask", further)
    Console(width=120).print(table)


def of_command(*words: str) -> Measured:
    """Run a command of the tuner and return what its process took."""
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "tuner", *words]
    launched = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    exit_code, wall_s, cpu_s, peak_kib = map(float, launched.stdout.split())
    if exit_code:
        raise SystemExit(f"tuner {' '.join(words)} ended with exit code {exit_code:.0f}")
    return wall_s, cpu_s, peak_kib / KIB_PER_MIB


def in_own_process(sampler: str, url: str, asks: int) -> tuple[Measured, Measured]:
    """Return what the first ask took with the opening of the study, and the mean of each further ask."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_asked, (sampler, url, asks))


def _asked(sampler: str, url: str, asks: int) -> tuple[Measured, Measured]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    draw, opened = random.Random(1), list[CaseStudy]()
    space = LISTED if sampler == "gain" else MILLION

    def ask() -> None:
        asked = opened[0].ask(None)
        if asked is None:
            raise SystemExit("nothing is left to ask")
        record = ProbeRecord(status="ok", config=asked.config, digest=launch_digest(asked.config))
        opened[0].tell(asked, Verdict(state=TrialState.COMPLETE, status="ok", value=value(asked.config, draw)), record)

    def begin() -> None:
        opened.append(case_study(Database(url), space))
        opened[0].end_abandoned_trials(Path("none"))
        ask()

    first, further = _timed(begin), [_timed(ask) for _ in range(asks)]
    wall_s, cpu_s, peak_mib = (fmean(part) for part in zip(*further, strict=True))
    return first, (wall_s, cpu_s, peak_mib)


def _timed(work: Callable[[], None]) -> Measured:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return time.perf_counter() - wall_s, time.process_time() - cpu_s, peak_kib / KIB_PER_MIB


def case_study(database: Database, space: Space) -> CaseStudy:
    """Open the case: by `gain` in the space that it lists, with an end that no ask here reaches; else by TPE."""

    def strategy(count: int) -> Strategy:
        if space is LISTED:
            return by_gain(space, Gain(space, goal=Goal(training_hours=1e6)))
        return by_drawing(space, SearchSpec(sampler="tpe"), resumed_at=count)

    return CaseStudy(
        database,
        NAME,
        space=space,
        strategy=strategy,
        pruner=NopPruner(),
        identity={"space": described(space), "objective": "min_avg_util"},
        case=CaseRecord(case="walk", method="walk", objective="min_avg_util"),
    )


def value(config: Config, draw: random.Random) -> float:
    """Return what a config measures: more on higher rungs, one best backend, and a best in the middle of the rest."""
    if LADDER not in config:
        return draw.uniform(20.0, 90.0)
    places = {one.name: one.values.index(config[one.name]) / (STEPS - 1) for one in LISTED.parameters}
    others = sum((places[name] - 0.6) ** 2 for name in ("workers", "prefetch", "batch"))
    return 40.0 + 40.0 * places[LADDER] ** 0.5 + 5.0 * (config["backend"] == "d") - 10.0 * others + draw.gauss(0.0, 0.5)


def fill(url: str, trials: int, space: Space) -> None:
    """Begin a case, and write its trials directly into the tables: to ask and tell them would take hours."""
    database = Database(url)
    case_study(database, space)
    study_id = database.storage.get_study_id_from_name(NAME)
    draw = random.Random(0)
    with database.storage.engine.begin() as connection:
        for first in range(0, trials, 10_000):
            numbers = range(first, min(first + 10_000, trials))
            for model, rows in trial_rows(study_id, numbers, draw, space).items():
                connection.execute(insert(model), rows)
    database.close()


def trial_rows(study_id: int, numbers: range, draw: random.Random, space: Space) -> dict[type, list[dict[str, Any]]]:
    """Return the rows of trials for each of Optuna's tables. Each fifth trial has failed."""
    rows: dict[type, list[dict[str, Any]]] = defaultdict(list)
    times = {"_datetime_start_utc": MOMENT, "_datetime_complete_utc": MOMENT}
    kinds = {parameter.name: distribution_to_json(distribution(parameter)) for parameter in space.parameters}
    for number in numbers:
        key, ok = {"trial_id": number + 1}, number % 5 != 0
        config: Config = {parameter.name: draw.choice(parameter.values) for parameter in space.parameters}
        util_pct = value(config, draw)
        state = TrialState.COMPLETE if ok else TrialState.PRUNED
        rows[models.TrialModel].append(key | {"number": number, "study_id": study_id, "state": state} | times)
        record = json.dumps(probe_record(config, util_pct if ok else None))
        rows[models.TrialUserAttributeModel].append(key | {"key": "probe", "value_json": record})
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


def probe_record(config: Config, util_pct: float | None) -> dict[str, Any]:
    """Return what a study keeps of a probe, about 1 kB; without a utilisation it ran out of memory."""
    failure = {"kind": "gpu_oom", "rule": "torch", "detail": "CUDA out of memory. " * 8, "rank": 1}
    device = {"device": "cuda:0", "source": "nvml", "util_mean_pct": util_pct, "util_max_pct": 100.0}
    device |= {"mem_peak_mib": 6097.1, "power_mean_w": 301.2, "power_max_w": 355.0, "energy_j": 6300.7}
    probe = {"config": config, "digest": launch_digest(config), "launched": True, "stopped": None, "out_dir": "runs/1"}
    probe |= {"status": "gpu_oom", "failure": failure} if util_pct is None else {"status": "ok", "failure": None}
    probe |= {"total_s": 61.2, "window_s": 21.3, "start_up_s": 31.0, "iterations": 8, "samples": 524288}
    metrics = {} if util_pct is None else {"min_avg_util": util_pct, "min_avg_sm": 21.7}
    return probe | {"samples_per_s": 15012.7, "metrics": metrics, "devices": [device] * 2}


if __name__ == "__main__":
    main()
