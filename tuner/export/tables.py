"""Makes the tables of a study. Their cells are as they are written: numbers are rounded, unknown values are empty."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tuner.export.case import CaseView
from tuner.export.query import StudyReader
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
from tuner.kept.trial import pooled
from tuner.study.cases import FILES
from tuner.study.space import LADDER

_UTIL = "min_avg_util"
REPLAY_OF = "replay_of"
"""The column of `best_by_case.tsv` that a replayed study has: the table that stood in for trainer and devices."""


def best_by_case(study: StudyReader) -> Sheet:
    """Return a row per case: its best config, or the commonest failure as its status if no config may be the best."""
    rows = []
    for case in study.cases:
        row = {"case": case.name, "method": case.method, "status": case.status}
        if case.best:
            row = best_row(case, case.best)
        rows.append(row | {"trials": case.finished, REPLAY_OF: case.replay_of} | race_row(case.race))
    raced = RACE_COLUMNS if any(case.race for case in study.cases) else ()
    replayed = (REPLAY_OF,) if any(case.replay_of for case in study.cases) else ()
    devices = max(2, *(len(case.kept.devices) for case in study.cases))
    return Sheet([*best_columns(devices, *study.fields), *replayed, *raced], rows)


def pareto(study: StudyReader) -> Sheet:
    """Return a row per member of each case's Pareto front, the largest first objective first."""
    objectives = dict.fromkeys(name for case in study.cases for name in case.objectives)
    rows = [front_row(case, member) for case in study.cases for member in case.front]
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
    rows = [_method_row(study, method) for method in methods]
    return Sheet(tuple(_method_row(study, "")), rows)


def all_trials(study: StudyReader) -> Sheet:
    """Return a row per trial of each case, in their order."""
    rows = (trial_row(case, trial) for case in study.cases for trial in case.trials)
    return Sheet(trial_columns(*study.fields), rows)


def _method_row(study: StudyReader, method: str) -> dict[str, Any]:
    cases, ladder = [case for case in study.cases if case.method == method], ladder_of_study(study)
    rungs = [case.rung(case.best.config) for case in cases if case.best]
    best = [pooled(case.best.trials) for case in cases if case.best]
    utils = [util for trial in best if (util := trial.metrics.get(_UTIL)) is not None]
    whole = CaseView(name=method, trials=[trial for case in cases for trial in case.trials])
    return {
        "method": method,
        "cases": len(cases),
        "ok_cases": len(best),
        "best_min_avg_util": rounded(_UTIL, max(utils, default=None)),
        "mean_min_avg_util": rounded(_UTIL, fmean(utils)) if utils else None,
        "least_min_avg_util": rounded(_UTIL, min(utils, default=None)),
        f"largest_{ladder}": max((rung for rung in rungs if rung is not None), default=None),
        f"safe_{ladder}": safe_rung(cases),
        "commonest_failure": whole.commonest_failure,
        "trials": whole.finished,
        "probe_s": rounded("probe_s", whole.probe_s),
    }


def ladder_of_study(study: StudyReader) -> str:
    """Return the parameter whose values are the rungs; `num_envs` where no case has a ladder."""
    return next((case.kept.ladder for case in study.cases if case.kept.ladder), LADDER)


def safe_rung(cases: Sequence[CaseView]) -> int | None:
    """Return a rung that runs in all cases: the smallest of the cases' largest. None if a case has no success."""
    known = [case.largest_ok for case in cases]
    return None if None in known else min((rung for rung in known if rung is not None), default=None)
