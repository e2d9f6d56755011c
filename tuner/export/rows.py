"""Makes one flat row of each trial: column name → value. Unknown values are missing or None."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tuner.export.case import CaseView
from tuner.export.rounding import rounded
from tuner.export.words import in_words
from tuner.kept.probe import OK, KeptProbe
from tuner.kept.race import KeptRun
from tuner.kept.trial import KeptTrial, pooled
from tuner.probe.result import DeviceSummary
from tuner.search.scores import standings
from tuner.search.standing import Standing
from tuner.study.launch import launch_digest
from tuner.study.space import LADDER, VARIANT

Row = dict[str, Any]

_OF_DEVICE: Mapping[str, Callable[[DeviceSummary], float | None]] = {
    "avg_util": lambda device: device.util_mean_pct,
    "max_util": lambda device: device.util_max_pct,
    "max_mem": lambda device: device.mem_peak_mib,
    "max_power": lambda device: device.power_max_w,
}
"""Column that repeats for each device → the number from the device's summary."""

_BEFORE_DEVICES = ("case", "method", "status", "variant", LADDER, "elapsed_s", "iteration", "samples", "samples_per_s")
"""The first columns of `best_by_case.tsv`, by the predecessor's names. Other tables say `total_s` and `iterations`."""
_FILES = ("agent_config", "base_agent", "out_dir")


def best_columns(devices: int, parameters: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Return the columns of `best_by_case.tsv`: a fixed part, then the searched parameters, then other measurements."""
    average, *maxima = _OF_DEVICE
    averages = [f"{average}{rank}" for rank in range(devices)]
    extremes = [f"{maximum}{rank}" for maximum in maxima for rank in range(devices)]
    searched = [name for name in parameters if name != VARIANT]  # it is the column `variant`
    columns = [*_BEFORE_DEVICES, *averages, "min_avg_util", *extremes, *_FILES, *searched]
    columns += ["samples_per_s_vs_default", "changes_learning", "objective", "value", "start_up_s", "window_s"]
    columns += [*metrics, "source", "measured", "measured_on", "readings"]
    return list(dict.fromkeys([*columns, "trials", "trial", "digest"]))


RACE_COLUMNS = ("race_winner", "race_score", "race_score_se", "race_s", "race_runs")
"""The columns about a race, at the end of `best_by_case.tsv` if a case had a race."""


def race_row(runs: Sequence[KeptRun]) -> Row:
    """Return the cells about the winner of a race; empty where there was none."""
    by_config: dict[str, list[KeptRun]] = {}
    for run in runs:
        by_config.setdefault(launch_digest(run.config), []).append(run)
    first = next(iter(standings(by_config)), None)
    if first is None or first.mean is None:
        return {}
    return {
        "race_winner": in_words(by_config[first.config][0].config),
        "race_score": first.mean.value,
        "race_score_se": first.mean.error,
        "race_s": first.seconds,
        "race_runs": first.mean.runs,
    }


def trial_columns(parameters: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Return the columns of `trials.tsv`."""
    columns = ["case", "method", "trial", "state", "status", "failure", "detail", "launched", "value", *parameters]
    columns += ["iterations", "samples", "samples_per_s", *metrics, "started_at", "completed_at"]
    columns += ["start_up_s", "window_s", "total_s", "measured", "measured_on"]
    return list(dict.fromkeys([*columns, "out_dir", "digest"]))


def front_columns(objectives: Sequence[str], parameters: Sequence[str]) -> list[str]:
    """Return the columns of `pareto.tsv`."""
    values = [name for objective in objectives for name in (objective, f"{objective}_se")]
    columns = ["case", "method", "trial", *parameters, *values, "samples_per_s", "samples_per_s_vs_default"]
    return list(
        dict.fromkeys([*columns, "changes_learning", "headroom_pct", "measured", "readings", "out_dir", "digest"])
    )


def front_row(case: CaseView, member: Standing) -> Row:
    """Return the row of a front's member."""
    return trial_row(case, _pooled(member)) | _beside_default(case, member) | {"readings": member.readings}


def best_row(case: CaseView, best: Standing) -> Row:
    """Return the row of a case's best config."""
    trial = _pooled(best)
    probe = trial.probe
    return {
        **trial.config,
        **_measured(trial),
        **_device_columns(trial.devices),
        "agent_config": probe.agent_config,
        "base_agent": probe.base_agent,
        "out_dir": probe.out_dir,
        "case": case.name,
        "method": case.method,
        "status": OK,
        "variant": trial.variant,
        "elapsed_s": rounded("elapsed_s", probe.total_s),
        "iteration": probe.iterations,
        **_beside_default(case, best),
        "objective": case.objective,
        "value": rounded(case.objectives[0], trial.value),
        "source": case.kept.source,
        "measured": _way(trial),
        "measured_on": probe.measured_on,
        "readings": best.readings,
        "trial": trial.number,
        "digest": probe.digest,
    }


def _pooled(one: Standing) -> KeptTrial:
    """Return the newest trial of a config with the numbers of all its trials."""
    return replace(pooled(one.trials), values=one.values)


def trial_row(case: CaseView, trial: KeptTrial) -> Row:
    """Return the row of any trial, with or without a result."""
    probe = trial.probe
    failure = probe.failure
    return {
        **trial.config,
        **_measured(trial),
        "case": case.name,
        "method": case.method,
        "trial": trial.number,
        "state": trial.state,
        "status": trial.status,
        "failure": failure and failure.kind,
        "detail": " ".join(_detail(probe).split()),
        "launched": probe.launched,
        "value": rounded(case.objectives[0], trial.value),
        "iterations": probe.iterations,
        "started_at": _utc(trial.started),
        "completed_at": _utc(trial.completed),
        "measured": _way(trial),
        "measured_on": probe.measured_on,
        "out_dir": probe.out_dir,
        "digest": probe.digest,
    }


def _detail(probe: KeptProbe) -> str:
    why = (probe.failure and probe.failure.detail) or probe.stopped or probe.ineligible
    return "; ".join([why] if why else probe.notes)


def _beside_default(case: CaseView, one: Standing) -> Row:
    return {
        "samples_per_s_vs_default": rounded("samples_per_s_vs_default", case.vs_default(one)),
        "changes_learning": " ".join(case.changes_learning(one.config)),
    }


def _measured(trial: KeptTrial) -> Row:
    metrics = {name: rounded(name, value) for name, value in trial.metrics.items()}
    probe = trial.probe
    return metrics | {
        "samples": probe.samples,
        "total_batch": probe.total_batch,
        "samples_per_s": rounded("samples_per_s", probe.samples_per_s),
        "start_up_s": rounded("start_up_s", probe.start_up_s),
        "window_s": rounded("window_s", probe.window_s),
        "total_s": rounded("total_s", probe.total_s),
    }


def _device_columns(devices: Sequence[DeviceSummary]) -> Row:
    return {
        f"{column}{rank}": rounded(column, number(device))
        for rank, device in enumerate(devices)
        for column, number in _OF_DEVICE.items()
    }


def _way(trial: KeptTrial) -> str | None:
    """Return how the trial was measured: `warm` in a session, `cold` by the trainer's plain command."""
    return ("warm" if trial.probe.warm else "cold") if trial.probe.launched else None


def _utc(moment: datetime | None) -> str | None:
    return moment and f"{moment.isoformat(timespec='seconds')}Z"
