"""What is kept of a trial and of a case: one packed JSON attribute each for the exporters, and a few for the search."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from tuner.probe.metrics import measured
from tuner.probe.plan import ProbePlan
from tuner.probe.result import ProbeResult
from tuner.search.observed import COST, RAN, cost, mostly_ran
from tuner.search.trials import ERROR, FAILURE, MEASURED_ON, RETRY, WARM, launch_digest
from tuner.search.verdict import Verdict
from tuner.study.cases import Case
from tuner.study.space import Config

PROBE = "probe"
"""Trial attribute: the whole probe."""
CASE = "case"
"""Study attribute: the case."""
IDENTITY = "identity"
"""Study attribute: what must not change while the study goes on."""
ENDED = "ended"
"""Study attribute: why nothing was left that is worth a probe; None again once the case goes on."""
LEASE = "lease"
"""Trial attribute: who runs it."""


def probe_record(
    result: ProbeResult, verdict: Verdict, plan: ProbePlan | None, *, launched: bool, folder: Path
) -> dict[str, Any]:
    """Pack a probe: config, status, failure, metrics, devices, times and files; a refused config has no plan.

    Paths below the study's `folder` are kept relative to it, so that the folder may move; numbers that are not finite,
    which JSON does not know, become None.
    """
    record = {
        **asdict(result),
        "digest": launch_digest(result.config),
        "status": verdict.status,
        "ineligible": verdict.ineligible,
        "launched": launched,
        "metrics": measured(result),
        "agent_config": _within(folder, plan.agent_config) if plan else "",
        "base_agent": plan.base_agent if plan else "",
        "session_key": plan.session_key if plan and plan.request is not None else None,
        "out_dir": _within(folder, str(plan.slot.out_dir)) if plan and launched else "",
    }
    return finite(record)


def dropped_record(config: Config) -> dict[str, Any]:
    """Pack a probe whose process is gone."""
    empty = {"status": "interrupted", "launched": True, "metrics": {}, "devices": []}
    return {**empty, "config": config, "digest": launch_digest(config)}


def usual_s(trials: Iterable[FrozenTrial]) -> float | None:
    """Give the median of the seconds that probes took which came to a number; None where none has."""
    complete = (one.user_attrs[PROBE] for one in trials if one.state == TrialState.COMPLETE)
    known = [record["total_s"] for record in complete if record.get("total_s") is not None]
    return median(known) if known else None


def _within(folder: Path, path: str) -> str:
    return str(Path(path).relative_to(folder)) if path and Path(path).is_relative_to(folder) else path


def finite(value: Any) -> Any:
    """Give a value of JSON with None for each number in it that is not finite."""
    match value:
        case dict():
            return {key: finite(part) for key, part in value.items()}
        case list() | tuple():
            return [finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def case_record(
    case: Case, identity: Mapping[str, Any], *, defaults: Sequence[Config], learning: Iterable[str], **more: Any
) -> dict[str, Any]:
    """Pack a case: what the manifest shows, what its values were measured with and what they are compared with.

    `defaults` are the default configs of all rungs, `learning` the parameters that change what is learnt, and `more`
    is kept beside them.
    """
    return {
        "case": case.name,
        "method": case.method,
        "robot": list(case.robot),
        "mode": case.mode,
        "files": list(case.files),
        **{name: case.options.get(name, "") for name in case.files},
        **{name: identity[name] for name in ("trainer", "source", "devices", "objective")},
        "defaults": list(defaults),
        "learning": sorted(learning),
        **more,
    }


def facts(verdict: Verdict, record: dict[str, Any]) -> dict[str, Any]:
    """Give what the search wants to know of a trial: user attribute → fact, where there is one."""
    measured = verdict.value is not None or verdict.status == "pruned"
    return {
        RETRY: verdict.retry,
        WARM: record.get("warm"),
        ERROR: verdict.error,
        MEASURED_ON: record.get("host", {}).get("devices"),
        COST: cost(record) if measured else None,
        FAILURE: None if measured else verdict.status,
        RAN: not measured and mostly_ran(record),
    }
