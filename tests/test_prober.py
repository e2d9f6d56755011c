"""The real prober over a real session: what it keeps open, what it ends, and what it waits for."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from threading import Event
from time import sleep
from typing import ClassVar

import psutil
import pytest
from tests_cli import study_file
from tests_counts import COUNTED_TRAINING
from tests_devices import FakeGpu, FakeNvml
from tests_replays import never, scripted_plan
from tests_session_peer import PEER

from tuner.devices.cards import LEAK_MIB, Cards, Occupancy
from tuner.devices.drivers import Nvml, NvmlSource
from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.output import USUAL_BOUNDS, Bounds
from tuner.probe.probe_plan import Answer, Device, MonotonicClock, Next, ProbePlan, Stop
from tuner.probe.process import Process, Sessions
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.job import open_workbench
from tuner.running.prober import RealProber
from tuner.study.spec import ProbeSpec


class Limits(ProbeSpec):
    """Limits of a probe that takes milliseconds."""

    grace_seconds: ClassVar = 10.0
    idle_seconds: ClassVar = 0.01
    iterations: int = 5
    window_seconds: float = 0.05
    max_seconds: float = 60


class Strict(Limits):
    """Limits for faults. A busy machine cannot make a fault look healthy within them."""

    grace_seconds: ClassVar = 0.4


LIMITS, STRICT = Limits(), Strict()
FREE = Occupancy(
    device=Device(name="cuda:0", model="card", uuid="GPU-a", mem_total_mib=24_000.0), mem_used_mib=600.0, util_pct=0.0
)

Probe = Callable[..., ProbeResult]


@pytest.fixture
def said() -> list[str]:
    """The lines that the prober shows the user."""
    return []


class Card:
    """A card with scripted memory use. Each look takes the next answer, and the last answer stays."""

    def __init__(self) -> None:
        self.answers: list[float | DeviceError] = [600.0]

    def occupied(self) -> list[Occupancy]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, DeviceError):
            raise answer
        return [replace(FREE, mem_used_mib=answer)]


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def bounds() -> Bounds:
    """Return the usual times that a process has to end. Tests of a process that never ends take shorter times."""
    return USUAL_BOUNDS


@pytest.fixture
def prober(tmp_path: Path, card: Card, said: list[str], bounds: Bounds) -> Iterator[RealProber]:
    source, clock = open_workbench(str(study_file(tmp_path)), devices="cpu:1").source, MonotonicClock()
    sessions = Sessions(clock, partial(Process, clock=clock, bounds=bounds))
    prober = RealProber(source, occupied=card.occupied, sessions=sessions, clock=clock, sleep=sleep, say=said.append)
    yield prober
    prober.close()
    assert psutil.Process().children(recursive=True) == []


@pytest.fixture
def probe(prober: RealProber, tmp_path: Path) -> Probe:
    """Probe once, warm by default, each time in a new out dir."""
    numbers = iter(range(100))

    def once(fault: str = "none", *, key: str = "small", warm: bool = True) -> ProbeResult:
        limits = LIMITS if fault == "none" else STRICT
        blank = scripted_plan(tmp_path / str(next(numbers)), [Device(name="cpu:0", model="x")], limits)
        request = {"config": {"fault": fault}, "iterations": 1000, "iteration_s": 0.02}
        serving: ProbePlan = replace(
            blank,
            argv=(sys.executable, str(PEER)),
            cwd=tmp_path,
            session_key=key,
            request=request,
        )
        return prober(serving if warm else replace(serving, argv=("true",), request=None), never)

    return once


def test_a_session_stays_open_for_the_next_plan_of_its_key(prober: RealProber, probe: Probe) -> None:
    first, second = probe(), probe()
    assert first.ok
    assert second.ok
    assert (first.warm, second.warm, second.ready_s) == (True, True, 0.0)
    assert prober.open_session == "small"


def test_another_key_and_a_cold_plan_end_it(prober: RealProber, probe: Probe) -> None:
    probe()
    assert probe(key="large").ready_s != 0.0
    assert prober.open_session == "large"
    cold = probe(warm=False)
    assert (cold.warm, cold.ready_s, prober.open_session) == (False, None, None)


def test_a_failure_ends_it_and_says_that_it_was_warm(prober: RealProber, probe: Probe) -> None:
    probe()
    failed = probe("out_of_memory")
    assert failed.failure is not None
    assert (failed.failure.kind, failed.warm) == (FailureKind.GPU_OOM, True)
    assert prober.open_session is None
    assert probe().ok


def test_a_session_that_leaks_is_ended(prober: RealProber, probe: Probe, card: Card) -> None:
    card.answers = [600.0, 5000.0, 5000.0 + LEAK_MIB, 5001.0 + LEAK_MIB]
    kept = []
    for _ in range(3):
        assert probe().ok
        kept.append(prober.open_session)
    assert kept == ["small", "small", None]


def test_cards_that_do_not_answer_between_two_runs_cost_the_session_and_no_result(
    prober: RealProber, probe: Probe, card: Card
) -> None:
    card.answers = [600.0, DeviceError("cuda:0 does not answer"), 600.0]
    assert probe().ok
    assert prober.open_session is None
    assert probe().ok


def test_a_card_that_is_lost_between_two_probes_is_a_failure(prober: RealProber, probe: Probe, card: Card) -> None:
    card.answers = [DeviceLostError("cuda:0 is gone")]
    lost = probe()
    assert lost.failure is not None
    assert (lost.failure.kind, lost.failure.detail, lost.launched) == (FailureKind.GPU_LOST, "cuda:0 is gone", False)


def test_the_memory_of_the_open_session_keeps_nobody_waiting(prober: RealProber, probe: Probe, card: Card) -> None:
    card.answers = [600.0, 5000.0]
    assert probe().ok
    assert probe().ok
    busy = probe(key="large")
    assert busy.failure is not None
    assert (busy.failure.kind, busy.launched) == (FailureKind.GPU_BUSY, False)


class Hang(Event):
    """The event that a hanging NVML call waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.over = Event(), Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.set()
        ended = super().wait(60.0)
        self.over.set()
        return ended


