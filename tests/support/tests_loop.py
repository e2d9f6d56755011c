"""A study with scripted probes, for tests of the loop."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tests_database import empty_database
from tests_devices import RecordedProbe, ReplayedSource

from tuner.export import CaseView, StudyReader, connect
from tuner.probe import Device, DeviceSummary, Failure, FailureKind, Next, ProbePlan, ProbeResult, Slot, Stop
from tuner.running.events import AutoFixed, AutoStarted, CaseStarted, Event, ProbeEnded, ProbeStarted
from tuner.running.job import Workbench
from tuner.search.standing import Standing
from tuner.store.database import Database
from tuner.study import Case, Config, StudySpec
from tuner.trainers.base import LadderEnd
from tuner.trainers.command import CommandTrainer

DEVICES = tuple(Device(name=f"cuda:{index}", model="x") for index in range(2))
CASE = Case(name="walk")
Kind = TypeVar("Kind", bound=Event)


class WithSessions(CommandTrainer):
    """A command with sessions. All configs of a rung share a session."""

    def session_key(self, case: Case, config: Config) -> str:
        return f"{case.name}/{config['num_envs']}"

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        key = self.session_key(case, config)
        return replace(self.plan(case, config, slot), request={"config": config}, session_key=key)


def spec(**changes: object) -> StudySpec:
    raw = {
        "name": "demo",
        "trainer": {
            "name": "command",
            "options": {"command": "train {num_envs} {agent_variant} {out_dir}", "cases": ["walk", "run"]},
        },
        "space": {"num_envs": {"ladder": [64, 32, 16, 8]}, "agent_variant": {"choices": ["hiutil", "default"]}},
        "search": {"trials": 5, "seeds_per_variant": 2, "sampler": "tpe"},
    }
    return StudySpec.model_validate(raw | changes)


def bench(folder: Path, study: StudySpec) -> Workbench:
    recording = RecordedProbe(devices=DEVICES, samples=(), marks_s=(), total_s=0.0, exit_code=0)
    return Workbench(
        spec=study,
        requested_study="demo",
        trainer=CommandTrainer(study.trainer),
        source=ReplayedSource(recording),
        folder=folder / "demo",
        variables={},
    )


class SmallBuffer(CommandTrainer):
    """A trainer that can run only so many environments in the named cases."""

    most = 0
    only: tuple[str, ...] = ()

    def ladder_end(self, case: Case) -> LadderEnd | None:
        if self.only and case.name not in self.only:
            return None
        return LadderEnd(num_envs=self.most, reason="its buffer is small; buy another")


def bounded(bench: Workbench, most: int, *only: str) -> Workbench:
    """Return the bench with a trainer that runs at most `most` environments, in all cases or in the named ones."""
    trainer = SmallBuffer(bench.spec.trainer)
    trainer.most, trainer.only = most, only
    return replace(bench, trainer=trainer)


class Quiet:
    """A listener that remembers the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def told_status(self) -> list[str]:
        return [event.status for event in self.of(ProbeEnded)]

    @property
    def launched(self) -> list[Config]:
        return [event.config for event in self.of(ProbeStarted)]

    @property
    def calibrated(self) -> list[str]:
        """The parameters for which small probes began."""
        return [event.parameter for event in self.of(AutoStarted)]

    @property
    def fixed(self) -> list[tuple[int, ...]]:
        """The values of each parameter that was `auto`."""
        return [event.values for event in self.of(AutoFixed)]

    @property
    def taken_back(self) -> tuple[int, int]:
        """How many trials were saved, and how many are to be repeated, when the last case began."""
        begun = self.of(CaseStarted)[-1]
        return begun.saved, begun.to_repeat


def measured(plan: ProbePlan, util_pct: float) -> ProbeResult:
    devices = tuple(DeviceSummary(device=device.name, source="nvml", util_mean_pct=util_pct) for device in DEVICES)
    return ProbeResult(
        config=plan.config,
        plan_digest=plan.digest,
        started_at="2026-01-01T00:00:00+00:00",
        total_s=20.0,
        window_s=10.0,
        iterations=7,
        devices=devices,
    )


def failed(plan: ProbePlan, kind: FailureKind, detail: str = "because") -> ProbeResult:
    return replace(
        measured(plan, 0.0), devices=(), window_s=None, failure=Failure(kind=kind, rule="test", detail=detail)
    )


def busy(plan: ProbePlan, stop: Stop) -> ProbeResult:
    return measured(plan, float(plan.config["num_envs"]))


def watched(result: ProbeResult, stop: Stop) -> ProbeResult:
    """Call `stop` with the result after each iteration, and return the result where it stops."""
    for iteration in range(1, result.iterations + 1):
        so_far = replace(result, iterations=iteration)
        if (answer := stop(so_far)).next is Next.PRUNED:
            return replace(so_far, stopped=answer.reason)
        if answer.next is Next.ENOUGH:
            return so_far
    return result


@contextmanager
def opened(folder: Path) -> Iterator[Database]:
    folder.mkdir(exist_ok=True)
    file = folder / "study.db"
    if not file.exists():
        file.write_bytes(empty_database())
    database = Database(f"sqlite:///{file}")
    try:
        yield database
    finally:
        database.close()


def reader(folder: Path, study: str = "demo") -> StudyReader:
    return StudyReader(connect(f"sqlite:///{folder / 'study.db'}"), study)


def view(folder: Path, case: str = "walk", study: str = "demo") -> CaseView:
    """Return what the trials of a case come to."""
    found = reader(folder, study).case(case)
    assert found is not None
    return found


def best(folder: Path, case: str = "walk", study: str = "demo") -> Standing:
    """Return the best config of a case, which has one."""
    found = view(folder, case, study).best
    assert found is not None
    return found


def states(folder: Path, study: str = "demo") -> dict[str, int]:
    return dict(Counter(trial.state for trial in reader(folder, study).trials()))
