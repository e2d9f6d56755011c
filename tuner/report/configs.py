"""What each config of a case came to: the measurements of one config pooled. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.export.pooled import pooled
from tuner.export.records import CaseRecord, TrialRecord
from tuner.kept.probe import OK
from tuner.search.front import dominates
from tuner.study.launch import launched
from tuner.study.space import LADDER, Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One measured config of a case, with the mean of its measurements."""

    trial: int
    """The newest of its trials."""
    config: Config
    value: float
    """The first objective."""
    error: float | None
    samples_per_s: float | None
    sm_pct: float | None
    rung: int | None
    mem_share_pct: float | None
    """The largest share of a device's memory in use, in percent."""
    readings: int
    is_warm: bool = False
    """Whether only sessions have measured the config."""
    is_best: bool
    is_eligible: bool
    """Whether the config may be the best."""
    on_front: bool
    """Whether no other eligible config is better in both the objective and samples/s."""


def points(record: CaseRecord, trials: Iterable[TrialRecord], best: Config | None) -> tuple[Point, ...]:
    """Return the measured configs of a case, the largest objective first. `best` is the config of the best, if any.

    Measurements of sessions count only where a config has no measurement of the trainer's plain command.
    """
    groups: dict[frozenset[object], list[TrialRecord]] = {}
    for trial in trials:
        if trial.status == OK and trial.value is not None:
            groups.setdefault(frozenset(launched(dict(trial.config)).items()), []).append(trial)
    means = [
        (pooled(_counting(group)), all(one.probe.ineligible is None for one in group)) for group in groups.values()
    ]
    front = {one.number for one in _front([mean for mean, is_eligible in means if is_eligible])}
    found = (_point(record, mean, best, is_eligible, mean.number in front) for mean, is_eligible in means)
    return tuple(sorted(found, key=lambda one: -one.value))


def _counting(group: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """Return the cold trials, or all; of these, those on as many devices as the newest."""
    chosen = [one for one in group if not one.probe.warm] or group
    return [one for one in chosen if len(one.devices) == len(chosen[-1].devices)]


def _front(means: Sequence[TrialRecord]) -> Iterator[TrialRecord]:
    both = [(one.value or 0.0, one.probe.samples_per_s or 0.0) for one in means]
    for place, one in enumerate(means):
        if not any(dominates(other, both[place]) for other in both):
            yield one


def _point(record: CaseRecord, mean: TrialRecord, best: Config | None, is_eligible: bool, on_front: bool) -> Point:
    config = launched(dict(mean.config))
    rung = config.get(LADDER)
    return Point(
        trial=mean.number,
        config=config,
        value=mean.value or 0.0,
        error=mean.metrics.get(f"{record.objectives[0]}_se"),
        samples_per_s=mean.probe.samples_per_s,
        sm_pct=mean.metrics.get("min_avg_sm"),
        rung=rung if isinstance(rung, int) else None,
        mem_share_pct=memory_share(mean),
        readings=mean.readings,
        is_warm=bool(mean.probe.warm),
        is_best=config == best,
        is_eligible=is_eligible,
        on_front=on_front,
    )


def memory_share(trial: TrialRecord) -> float | None:
    """Return the largest share of a device's memory that a trial used, in percent; None where it is unknown."""
    shares = [
        100.0 * one.mem_peak_mib / one.mem_total_mib
        for one in trial.devices
        if one.mem_peak_mib is not None and one.mem_total_mib
    ]
    return max(shares, default=None)
