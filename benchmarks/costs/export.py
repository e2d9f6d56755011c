"""Measures how long the exports of a big study take, compared with Optuna's own `trials_dataframe()`.

    python -m benchmarks.costs.export --trials 10000

The script fills a new SQLite database with synthetic trials. Each measurement runs in a process of its own. The script
prints wall seconds, CPU seconds and the growth of the process's peak memory as a Markdown table. CPU seconds depend
less on other work of the machine than wall seconds do.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, distribution_to_json
from optuna.storages._rdb import models
from optuna.trial import TrialState
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sqlalchemy import insert

from tuner.export.reader import StudyReader, connect
from tuner.export.write import export_study

STUDY = "bench"
FAILURE_EVERY = 5
KIB_PER_MIB = 1024
CONFIG = {"num_envs": 1024, "agent_variant": "hiutil", "update_epochs": 20, "batch_size": 2, "num_workers": 0}
PARAMETERS = [
    {
        "param_name": name,
        "param_value": 0.0,
        "distribution_json": distribution_to_json(CategoricalDistribution([value])),
    }
    for name, value in CONFIG.items()
]
MOMENT = datetime.fromisoformat("2026-11-21T00:00:00")
TIMES = {"_datetime_start_utc": MOMENT, "_datetime_complete_utc": MOMENT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000, help="in all cases together")
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--without-optuna", action="store_true", help="leave out trials_dataframe()")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    table = Table("what", "wall, s", "CPU, s", "memory, MiB", box=box.MARKDOWN, title=f"{options.trials:,} trials")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/study.db"
        fill(url, options.cases, options.trials // options.cases)
        measured = [best, summary, every_trial, exports, *([] if options.without_optuna else [dataframes])]
        for subject in track(measured, transient=True):
            wall_s, cpu_s, grown_mib = in_own_process(subject, url)
            table.add_row(str(subject.__doc__), f"{wall_s:.2f}", f"{cpu_s:.2f}", f"{grown_mib:,.0f}")
    Console().print(table)


def best(url: str) -> int:
    """best config of each case"""
    return sum(case.best is not None for case in StudyReader(connect(url), STUDY).cases)


def summary(url: str) -> int:
    """summary: best, counts by state and failure"""
    return len(StudyReader(connect(url), STUDY).rows)


def every_trial(url: str) -> int:
    """every trial"""
    return sum(1 for _ in StudyReader(connect(url), STUDY).trials())


def exports(url: str) -> int:
    """all four files of `tuner export`"""
    with tempfile.TemporaryDirectory() as folder:
        return len(export_study(url, STUDY, Path(folder)))


def dataframes(url: str) -> int:
    """baseline: trials_dataframe() of each case"""
    storage = optuna.storages.RDBStorage(url)
    names = optuna.get_all_study_names(storage)
    return sum(len(optuna.load_study(study_name=name, storage=storage).trials_dataframe()) for name in names)


def in_own_process(subject: Callable[[str], int], url: str) -> tuple[float, float, float]:
    """Return the wall and CPU seconds that `subject` took, and by how many MiB the peak memory of its process grew."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (subject, url))


def _measure(subject: Callable[[str], int], url: str) -> tuple[float, float, float]:
    before_mib, wall_s, cpu_s = _peak_mib(), time.perf_counter(), time.process_time()
    subject(url)
    return time.perf_counter() - wall_s, time.process_time() - cpu_s, _peak_mib() - before_mib


def _peak_mib() -> float:
    """Read the peak memory of this process. `getrusage` would also count the parent's memory from before the exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (peak_kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return float(peak_kib) / KIB_PER_MIB


def fill(url: str, cases: int, trials_per_case: int) -> None:
    """Write the trials directly into the tables. Ask and tell would take longer than all measurements."""
    storage = optuna.storages.RDBStorage(url)
    for position in range(cases):
        name = f"method{position % 5}_case{position}"
        study = optuna.create_study(storage=storage, study_name=f"{STUDY}/{name}", direction="maximize")
        study.set_user_attr("case", {"case": name, "method": f"method{position % 5}", "objective": "min_avg_util"})
        study_id = storage.get_study_id_from_name(study.study_name)
        numbers = range(trials_per_case)
        first = 1 + position * trials_per_case
        with storage.engine.begin() as connection:
            for model, rows in tables(study_id, first, numbers).items():
                connection.execute(insert(model), rows)
    storage.engine.dispose()


def tables(study_id: int, first: int, numbers: range) -> dict[type, list[dict[str, Any]]]:
    """Return the rows of one case's trials for each of Optuna's tables."""
    rows: dict[type, list[dict[str, Any]]] = defaultdict(list)
    for number in numbers:
        key = {"trial_id": first + number}
        ok, util_pct = number % FAILURE_EVERY != 0, 40 + number * 7919 % 5000 / 100
        state = TrialState.COMPLETE if ok else TrialState.PRUNED
        rows[models.TrialModel].append(key | {"number": number, "study_id": study_id, "state": state} | TIMES)
        probe = json.dumps(probe_record(key["trial_id"], ok=ok, util_pct=util_pct))
        rows[models.TrialUserAttributeModel].append(key | {"key": "probe", "value_json": probe})
        rows[models.TrialParamModel] += [key | parameter for parameter in PARAMETERS]
        if ok:
            value = {"objective": 0, "value": util_pct, "value_type": models.TrialValueModel.TrialValueType.FINITE}
            rows[models.TrialValueModel].append(key | value)
    return rows


def probe_record(trial_id: int, *, ok: bool, util_pct: float) -> dict[str, Any]:
    failure = {"kind": "gpu_oom", "rule": "torch", "detail": "CUDA out of memory. " * 8, "rank": 1}
    device = {"device": "cuda:0", "source": "nvml", "window_s": 21.3, "util_mean_pct": util_pct, "util_max_pct": 100.0}
    device |= {"mem_peak_mib": 6097.1, "power_mean_w": 301.2, "power_max_w": 355.0, "energy_j": 6300.7}
    probe = {"config": CONFIG, "digest": f"{trial_id:012x}", "status": "ok" if ok else "gpu_oom", "launched": True}
    probe |= {"failure": None if ok else failure, "stopped": None, "total_s": 61.2, "window_s": 21.3}
    probe |= {"start_up_s": 31.0, "iterations": 8, "samples": 524288, "samples_per_s": 15012.7}
    probe |= {"metrics": {"min_avg_util": util_pct, "min_avg_sm": 21.7} if ok else {}, "devices": [device] * 2}
    return probe | {"agent_config": "agent.yaml", "base_agent": "ppo.yaml", "out_dir": f"runs/bench/{trial_id}"}


if __name__ == "__main__":
    main()
