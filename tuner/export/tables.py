"""Makes the tables of a study. Their cells are as they are written: numbers are rounded, unknown values are empty."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tuner.export.query import StudyReader
from tuner.export.records import commonest_failure, finished, status_without_best
from tuner.export.rounding import rounded
from tuner.export.rows import (
    RACE_COLUMNS,
    best_columns,
    best_row,
    front_columns,
    front_row,
    race_row,
    trial_columns,
    trial_row,
)
from tuner.export.tsv import Sheet
from tuner.study.cases import FILES
from tuner.study.space import LADDER

_UTIL = "min_avg_util"
_SUMMARY = (
    "method",
    "cases",
    "ok_cases",
    "best_min_avg_util",
    "mean_min_avg_util",
    "least_min_avg_util",
    "largest_num_envs",
    "safe_num_envs",
    "commonest_failure",
    "trials",
    "probe_s",
)


def best_by_case(study: StudyReader) -> Sheet:
    """Return a row per case: its best config, or the commonest failure as its status if no config may be the best."""
    rows = []
    for case in study.cases:
        tallies, best = study.tallies[case.name], study.best.get(case.name)
        row = {"case": case.name, "method": case.method, "status": status_without_best(tallies)}
        if best:
            row = best_row(case, best, study.vs_default.get(case.name))
        rows.append(row | {"trials": finished(tallies)} | race_row(study.races.get(case.name, ())))
    raced = RACE_COLUMNS if study.races else ()
    devices = max(2, *(len(case.kept.devices) for case in study.cases))
    return Sheet([*best_columns(devices, *study.fields), *raced], rows)


def pareto(study: StudyReader) -> Sheet:
    """Return a row per member of each case's Pareto front, the largest first objective first."""
    cases = {case.name: case for case in study.cases}
    objectives = dict.fromkeys(name for case in study.cases for name in case.objectives)
    rows = [
        front_row(cases[name], trial, study.beside_default(cases[name], trial))
        for name, members in study.fronts.items()
        for trial in members
    ]
    return Sheet(front_columns(list(objectives), study.fields[0]), rows)


def case_manifest(study: StudyReader) -> Sheet:
    """Return a row per case: the files and the mode with which the trainer launches it."""
    rows = [
        {
            **case.kept.files,
            "case": case.name,
            "method": case.method,
            "mode": case.kept.mode,
            "trainer": case.kept.trainer_name,
        }
        for case in study.cases
    ]
    files = dict.fromkeys(name for case in study.cases for name in case.kept.files) or FILES
    return Sheet(["case", "method", "mode", *files, "trainer"], rows)


def method_summary(study: StudyReader) -> Sheet:
    """Return a row per method. Its utilisations are those of the best configs of its cases."""
    methods = dict.fromkeys(case.method for case in study.cases)
    return Sheet(_SUMMARY, [_method_row(study, method) for method in methods])


def all_trials(study: StudyReader) -> Sheet:
    """Return a row per trial of each case, in their order. A row is read when it is asked for."""
    cases = {case.name: case for case in study.cases}
    return Sheet(trial_columns(*study.fields), (trial_row(cases[trial.case], trial) for trial in study.trials()))


def _method_row(study: StudyReader, method: str) -> dict[str, Any]:
    names = [case.name for case in study.cases if case.method == method]
    tallies = [tally for name in names for tally in study.tallies[name]]
    best = [study.best[name] for name in names if name in study.best]
    utils = [util for trial in best if (util := trial.metrics.get(_UTIL)) is not None]
    return {
        "method": method,
        "cases": len(names),
        "ok_cases": len(best),
        "best_min_avg_util": rounded(_UTIL, max(utils, default=None)),
        "mean_min_avg_util": rounded(_UTIL, fmean(utils)) if utils else None,
        "least_min_avg_util": rounded(_UTIL, min(utils, default=None)),
        "largest_num_envs": max((trial.config[LADDER] for trial in best if LADDER in trial.config), default=None),
        "safe_num_envs": safe_num_envs(study, names),
        "commonest_failure": commonest_failure(tallies),
        "trials": finished(tallies),
        "probe_s": rounded("probe_s", sum(tally.probe_s for tally in tallies)),
    }


def safe_num_envs(study: StudyReader, cases: Sequence[str]) -> int | None:
    """Return a `num_envs` that runs in all cases: the smallest of the cases' largest. None if a case has no success."""
    known = [study.largest_ok.get(name) for name in cases]
    return None if None in known else min((rung for rung in known if rung is not None), default=None)