@pytest.fixture
def hang() -> Iterator[Hang]:
    hang = Hang()
    yield hang
    hang.set()


@pytest.fixture
def cards() -> tuple[FakeGpu, FakeGpu]:
    return FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")


Endless = Callable[[Stop], ProbeResult]


@pytest.fixture
def endless(tmp_path: Path, cards: tuple[FakeGpu, FakeGpu]) -> Iterator[Endless]:
    """Probe a session on two cards. Its run ends only when the tuner ends it."""
    library = FakeNvml(*cards)
    source = NvmlSource(Nvml(library, answer_s=1.0), [card.uuid for card in cards])
    occupied = Cards(source.devices, connect=lambda: Nvml(library, answer_s=1.0)).occupancy
    clock = MonotonicClock()
    prober = RealProber(source, occupied=occupied, sessions=Sessions(clock), clock=clock, sleep=sleep)
    limits = LIMITS.model_copy(update={"iterations": 10_000, "sample_seconds": 0.01, "max_seconds": 120})
    serving = replace(
        scripted_plan(tmp_path / "endless", source.devices, limits),
        argv=(sys.executable, str(PEER)),
        cwd=tmp_path,
        request={"config": {"fault": "none"}, "iterations": 100_000, "iteration_s": 0.02},
    )
    yield lambda stop: prober(serving, stop)
    prober.close()
    assert psutil.Process().children(recursive=True) == []


def test_a_card_that_hangs_ends_the_probe_as_lost(endless: Endless, cards: tuple[FakeGpu, FakeGpu], hang: Hang) -> None:
    def stop(so_far: ProbeResult | None) -> Answer:
        if so_far:
            cards[1].hangs["nvmlDeviceGetPowerUsage"] = hang
        return Answer(Next.GO)

    lost = endless(stop)
    assert lost.failure is not None
    assert (lost.failure.kind, lost.failure.rule) == (FailureKind.GPU_LOST, "unreadable")
    assert lost.failure.detail.startswith("cuda:1 does not answer nvmlDeviceGetPowerUsage: the call hangs")
    assert lost.iterations > 0
    assert not hang.over.is_set()


