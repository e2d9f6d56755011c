"""Reads a study that `tuner` has run: its records say what each probe's start-up took and how busy its GPUs were."""

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Engine

from tuner.diagnosis.plain import DATABASE, ENDS, seconds
from tuner.diagnosis.record import End, Known, Setup, StudyRecord, TrialTimes
from tuner.export.case import CaseView
from tuner.export.query import StudyReader
from tuner.kept.probe import INTERRUPTED, OK, PRUNED
from tuner.kept.trial import FINISHED, RUNNING, KeptTrial
from tuner.units import MIB_PER_GIB


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
        failures=Counter(str(one.status) for one in ended if _end(one) is End.FAILED),
        is_ours=True,
        has_sessions=any(one.probe.warm for one in ended),
    )


def _times(trial: KeptTrial) -> TrialTimes:
    return TrialTimes(
        end=_end(trial),
        began_s=seconds(trial.started),
        ended_s=seconds(trial.completed),
        startup_s=trial.probe.start_up_s,
    )


def _end(trial: KeptTrial) -> End:
    """Return how a probe ended. Optuna calls a config that ran out of memory pruned, too."""
    if trial.status == OK:
        return ENDS[trial.state]
    return {PRUNED: End.PRUNED, INTERRUPTED: End.INTERRUPTED}.get(str(trial.status), End.FAILED)


def _duty(trials: Iterable[KeptTrial]) -> Known[float] | None:
    """Return the mean utilisation of the probes' GPUs over all their seconds; a failure counts as idle."""
    busy_s = all_s = 0.0
    for one in trials:
        utils = [device.util_mean_pct for device in one.devices if device.util_mean_pct is not None]
        all_s += one.probe.total_s or 0.0
        if utils and one.probe.total_s and one.probe.start_up_s is not None:
            busy_s += sum(utils) / len(utils) * (one.probe.total_s - one.probe.start_up_s)
    return Known(value=busy_s / all_s, source=f"{DATABASE}; start-ups and failures count as idle") if busy_s else None


def _gpus(cases: Iterable[CaseView]) -> Known[int] | None:
    most = max((sum(name.startswith("cuda") for name in case.kept.devices) for case in cases), default=0)
    return Known(value=most, source=f"{DATABASE}, of each trial") if most else None


def _cores(trials: Iterable[KeptTrial]) -> Known[int] | None:
    """Return the cores of the smallest machine that measured, which every trial had."""
    known = [int(cores) for one in trials if (cores := one.probe.host.get("cores", "")).isdecimal()]
    return Known(value=min(known), source=DATABASE) if known else None


def _largest_gib(sizes_mib: Iterable[float | None]) -> Known[float] | None:
    known = [size for size in sizes_mib if size is not None]
    return Known(value=max(known) / MIB_PER_GIB, source=DATABASE) if known else None


def _pruner(cases: Iterable[CaseView]) -> Known[str] | None:
    """Return the names of the pruners with which the cases were begun."""
    pruners = [(one.facts.identity or {}).get("pruner") for one in cases]
    names = dict.fromkeys(str(pruner.get("name")) for pruner in pruners if isinstance(pruner, dict))
    return Known(value=", ".join(names), source=DATABASE) if names else None
