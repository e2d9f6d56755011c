"""Makes the tables of a study. Their cells are as they are written: numbers are rounded, unknown values are empty."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Any

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
from tuner.study.cases import FILES
from tuner.study.space import LADDER

if TYPE_CHECKING:
    import pandas as pd

CHUNK_TRIALS = 5000
"""How many rows of `trials.tsv` are in memory at a time."""

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


def best_by_case(study: StudyReader) -> "pd.DataFrame":
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
    return _table(rows, [*best_columns(devices, *study.fields), *raced])


def pareto(study: StudyReader) -> "pd.DataFrame":
    """Return a row per member of each case's Pareto front, the largest first objective first."""
    cases = {case.name: case for case in study.cases}
    objectives = dict.fromkeys(name for case in study.cases for name in case.objectives)
    rows = [
        front_row(cases[name], trial, study.beside_default(cases[name], trial))
        for name, members in study.fronts.items()
        for trial in members
    ]
    return _table(rows, front_columns(list(objectives), study.fields[0]))


def case_manifest(study: StudyReader) -> "pd.DataFrame":
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
    return _table(rows, ["case", "method", "mode", *files, "trainer"])


def method_summary(study: StudyReader) -> "pd.DataFrame":
    """Return a row per method. Its utilisations are those of the best configs of its cases."""
    methods = dict.fromkeys(case.method for case in study.cases)
    return _table([_method_row(study, method) for method in methods], _SUMMARY)


def trial_tables(study: StudyReader, *, most_rows: int = CHUNK_TRIALS) -> "Iterator[pd.DataFrame]":
    """Yield all trials of all cases, in tables of at most `most_rows` rows with the same columns."""
    cases = {case.name: case for case in study.cases}
    columns = trial_columns(*study.fields)
    rows = (trial_row(cases[trial.case], trial) for trial in study.trials())
    yield _table(list(islice(rows, most_rows)), columns)
    while chunk := list(islice(rows, most_rows)):
        yield _table(chunk, columns)


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


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "pd.DataFrame":
    """Make a table of objects: any other type would turn whole numbers beside an unknown into floats."""
    import pandas as pd  # noqa: PLC0415 - half a second that most commands do without

    return pd.DataFrame([[row.get(column) for column in columns] for row in rows], columns=list(columns), dtype=object)
