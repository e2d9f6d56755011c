"""Makes the record of a probe that the database keeps."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from statistics import median

from optuna.trial import FrozenTrial, TrialState

from tuner.kept.probe import INTERRUPTED, KeptProbe
from tuner.probe.metrics import measured
from tuner.probe.plan import ProbePlan
from tuner.probe.result import ProbeResult
from tuner.search.trials import kept
from tuner.search.verdict import Verdict
from tuner.study.launch import launch_digest
from tuner.study.space import Config

_NOT_KEPT = {"score"}
"""The fields of a result that its record leaves out: the score after so short a training means nothing."""


def kept_probe(
    result: ProbeResult, verdict: Verdict, plan: ProbePlan | None, *, launched: bool, folder: Path
) -> KeptProbe:
    """Return what is kept of a probe; a refused config has no plan.

    Paths below the study's `folder` are kept relative to the folder, so that the folder may move.
    """
    return KeptProbe(
        **{name: getattr(result, name) for name in {one.name for one in fields(result)} - _NOT_KEPT},
        digest=launch_digest(result.config),
        status=verdict.status,
        ineligible=verdict.ineligible,
        launched=launched,
        metrics=measured(result),
        agent_config=_within(folder, plan.agent_config) if plan else "",
        base_agent=plan.base_agent if plan else "",
        session_key=plan.session_key if plan and plan.request is not None else None,
        out_dir=_within(folder, str(plan.slot.out_dir)) if plan and launched else "",
    )


def dropped_probe(config: Config) -> KeptProbe:
    """Return what is kept of a probe whose process is gone."""
    return KeptProbe(config=config, digest=launch_digest(config), status=INTERRUPTED, launched=True)


def usual_s(trials: Iterable[FrozenTrial]) -> float | None:
    """Return the median of the seconds that complete probes took; None where no probe's time is known."""
    complete = (kept(one).total_s for one in trials if one.state == TrialState.COMPLETE)
    known = [total_s for total_s in complete if total_s is not None]
    return median(known) if known else None


def _within(folder: Path, path: str) -> str:
    return str(Path(path).relative_to(folder)) if path and Path(path).is_relative_to(folder) else path
