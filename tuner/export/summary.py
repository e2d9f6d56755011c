"""Summarises a study for people, with one row per case."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.export.bound import Bound, Profile, bound
from tuner.export.query import StudyReader
from tuner.export.records import (
    FINISHED,
    RUNNING,
    CaseRecord,
    Tally,
    status_without_best,
)
from tuner.kept.names import INELIGIBLE
from tuner.kept.probe import INTERRUPTED, OK, PRUNED
from tuner.probe.metrics import SAMPLES_PER_S
from tuner.study.launch import launched
from tuner.study.space import Config

FAR = 1.5
"""A line mentions a config that makes at least this many times the samples/s of the best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The best config of a case."""

    trial: int
    value: float | None
    """The objective."""
    error: float | None
    """The standard error of `value`."""
    readings: int
    """The number of trials of the config. `value` is their mean, and `trial` is the newest of them."""
    config: Config
    """The config without the pruner's patience."""
    samples_per_s: float | None
    vs_default: float | None
    """The ratio of samples/s to the default config at the same rung; None where the default was not measured."""
    changes_learning: tuple[str, ...]
    """The parameters that change what is learnt and whose values differ from the default's."""
    total_batch: float | None = None
    """The samples of one step of the optimizer on all ranks together, where the study says it."""
    beside: "Beside | None" = None
    """What the config measured beside other probes, where it has been measured alone, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """What a config measured while other probes ran on the same machine."""

    value: float
    """The objective."""
    error: float | None
    """The standard error of `value`."""
    readings: int
    """The number of trials. `value` is their mean."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Faster:
    """A config that makes far more samples/s than the best."""

    trial: int
    value: float | None
    """The objective."""
    times: float
    """Its samples/s in multiples of those of the best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseSummary:
    """The state of one case. The counts are numbers of trials."""

    case: str
    status: str
    """`ok` if there is a best; otherwise the commonest failure, `pruned` or `no_trials`."""
    objective: str
    """The first objective."""
    best: Best | None
    ok: int
    pruned: int
    """The trials that the pruner stopped."""
    failed: int
    interrupted: int
    running: int
    measured_on: Mapping[str, int]
    """Devices → the number of trials that they measured, as far as the devices are known."""
    faster: Faster | None = None
    profile: Profile | None = None
    """How busy the parts of the devices were with the best config."""
    bound: Bound | None = None
    """What limits the best config; None where the profile does not tell."""
    probe_s: float = 0.0
    """The seconds of all probes."""
    left_out: int = 0
    """The trials that do not count: another program added them, or their records are damaged."""


def summarise(study: StudyReader) -> list[CaseSummary]:
    """Summarise all cases of a study, in the order of their start."""
    return [_summary(study, case, study.tallies[case.name]) for case in study.cases]


def _summary(study: StudyReader, case: CaseRecord, tallies: Sequence[Tally]) -> CaseSummary:
    best, trial = _best(study, case), study.best.get(case.name)
    profile = Profile.of(trial.metrics, on_gpu=case.kept.source == "nvml") if trial else None
    over = [tally for tally in tallies if tally.state in FINISHED]
    return CaseSummary(
        case=case.name,
        status=OK if best else status_without_best(tallies),
        objective=case.objectives[0],
        best=best,
        ok=sum(tally.trials for tally in over if tally.status in (OK, INELIGIBLE)),
        pruned=sum(tally.trials for tally in over if tally.status == PRUNED),
        failed=sum(tally.trials for tally in over if tally.status not in (OK, INELIGIBLE, PRUNED, INTERRUPTED)),
        interrupted=sum(tally.trials for tally in over if tally.status == INTERRUPTED),
        running=sum(tally.trials for tally in tallies if tally.state == RUNNING),
        left_out=study.left_out[case.name],
        probe_s=sum(tally.probe_s for tally in tallies),
        measured_on=_measured_on(over),
        faster=_faster(study, case, best),
        profile=profile,
        bound=bound(profile) if profile else None,
    )


def _measured_on(tallies: Sequence[Tally]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for tally in tallies:
        if tally.measured_on and tally.status in (OK, INELIGIBLE):
            counts[tally.measured_on] += tally.trials
    return dict(counts)


def _faster(study: StudyReader, case: CaseRecord, best: Best | None) -> Faster | None:
    """Return the fastest config where it makes far more samples/s than the best, unless the study maximises them."""
    trial = None if SAMPLES_PER_S in case.objectives else study.fastest(case)
    if not (trial and trial.probe.samples_per_s and best and best.samples_per_s):
        return None
    times = trial.probe.samples_per_s / best.samples_per_s
    return Faster(trial=trial.number, value=trial.value, times=times) if times >= FAR else None


def _best(study: StudyReader, case: CaseRecord) -> Best | None:
    trial = study.best.get(case.name)
    return trial and Best(
        trial=trial.number,
        value=trial.value,
        error=trial.metrics.get(f"{case.objectives[0]}_se"),
        readings=trial.readings,
        config=launched(dict(trial.config)),
        samples_per_s=trial.probe.samples_per_s,
        vs_default=study.vs_default.get(case.name),
        changes_learning=case.changes_learning(trial.config),
        total_batch=trial.probe.total_batch,
        beside=_beside(study, case),
    )


def _beside(study: StudyReader, case: CaseRecord) -> Beside | None:
    trial = study.beside_others(case)
    if trial is None or trial.value is None:
        return None
    error = trial.metrics.get(f"{case.objectives[0]}_se")
    return Beside(value=trial.value, error=error, readings=trial.readings)
