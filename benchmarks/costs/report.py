"""Measures the seconds and the size of a report, and of the dashboard's copy, of a big study.

    python -m benchmarks.costs.report [--cases 25] [--trials 200]

Each case has rows of the tables that were recorded on two H200s, drawn at random with a normal deviate of the recorded
standard error. A further parameter makes all configs of a case different, so nothing is pooled and all is drawn. Every
trial has a folder with a console log and the series of a real probe. Each measurement runs in a process of its own.
"""

import argparse
import json
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, IntDistribution, distribution_to_json
from optuna.storages._rdb import models
from optuna.trial import TrialState
from rich import box
from rich.console import Console
from rich.table import Table as Shown
from sqlalchemy import insert

from benchmarks.costs.export import TIMES, in_own_process
from tuner.cli.report import write_report
from tuner.export.dashboard_copy import copy_study
from tuner.export.reader import StudyReader, connect
from tuner.export.recorded_table import Table
from tuner.kept.stored import storable
from tuner.probe.series import SERIES_FILE, write_series
from tuner.probe.window import Mark, Window
from tuner.search.trials import distribution
from tuner.search.verdict import judge
from tuner.store.case_study import kept_probe
from tuner.testing.fake_devices import load_recording

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "benchmarks/tables/pi_plus_two_h200").glob("*.parquet"))
RECORDING = ROOT / "tests/data/recordings/ok_hiutil_e1024.json"
STUDY, SEED = "bench", 25
KIB, MIB = 1 << 10, 1 << 20
LOG = "building environment 512 of 4096\n" * 200 + "torch.OutOfMemoryError: CUDA out of memory.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=25)
    parser.add_argument("--trials", type=int, default=200, help="of each case")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    title = f"{options.cases} cases, {options.trials} trials each"
    shown = Shown("what", "wall, s", "CPU, s", "memory, MiB", "size, MiB", box=box.MARKDOWN, title=title)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/study.db"
        fill(url, folder, options.cases, options.trials)
        works = {
            "report, HTML": (partial(report, folder=folder, form="html"), folder / "report.html"),
            "report, Markdown": (partial(report, folder=folder, form="md"), folder / "report.md"),
            "copy for the dashboard": (partial(copied, folder=folder), folder / "dashboard"),
        }
        for what, (work, path) in works.items():
            wall_s, cpu_s, grown_mib = in_own_process(work, url)
            shown.add_row(what, f"{wall_s:.1f}", f"{cpu_s:.1f}", f"{grown_mib:,.0f}", f"{_size(path) / MIB:.1f}")
        series = folder / "probes/0/0000" / SERIES_FILE
        Console().print(shown, f"{SERIES_FILE} of a probe: {series.stat().st_size / KIB:.0f} KiB")


def report(url: str, *, folder: Path, form: str) -> int:
    return len(write_report(folder / f"report.{form}", url, STUDY, folder, form=form, command=["plan"]).name)


def copied(url: str, *, folder: Path) -> int:
    return len(copy_study(StudyReader(connect(url), STUDY), folder, {}).name)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of a folder without what its links point at."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
    return sum(file.stat().st_size for file in files)


def fill(url: str, folder: Path, cases: int, trials: int) -> None:
    """Write the trials directly into Optuna's tables, and a folder for each probe."""
    storage, chance = optuna.storages.RDBStorage(url), random.Random(SEED)
    keep_files(folder / "probe")
    tables = [Table.load(file) for file in TABLES]
    for position in range(cases):
        table = tables[position % len(tables)]
        name = f"method{position % 5}_case{position}"
        study = optuna.create_study(storage=storage, study_name=f"{STUDY}/{name}", direction="maximize")
        facts = {"case": name, "method": f"method{position % 5}", "objective": "min_avg_util", "source": "nvml"}
        study.set_user_attr("case", facts | {"devices": ["cuda:0", "cuda:1"], "trainer": {"name": "mimickit"}})
        first = 1 + position * trials
        rows: dict[type, list[dict[str, Any]]] = defaultdict(list)
        kinds = {one.name: distribution(one) for one in table.space.parameters}
        kinds["num_workers"] = IntDistribution(0, trials - 1)
        for number in range(trials):
            out_dir = folder / f"probes/{position}/{number:04d}"
            shutil.copytree(folder / "probe", out_dir)
            place = {"study_id": study._study_id, "trial_id": first + number, "number": number}
            add(rows, table, kinds, **place, out_dir=out_dir, folder=folder, chance=chance)
        with storage.engine.begin() as connection:
            for model, made in rows.items():
                connection.execute(insert(model), made)
    storage.engine.dispose()


def keep_files(out_dir: Path) -> None:
    """Write the files of one probe: a log, and the series of a recorded probe."""
    recorded = load_recording(RECORDING)
    out_dir.mkdir()
    (out_dir / "console.log").write_text(LOG)
    marks = tuple(Mark(iteration=place, t_s=t_s) for place, t_s in enumerate(recorded.marks_s))
    write_series(out_dir, recorded.samples, recorded.devices, marks=marks, window=Window(marks[1:]))


def add(
    rows: dict[type, list[dict[str, Any]]],
    table: Table,
    kinds: Mapping[str, BaseDistribution],
    *,
    study_id: int,
    trial_id: int,
    number: int,
    out_dir: Path,
    folder: Path,
    chance: random.Random,
) -> None:
    """Add the rows of one trial: a recorded result with noise."""
    found = table.find(chance.choice(table.configs))
    if found is None:
        return
    shift = chance.gauss(0.0, 1.0)
    devices = tuple(replace(one, util_mean_pct=_near(one.util_mean_pct, shift)) for one in found.result.devices)
    config = {**found.result.config, "num_workers": number}
    result = replace(found.result, config=config, devices=devices)
    verdict = judge(result, "min_avg_util", headroom_pct=5.0)
    kept = replace(kept_probe(result, verdict, None, folder=folder), out_dir=str(out_dir.relative_to(folder)))
    key = {"trial_id": trial_id}
    state = TrialState[verdict.state.name]
    rows[models.TrialModel].append(key | {"number": number, "study_id": study_id, "state": state} | TIMES)
    probe = json.dumps(storable(asdict(kept)))
    rows[models.TrialUserAttributeModel].append(key | {"key": "probe", "value_json": probe})
    for name, value in config.items():
        kind = kinds[name]
        param = {"param_value": kind.to_internal_repr(value), "distribution_json": distribution_to_json(kind)}
        rows[models.TrialParamModel].append(key | {"param_name": name} | param)
    for place, value in enumerate(verdict.values or ()):
        finite = models.TrialValueModel.TrialValueType.FINITE
        rows[models.TrialValueModel].append(key | {"objective": place, "value": value, "value_type": finite})


def _near(util_pct: float | None, shift: float) -> float | None:
    return None if util_pct is None else min(100.0, util_pct + shift)


if __name__ == "__main__":
    main()