def test_a_probe_ends_on_request_while_a_card_hangs(
    endless: Endless, cards: tuple[FakeGpu, FakeGpu], hang: Hang
) -> None:
    def stop(so_far: ProbeResult | None) -> Answer:
        cards[0].hangs["nvmlDeviceGetUtilizationRates"] = hang
        return Answer(Next.INTERRUPTED) if hang.reached.is_set() else Answer(Next.GO)

    stopped = endless(stop)
    assert stopped.failure is not None
    assert stopped.failure.kind is FailureKind.INTERRUPTED
    assert not hang.over.is_set()


IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("bounds", [Bounds(term_grace_s=1000, kill_s=-999.5)], ids=["given up long before KILL"])
def test_no_probe_starts_beside_one_that_cannot_be_ended_and_the_user_hears_of_it(
    prober: RealProber, probe: Probe, said: list[str], tmp_path: Path
) -> None:
    hanging = scripted_plan(tmp_path / "hanging", [Device(name="cpu:0", model="x")], LIMITS)

    def stop(_: ProbeResult | None) -> Answer:
        return Answer(Next.INTERRUPTED) if "up" in hanging.slot.console.read_text() else Answer(Next.GO)

    prober(replace(hanging, argv=(sys.executable, "-c", IGNORES_TERM)), stop)
    (guard,) = psutil.Process().children()
    (trainer,) = guard.children()
    left = rf"pid {trainer.pid} \(state \w\)"
    (told,) = said
    assert re.fullmatch(f"{left} outlives its probe and cannot be killed; no other probe starts before .*", told)
    refused = probe(warm=False)
    assert refused.failure is not None
    assert (refused.failure.kind, refused.launched) == (FailureKind.GPU_BUSY, False)
    assert re.match(f"{left} of an earlier probe cannot be killed; waited ", refused.failure.detail)
    trainer.kill()
    guard.wait(60)
    assert probe().ok
    assert len(said) == 1


def test_checkpoints_of_a_command_s_probe_do_not_stay(prober: RealProber, tmp_path: Path) -> None:
    plan = scripted_plan(tmp_path / "0", [Device(name="cpu:0", model="x")], LIMITS)
    saved, table = plan.slot.out_dir / "epochs/last.pt", plan.slot.out_dir / "log.csv"
    code = f"from pathlib import Path; p = Path({str(saved)!r}); p.parent.mkdir(); p.write_bytes(bytes(2 << 20)); "
    code += f"Path({str(table)!r}).write_text('1')"
    prober(replace(plan, argv=(sys.executable, "-c", code), protects_files=True), never)
    assert (saved.exists(), table.exists()) == (False, True)


def test_the_user_hears_once_of_saves_where_nothing_is_protected(
    prober: RealProber, tmp_path: Path, said: list[str]
) -> None:
    outside, gone = tmp_path / "models", tmp_path / "gone"
    outside.mkdir()
    for number in range(2):
        plan = scripted_plan(tmp_path / f"project{number}", [Device(name="cpu:0", model="x")], LIMITS)
        unreadable = "/" + 300 * "x"  # a name that is too long stands for a folder of another user
        training = replace(COUNTED_TRAINING, saves_to=(str(plan.cwd / "runs"), str(outside), str(gone), unreadable))
        message = json.dumps({"type": "training", "counts": asdict(training)})
        code = f"open({str(plan.slot.progress)!r}, 'a').write({message + chr(10)!r})"
        prober(replace(plan, argv=(sys.executable, "-c", code), protects_files=True), never)
    assert [text.partition(",")[0] for text in said] == [f"the training saves into {outside}"]
