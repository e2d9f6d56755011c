"""A study database as the tuner writes it, made with Optuna itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import optuna
import pandas as pd
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from tuner.export.tables import Sheet
from tuner.records.schema import CASE, ERROR, LEASE, PROBE, RETRY
from tuner.study import launch_digest

STATES = {"ok": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "gpu_oom": TrialState.PRUNED}
FACTS = {
    "mode": "train",
    "agent_config": "data/agents/ppo.yaml",
    "env_config": "data/envs/pi_plus.yaml",
    "engine_config": "",
    "trainer": {"name": "reference"},
    "source": "nvml",
    "devices": ["cuda:0", "cuda:1"],
    "objective": "min_avg_util",
}
OTHER_METRICS = {"min_avg_sm": 21.456, "util_spread": None, "energy_j": 2000.8}


def frame(sheet: Sheet) -> pd.DataFrame:
    """Return a table with its cells as they are, for tests to look at."""
    rows = [[row.get(column) for column in sheet.columns] for row in sheet.rows]
    return pd.DataFrame(rows, columns=list(sheet.columns), dtype=object)


class FilledDatabase:
    """A study database that tests fill with cases and trials."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.storage = optuna.storages.RDBStorage(url, skip_compatibility_check=True)  # this Optuna has just made it
        self._added = count()

    def case(self, name: str, *, study: str = "pi_plus", **facts: Any) -> optuna.Study:
        """Start a case. `facts` replace the facts of a case on two GPUs."""
        known = {"case": name, "method": name.partition("_")[0], **FACTS, **facts}
        directions = [StudyDirection.MAXIMIZE] * len(known["objective"].split(","))
        case = optuna.create_study(storage=self.storage, study_name=f"{study}/{name}", directions=directions)
        case.set_user_attr(CASE, known)
        return case

    def running(self, case: optuna.Study) -> None:
        """Begin a trial that somebody runs."""
        case.ask().set_user_attr(LEASE, {})

    def add(
        self,
        case: optuna.Study,
        config: dict[str, Any] | None = None,
        *,
        utils: tuple[float, ...] = (),
        status: str = "ok",
        detail: str = "",
        retry: bool = False,
        delayed: float | None = None,
        **probe: Any,
    ) -> None:
        """Add a finished probe whose devices were busy `utils` percent, in one transaction.

        They waited `delayed` percent of the time for processors that others used. `probe` replaces parts of its record.
        A second objective is samples/s.
        """
        number = next(self._added)
        failure = {"kind": status, "rule": "a rule", "detail": detail, "rank": 1, "overshoot_mib": None}
        record = {
            "config": config or {},
            "digest": launch_digest(config) if config else f"digest{number}",
            "status": status,
            "failure": None if status in ("ok", "pruned", "no_reading") else failure,
            "stopped": "far below the best" if status == "pruned" else None,
            "launched": True,
            "host": {"name": "vm", "devices": "GPU-a, GPU-b"},
            "started_at": "2026-11-21T10:00:00+00:00",
            "total_s": 61.25,
            "start_up_s": 30.504,
            "window_s": 20.0,
            "iterations": 8,
            "samples": 524288,
            "samples_per_s": 15000.126,
            "metrics": {"min_avg_util": min(utils), **OTHER_METRICS} if utils else {},
            "devices": [{**_device(rank, util), "delayed_mean_pct": delayed} for rank, util in enumerate(utils)],
            "agent_config": "out/agent.yaml",
            "base_agent": "data/agents/ppo.yaml",
            "out_dir": f"runs/pi_plus/{number}",
        }
        record |= probe
        facts = {PROBE: record, RETRY: retry, ERROR: record["metrics"].get("min_avg_util_se")}
        attributes = {name: fact for name, fact in facts.items() if fact}
        values = [min(utils), record["samples_per_s"]][: len(case.directions)] if status == "ok" else None
        state = STATES.get(status, TrialState.FAIL)
        case.add_trial(create_trial(state=state, values=values, user_attrs=attributes))


def _device(rank: int, util_pct: float) -> dict[str, Any]:
    return {
        "device": f"cuda:{rank}",
        "source": "nvml",
        "util_mean_pct": util_pct,
        "util_max_pct": util_pct + 10,
        "mem_peak_mib": 6097.25,
        "power_max_w": 312.345,
    }


@contextmanager
def filled(url: str) -> Iterator[FilledDatabase]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    database = FilledDatabase(url)
    try:
        yield database
    finally:
        database.storage.engine.dispose()
