"""What a report says about a study, gathered from the database and from the probes' folders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.export.case import CaseSummary, CaseView, summary
from tuner.export.query import StudyReader
from tuner.kept.race import KeptRun
from tuner.kept.trial import KeptTrial, pooled
from tuner.probe.kinds import FailureKind
from tuner.probe.out_dir import folder_of
from tuner.probe.series import Series, read_series
from tuner.report.effects import Effect, effects
from tuner.report.failures import Failed, failures
from tuner.report.memory import MemoryLine, memory_line
from tuner.report.spending import Spent, Step, found_at, spent, steps, waited
from tuner.search.standing import Standing, of_both
from tuner.study.space import rung_of

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
    best: Standing | None
    points: tuple[Standing, ...]
    """The measured configs, the best objective first."""
    front: frozenset[str]
    """The eligible configs that no other one beats in both the objective and samples/s, by `Standing.launch`."""
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

    def is_best(self, point: Standing) -> bool:
        """Return whether a measured config is the best."""
        return self.best is not None and point.launch == self.best.launch

    def on_front(self, point: Standing) -> bool:
        """Return whether no other eligible config beats a measured config in both the objective and samples/s."""
        return point.launch in self.front


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
    cases = tuple(_case(view, folder) for view in reader.cases)
    begun = {view.name for view in reader.cases}
    waiting = None if trainable is None else tuple(name for name in trainable if name not in begun)
    return StudyFacts(name=reader.study, cases=cases, waiting=waiting, machine=_machine(reader.trials()))


def _case(view: CaseView, folder: Path) -> CaseFacts:
    trials, best, devices = view.trials, view.best, max(1, len(view.kept.devices))
    ladder = view.kept.ladder
    newest = pooled(best.trials) if best else None
    measured, found = tuple(sorted(view.configs, key=lambda one: -one.value)), found_at(trials, best)
    walked = steps(trials, devices)
    series = _series(newest, folder)
    failed = tuple(failures(trials, folder))
    return CaseFacts(
        summary=summary(view),
        method=view.method,
        objective=view.objectives[0],
        devices=tuple(view.kept.devices),
        trainer=view.kept.trainer_name or "",
        headroom_pct=newest.metrics.get("headroom_pct") if newest else None,
        mem_peak_mib=newest.metrics.get("mem_peak_mib") if newest else None,
        best=best,
        points=measured,
        front=frozenset(one.launch for one in of_both(measured)),
        steps=walked,
        out_of_memory=_out_of_memory(trials, ladder),
        memory=memory_line(measured, best, ladder),
        effects=tuple(effects(measured, best)),
        found=next((step for step in walked if step.trial == found), None),
        spent=tuple(spent(trials, devices, found)),
        waited=waited(trials, devices),
        failures=failed,
        series=series,
        race=view.race,
        why_ended=view.facts.ended,
        missing=tuple(_missing(newest, series, failed, measured)),
    )


def _series(best: KeptTrial | None, folder: Path) -> Series | None:
    probe = folder_of(folder, best.probe.out_dir) if best else None
    return read_series(probe) if probe else None


def _out_of_memory(trials: Iterable[KeptTrial], ladder: str | None) -> tuple[int, ...]:
    failed = (rung_of(trial.config, ladder) for trial in trials if trial.status == FailureKind.GPU_OOM)
    return tuple(sorted({rung for rung in failed if rung is not None}))


def _missing(
    best: KeptTrial | None, series: Series | None, failed: Iterable[Failed], measured: Sequence[Standing]
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


def _machine(trials: Iterable[KeptTrial]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for trial in trials:
        for name, fact in trial.probe.host.items():
            if name != _NAME:
                found.setdefault(name, {})[fact] = None
    return {name: tuple(facts) for name, facts in found.items()}
