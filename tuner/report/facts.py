"""What a report says about a study, gathered from the database and from the probes' folders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.export.facts import reasons_to_end
from tuner.export.query import StudyReader
from tuner.export.records import CaseRecord, TrialRecord
from tuner.export.summary import CaseSummary, summarise
from tuner.kept.race import KeptRun
from tuner.probe.kinds import FailureKind
from tuner.probe.out_dir import folder_of
from tuner.probe.series import Series, read_series
from tuner.report.configs import Point, points
from tuner.report.effects import Effect, effects
from tuner.report.failures import Failed, failures
from tuner.report.memory import MemoryLine, memory_line
from tuner.report.spending import Spent, Step, found_at, spent, steps, waited
from tuner.study.launch import launched
from tuner.study.space import LADDER

_NAME = "name"
"""The key of a probe's host that names the machine itself."""


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
    mem_peak_mib: float | None
    """The largest memory of a device that the best used."""
    default: Point | None
    """The default config of the best's rung, where it was measured."""
    points: tuple[Point, ...]
    """The measured configs, the best objective first."""
    steps: tuple[Step, ...]
    out_of_memory: tuple[int, ...]
    """The rungs that ran out of device memory."""
    memory: MemoryLine | None
    effects: tuple[Effect, ...]
    found: Step | None
    """The step that first measured the best."""
    spent: tuple[Spent, ...]
    waited: Spent
    failures: tuple[Failed, ...]
    series: Series | None
    """What the devices of the best's newest probe showed over time."""
    race: tuple[KeptRun, ...]
    """The runs of the case's race."""
    why_ended: str | None
    """Why nothing was left that is worth a probe."""
    missing: tuple[str, ...]
    """What the report could not find."""

    @property
    def whole_s(self) -> float:
        """The device-seconds of all probes."""
        return sum(one.whole_s for one in self.spent)


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyFacts:
    """What a report says about a study."""

    name: str
    cases: tuple[CaseFacts, ...]
    waiting: tuple[str, ...] | None
    """The study's trainable cases without a trial so far; None where nobody knows the trainer's cases."""
    machine: dict[str, tuple[str, ...]]
    """Fact about the machines that measured → its values, the name of the machine left out."""


def gather(reader: StudyReader, folder: Path, trainable: Iterable[str] | None = None) -> StudyFacts:
    """Return the facts of every case that has begun; `folder` is the study's folder.

    `trainable` are the trainable cases of the study, where the trainer is there to name them. Raises StoreError where
    there is no study.
    """
    trials: dict[str, list[TrialRecord]] = {}
    for trial in reader.trials():
        trials.setdefault(trial.case, []).append(trial)
    records = {record.name: record for record in reader.cases}
    ended = reasons_to_end(reader.engine, reader.study)
    cases = [
        _case(reader, records[row.case], row, trials.get(row.case, []), folder=folder, why_ended=ended.get(row.case))
        for row in summarise(reader)
    ]
    machine = _machine(trial for of_case in trials.values() for trial in of_case)
    waiting = None if trainable is None else tuple(name for name in trainable if name not in records)
    return StudyFacts(name=reader.study, cases=tuple(cases), waiting=waiting, machine=machine)


def _case(
    reader: StudyReader,
    record: CaseRecord,
    summary: CaseSummary,
    trials: Sequence[TrialRecord],
    *,
    folder: Path,
    why_ended: str | None,
) -> CaseFacts:
    best, devices = reader.best.get(record.name), max(1, len(record.kept.devices))
    config = launched(dict(best.config)) if best else None
    measured, found = points(record, trials, config), found_at(trials, config)
    walked = steps(trials, devices, record.objectives[0])
    series = _series(best, folder)
    failed = tuple(failures(trials, folder))
    return CaseFacts(
        summary=summary,
        method=record.method,
        objective=record.objectives[0],
        devices=tuple(record.kept.devices),
        trainer=record.kept.trainer_name or "",
        headroom_pct=best.metrics.get("headroom_pct") if best else None,
        mem_peak_mib=best.metrics.get("mem_peak_mib") if best else None,
        default=_default(record, measured, best),
        points=measured,
        steps=walked,
        out_of_memory=_out_of_memory(trials),
        memory=memory_line(measured),
        effects=tuple(effects(measured)),
        found=next((step for step in walked if step.trial == found), None),
        spent=tuple(spent(trials, devices, found)),
        waited=waited(trials, devices),
        failures=failed,
        series=series,
        race=reader.races.get(record.name, ()),
        why_ended=why_ended,
        missing=tuple(_missing(best, series, failed, measured)),
    )


def _default(record: CaseRecord, measured: Iterable[Point], best: TrialRecord | None) -> Point | None:
    default = launched(dict(record.default_at(best.config.get(LADDER)))) if best else None
    return next((one for one in measured if default and one.config == default), None)


def _series(best: TrialRecord | None, folder: Path) -> Series | None:
    probe = folder_of(folder, best.probe.out_dir) if best else None
    return read_series(probe) if probe else None


def _out_of_memory(trials: Iterable[TrialRecord]) -> tuple[int, ...]:
    failed = (trial.config.get(LADDER) for trial in trials if trial.status == FailureKind.GPU_OOM)
    return tuple(sorted({rung for rung in failed if isinstance(rung, int)}))


def _missing(
    best: TrialRecord | None, series: Series | None, failed: Iterable[Failed], measured: Sequence[Point]
) -> Iterable[str]:
    if not measured:
        yield "no trial has given a number yet"
    if best and series is None:
        where = best.probe.out_dir or "its folder"
        yield f"what the devices of the best's probe showed over time: there is no series in {where}"
    for one in failed:
        if one.excerpt is None:
            yield f"a console log of {one.kind}: the folders of these probes are not here any more"
    on_cards = best is not None and any(device.device.startswith("cuda") for device in best.devices)
    if on_cards and all(point.sm_pct is None for point in measured):
        yield "the activity of multiprocessors: these devices do not report it"


def _machine(trials: Iterable[TrialRecord]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for trial in trials:
        for name, fact in trial.probe.host.items():
            if name != _NAME:
                found.setdefault(name, {})[fact] = None
    return {name: tuple(facts) for name, facts in found.items()}
