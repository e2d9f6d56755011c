"""What a person wants to see of a study at a glance, one row per case."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.export.query import StudyReader
from tuner.export.records import (
    FINISHED,
    INELIGIBLE,
    NO_TRIALS,
    OK,
    PRUNED,
    RUNNING,
    CaseRecord,
    Tally,
    TrialRecord,
    commonest_failure,
)
from tuner.study.space import LADDER


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The best trial of a case."""

    trial: int
    value: float | None
    """Of the objective."""
    num_envs: int | None
    """Per device."""
    variant: str | None
    samples_per_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseSummary:
    """Where one case stands; the counts are of trials."""

    case: str
    status: str
    """`ok` once a probe gave a value, else the commonest failure, or `no_trials`."""
    objective: str
    best: Best | None
    ok: int
    pruned: int
    """Stopped by the pruner."""
    failed: int
    running: int

    @property
    def done(self) -> int:
        """Trials that are over."""
        return self.ok + self.pruned + self.failed


def summarise(study: StudyReader) -> list[CaseSummary]:
    """Summarise every case of a study, in the order in which they were started."""
    return [_summary(case, study.best.get(case.name), study.tallies[case.name]) for case in study.cases]


def _summary(case: CaseRecord, best: TrialRecord | None, tallies: Sequence[Tally]) -> CaseSummary:
    over = [tally for tally in tallies if tally.state in FINISHED]
    return CaseSummary(
        case=case.name,
        status=OK if best else commonest_failure(tallies) or NO_TRIALS,
        objective=case.objective,
        best=_best(best) if best else None,
        ok=sum(tally.trials for tally in over if tally.status in (OK, INELIGIBLE)),
        pruned=sum(tally.trials for tally in over if tally.status == PRUNED),
        failed=sum(tally.trials for tally in over if tally.status not in (OK, INELIGIBLE, PRUNED)),
        running=sum(tally.trials for tally in tallies if tally.state == RUNNING),
    )


def _best(trial: TrialRecord) -> Best:
    return Best(
        trial=trial.number,
        value=trial.value,
        num_envs=trial.config.get(LADDER),
        variant=trial.variant,
        samples_per_s=trial.probe.get("samples_per_s"),
    )
