"""What a report says about a study, gathered from the database and from the probes' folders."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.export.query import StudyReader
from tuner.export.records import CaseRecord, TrialRecord
from tuner.export.summary import CaseSummary, summarise
from tuner.kept.probe import INTERRUPTED, OK, PRUNED
from tuner.probe.kinds import FailureKind
from tuner.search.front import dominates
from tuner.search.trials import launched
from tuner.study.space import LADDER, Config

EXCERPT_LINES = 12
EXCERPT_BYTES = 4096
"""The end of a console log that is read for a failure's excerpt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One measured config of a case."""

    trial: int
    config: Config
    value: float
    error: float | None
    samples_per_s: float | None
    rung: int | None
    mem_share_pct: float | None
    """The largest share of a device's memory in use, in percent."""
    ended_s: float
    """The device-seconds that all trials up to this one took."""
    is_best: bool
    on_front: bool
    """Whether no other config is better in both the objective and samples/s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """The failures of one kind in a case."""

    kind: str
    trials: int
    detail: str
    excerpt: str | None
    """The last lines of one console log; None where the log is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseFacts:
    """What a report says about one case."""

    summary: CaseSummary
    method: str
    objective: str
    devices: tuple[str, ...]
    trainer: str
    headroom_pct: float | None
    """The share of memory that the best leaves free, in percent."""
    points: tuple[Point, ...]
    spent_s: dict[str, float]
    """What device-seconds were spent on → seconds."""
    failures: tuple[Failed, ...]
    host: dict[str, str]


def gather(reader: StudyReader, folder: Path) -> list[CaseFacts]:
    """Return the facts of every case; `folder` is the study's folder. Raises StoreError where there is no study."""
    trials: dict[str, list[TrialRecord]] = {}
    for trial in reader.trials():
        trials.setdefault(trial.case, []).append(trial)
    records = {record.name: record for record in reader.cases}
    return [_case(reader, records[row.case], row, trials.get(row.case, []), folder) for row in summarise(reader)]


def _case(
    reader: StudyReader, record: CaseRecord, summary: CaseSummary, trials: Sequence[TrialRecord], folder: Path
) -> CaseFacts:
    best = reader.best.get(record.name)
    measured = [trial for trial in trials if trial.status == OK and trial.value is not None]
    return CaseFacts(
        summary=summary,
        method=record.method,
        objective=record.objectives[0],
        devices=tuple(record.kept.devices),
        trainer=record.kept.trainer_name or "",
        headroom_pct=best.metrics.get("headroom_pct") if best else None,
        points=_points(record, trials, measured, launched(dict(best.config)) if best else None),
        spent_s=spent_s(trials, max(1, len(record.kept.devices))),
        failures=tuple(_failures(trials, folder)),
        host=dict(trials[-1].probe.host) if trials else {},
    )


def _points(
    record: CaseRecord, trials: Sequence[TrialRecord], measured: Sequence[TrialRecord], best: Config | None
) -> tuple[Point, ...]:
    devices, so_far, ends = max(1, len(record.kept.devices)), 0.0, dict[int, float]()
    for trial in trials:
        so_far += (trial.probe.total_s or 0.0) * devices
        ends[trial.number] = so_far
    both = [(trial.value or 0.0, trial.probe.samples_per_s or 0.0) for trial in measured]
    return tuple(
        Point(
            trial=trial.number,
            config=launched(dict(trial.config)),
            value=trial.value or 0.0,
            error=trial.metrics.get(f"{record.objectives[0]}_se"),
            samples_per_s=trial.probe.samples_per_s,
            rung=int(trial.config[LADDER]) if LADDER in trial.config else None,
            mem_share_pct=_memory_share(trial),
            ended_s=ends[trial.number],
            is_best=launched(dict(trial.config)) == best,
            on_front=not any(dominates(other, both[place]) for other in both),
        )
        for place, trial in enumerate(measured)
    )


def _memory_share(trial: TrialRecord) -> float | None:
    shares = [
        100.0 * one.mem_peak_mib / one.mem_total_mib
        for one in trial.devices
        if one.mem_peak_mib is not None and one.mem_total_mib
    ]
    return max(shares, default=None)


def spent_s(trials: Iterable[TrialRecord], devices: int) -> dict[str, float]:
    """Return what device-seconds were spent on: start-up, window, other training, and failures by kind. Pure."""
    spent: defaultdict[str, float] = defaultdict(float)
    for trial in trials:
        probe = trial.probe
        whole = (probe.total_s or 0.0) * devices
        if trial.status not in {OK, PRUNED}:
            spent[str(trial.status or "still running")] += whole
            continue
        start_up = min((probe.start_up_s or 0.0) * devices, whole)
        window = min((probe.window_s or 0.0) * devices, whole - start_up)
        spent["start-up"] += start_up
        spent["window" if trial.status == OK else "window of pruned probes"] += window
        spent["warm-up and end"] += whole - start_up - window
    return {name: seconds for name, seconds in sorted(spent.items(), key=lambda one: -one[1]) if seconds > 0.0}


def _failures(trials: Sequence[TrialRecord], folder: Path) -> Iterable[Failed]:
    kinds = {kind.value for kind in FailureKind} - {INTERRUPTED}
    failed = [trial for trial in trials if trial.status in kinds and trial.probe.failure]
    for kind, count in Counter(trial.status for trial in failed).most_common():
        example = next(trial for trial in reversed(failed) if trial.status == kind)
        detail = example.probe.failure.detail if example.probe.failure else ""
        yield Failed(kind=str(kind), trials=count, detail=detail, excerpt=_excerpt(folder, example.probe.out_dir))


def _excerpt(folder: Path, out_dir: str | None) -> str | None:
    """Return the last lines of a probe's console log; None where it cannot be read."""
    if not out_dir:
        return None
    try:
        with (folder / out_dir / "console.log").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - EXCERPT_BYTES))
            lines = file.read(EXCERPT_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return None
    return "\n".join(lines[-EXCERPT_LINES:])
