"""Reads the times of a study's trials: of any Optuna program, and of tuner itself."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, TableClause, func, select

from tuner.diagnosis.study_times import KnownFact, Setup, StudyRecord, TrialEnd, TrialTimes
from tuner.export.case_view import CaseView
from tuner.export.reader import StudyReader, reading
from tuner.kept.stored import CONSTRAINTS, PARAMETERS, STATE, STEPS, SYSTEM_FACTS, TRIALS, moment
from tuner.kept.trial import FINISHED, INTERRUPTED, OK, PRUNED, RUNNING, KeptTrial
from tuner.probe.units import MIB_PER_GIB

ENDS = {"COMPLETE": TrialEnd.COMPLETE, "PRUNED": TrialEnd.PRUNED, "FAIL": TrialEnd.FAILED}
"""How the database spells the ends of trials."""
WAITING = "WAITING"
SAMPLERS = {
    "tpe:relative_params": "TPESampler",
    "gp:relative_params": "GPSampler",
    **dict.fromkeys(("cma:", "sepcma:", "cmawm:"), "CmaEsSampler"),
    **dict.fromkeys(("NSGAIISampler:", "nsga2:"), "NSGAIISampler"),
    **dict.fromkeys(("NSGAIIISampler:", "nsga3:"), "NSGAIIISampler"),
    "grid_id": "GridSampler",
    "qmc:": "QMCSampler",
}
"""How system attributes of a trial or a study begin → the sampler of Optuna 3 to 5 that leaves them."""
PRUNERS = {"completed_rung_": "SuccessiveHalvingPruner or HyperbandPruner"}
_WORKERS = re.compile(r"(^|\.)(num_|n_)?((data_?loader|loader|data)_)?(num_|n_)?workers$")
"""Names of parameters such as `num_workers` and `data.dataloader_num_workers`, and none such as `rollout_workers`."""
DATABASE = "database"


def read_plain(engine: Engine, study: str, study_id: int) -> StudyRecord:
    """Return what the database says of the Optuna study of this id."""
    with reading(engine) as connection:
        times = (TRIALS.c.datetime_start, TRIALS.c.datetime_complete)
        query = select(TRIALS.c.trial_id, STATE.label("state"), *times).where(TRIALS.c.study_id == study_id)
        rows = connection.execute(query).all()
        reports = _reports(connection, study_id)
        names = _system_names(connection, study_id)
        workers = loader_workers(connection, [study_id])
    states = [row.state for row in rows]
    return StudyRecord(
        study=study,
        trials=tuple(
            TrialTimes(
                end=ENDS[row.state],
                began_s=seconds(moment(row.datetime_start)),
                ended_s=seconds(moment(row.datetime_complete)),
                reports=reports.get(row.trial_id, 0),
            )
            for row in rows
            if row.state in ENDS
        ),
        running=states.count(RUNNING),
        waiting=states.count(WAITING),
        setup=Setup(sampler=_left_by(names, SAMPLERS), pruner=_left_by(names, PRUNERS), loader_workers=workers),
    )


def seconds(at: datetime | None) -> float | None:
    """Return a moment in seconds of one clock."""
    return at and (at.replace(tzinfo=None) - datetime.min).total_seconds()


def _reports(connection: Connection, study_id: int) -> dict[int, int]:
    """Return trial → number of intermediate values."""
    query = select(STEPS.c.trial_id, func.count()).where(_of(STEPS, study_id)).group_by(STEPS.c.trial_id)
    return {row[0]: row[1] for row in connection.execute(query)}


def _system_names(connection: Connection, study_id: int) -> list[str]:
    """Return the names of the attributes that Optuna itself keeps of the study and of its trials."""
    of_trials = select(CONSTRAINTS.c.key).where(_of(CONSTRAINTS, study_id)).distinct()
    of_study = select(SYSTEM_FACTS.c.key).where(SYSTEM_FACTS.c.study_id == study_id)
    return [str(name) for query in (of_trials, of_study) for name in connection.scalars(query)]


def _left_by(names: Iterable[str], known: Mapping[str, str]) -> KnownFact[str] | None:
    """Return who leaves attributes of such names."""
    found = dict.fromkeys(who for name in names for begin, who in known.items() if name.startswith(begin))
    return KnownFact(value=", ".join(found), source=DATABASE) if found else None


def loader_workers(connection: Connection, studies: Sequence[int]) -> KnownFact[float] | None:
    """Return the mean over the trials of these studies of the parameter that names the workers of a data loader.

    A negative number, with which some trainers ask for a number of their own, tells nothing.
    """
    of_studies = PARAMETERS.c.trial_id.in_(select(TRIALS.c.trial_id).where(TRIALS.c.study_id.in_(studies)))
    query = select(PARAMETERS).where(of_studies, PARAMETERS.c.param_name.like("%workers%"))
    rows = [row for row in connection.execute(query) if _WORKERS.search(str(row.param_name).lower())]
    values = [value for row in rows if (value := _value(row)) is not None and 0.0 <= value < math.inf]
    return KnownFact(value=fmean(values), source=DATABASE) if values else None


def _value(row: Row[Any]) -> float | None:
    """Return the number that a parameter has. Of a choice, Optuna stores its place among the choices."""
    try:
        distribution = json.loads(row.distribution_json)
        choices = distribution["attributes"].get("choices")
        return float(row.param_value if choices is None else choices[int(row.param_value)])
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _of(table: TableClause, study_id: int) -> ColumnElement[bool]:
    """Return the condition that a row belongs to a trial of the study."""
    return table.c.trial_id.in_(select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id))


def read_own(engine: Engine, study: str, case: str | None = None) -> StudyRecord:
    """Return what the database says of one case of a study, or of all. Raises EmptyStoreError if there is none."""
    reader = StudyReader(engine, study)
    cases = [one for one in reader.cases if case in {None, one.name}]
    trials = [trial for one in cases for trial in one.trials]
    ended = [one for one in trials if one.state in FINISHED]
    cards = [device for one in ended for device in one.devices if device.device.startswith("cuda")]
    return StudyRecord(
        study=study if case is None else f"{study}/{case}",
        trials=tuple(map(_times, ended)),
        running=sum(one.state == RUNNING for one in trials),
        setup=Setup(
            duty_pct=_duty(ended),
            pruner=_pruner(cases),
            cores=_cores(ended),
            gpus=_gpus(cases),
            gpu_memory_gib=_largest_gib(device.mem_total_mib for device in cards),
            memory_used_gib=_largest_gib(device.mem_peak_mib for device in cards),
        ),
        failures=Counter(str(one.status) for one in ended if _end(one) is TrialEnd.FAILED),
        is_ours=True,
        has_sessions=any(one.probe.warm for one in ended),
    )


def _times(trial: KeptTrial) -> TrialTimes:
    began_s, ended_s = seconds(trial.started), seconds(trial.completed)
    return TrialTimes(end=_end(trial), began_s=began_s, ended_s=ended_s, startup_s=trial.probe.start_up_s)


def _end(trial: KeptTrial) -> TrialEnd:
    """Return how a probe ended. Optuna calls a config that ran out of memory pruned, too."""
    if trial.status == OK:
        return ENDS[trial.state]
    return {PRUNED: TrialEnd.PRUNED, INTERRUPTED: TrialEnd.INTERRUPTED}.get(str(trial.status), TrialEnd.FAILED)


def _duty(trials: Iterable[KeptTrial]) -> KnownFact[float] | None:
    """Return the mean utilisation of the probes' GPUs over all their seconds; a failure counts as idle."""
    busy_s = all_s = 0.0
    for one in trials:
        utils = [device.util_mean_pct for device in one.devices if device.util_mean_pct is not None]
        all_s += one.probe.total_s or 0.0
        if utils and one.probe.total_s and one.probe.start_up_s is not None:
            busy_s += sum(utils) / len(utils) * (one.probe.total_s - one.probe.start_up_s)
    return (
        KnownFact(value=busy_s / all_s, source=f"{DATABASE}; start-ups and failures count as idle") if busy_s else None
    )


def _gpus(cases: Iterable[CaseView]) -> KnownFact[int] | None:
    most = max((sum(name.startswith("cuda") for name in case.kept.devices) for case in cases), default=0)
    return KnownFact(value=most, source=f"{DATABASE}, of each trial") if most else None


def _cores(trials: Iterable[KeptTrial]) -> KnownFact[int] | None:
    """Return the cores of the smallest machine that measured, which every trial had."""
    known = [int(cores) for one in trials if (cores := one.probe.host.get("cores", "")).isdecimal()]
    return KnownFact(value=min(known), source=DATABASE) if known else None


def _largest_gib(sizes_mib: Iterable[float | None]) -> KnownFact[float] | None:
    known = [size for size in sizes_mib if size is not None]
    return KnownFact(value=max(known) / MIB_PER_GIB, source=DATABASE) if known else None


def _pruner(cases: Iterable[CaseView]) -> KnownFact[str] | None:
    """Return the names of the pruners with which the cases were begun."""
    pruners = [(one.facts.identity or {}).get("pruner") for one in cases]
    names = dict.fromkeys(str(pruner.get("name")) for pruner in pruners if isinstance(pruner, dict))
    return KnownFact(value=", ".join(names), source=DATABASE) if names else None
