"""What is kept of a trial and of a case: one packed JSON attribute each, which the exporters read."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tuner.probe.metrics import measured
from tuner.probe.plan import ProbePlan
from tuner.probe.result import ProbeResult
from tuner.search.verdict import Verdict
from tuner.study.cases import Case
from tuner.study.space import config_digest

PROBE = "probe"
"""Trial attribute: the whole probe."""
CASE = "case"
"""Study attribute: the case."""
IDENTITY = "identity"
"""Study attribute: what must not change while the study goes on."""
LEASE = "lease"
"""Trial attribute: who runs it."""


def probe_record(result: ProbeResult, verdict: Verdict, plan: ProbePlan | None, *, launched: bool) -> dict[str, Any]:
    """Pack a probe: config, status, failure, metrics, devices, times and files; a refused config has no plan."""
    return {
        **asdict(result),
        "digest": config_digest(result.config),
        "status": verdict.status,
        "launched": launched,
        "metrics": measured(result),
        "agent_config": plan.agent_config if plan else "",
        "base_agent": plan.base_agent if plan else "",
        "out_dir": str(plan.slot.out_dir) if plan and launched else "",
    }


def case_record(case: Case, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Pack a case: what the manifest shows and what its values were measured with."""
    return {
        "case": case.name,
        "method": case.method,
        "mode": case.mode,
        **{name: case.options.get(name, "") for name in ("agent_config", "env_config", "engine_config")},
        **{name: identity[name] for name in ("trainer", "source", "devices", "objective")},
    }
