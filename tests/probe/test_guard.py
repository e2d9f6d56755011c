"""The guard and processes that do not end, in a fake clock's time."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests_replays import FakeClock

from tuner.probe.guard import NAMED_EVERY_S, SLOW_S, Descendants, descendants, end_all, named

GRACE_S = 3.0


class Hanging(Descendants):
    """A process that ignores signals until a given time."""

    def __init__(self, clock: FakeClock, until_s: float) -> None:
        self._clock = clock
        self._until_s = until_s
        self.signals: list[tuple[float, int]] = []
        self.looks = 0

    def signal(self, number: int) -> None:
        self.signals.append((self._clock.now(), number))

    def reap(self) -> bool:
        self.looks += 1
        return self._clock.now() < self._until_s

    def named(self) -> str:
        return "pid 7 (state D)"


def ended(until_s: float) -> tuple[Hanging, list[tuple[float, str]]]:
    clock, said = FakeClock(), list[tuple[float, str]]()
    left = Hanging(clock, until_s)
    end_all(left, GRACE_S, now=clock.now, sleep=clock.advance, write=lambda line: said.append((clock.now(), line)))
    assert clock.now() == pytest.approx(until_s, abs=1.1)
    return left, said


def test_what_ends_at_once_is_not_killed() -> None:
    left, said = ended(0.5)
    assert [number for _, number in left.signals] == [signal.SIGTERM]
    assert said == []


def test_what_dies_soon_of_being_killed_is_not_named() -> None:
    left, said = ended(GRACE_S + SLOW_S - 0.1)
    assert left.signals[1] == (pytest.approx(GRACE_S, abs=0.1), signal.SIGKILL)
    assert said == []


def test_what_nothing_can_kill_is_waited_for_and_named_now_and_then() -> None:
    left, said = ended(GRACE_S + SLOW_S + 2.5 * NAMED_EVERY_S)
    named_s = [GRACE_S + SLOW_S + number * NAMED_EVERY_S for number in range(3)]
    assert [at_s for at_s, _ in said] == pytest.approx(named_s, abs=1.1)
    assert {line for _, line in said} == {"\n[tuner] waiting for what KILL has not ended: pid 7 (state D)\n"}
    assert left.signals[-1][1] == signal.SIGKILL
    assert left.looks < 2000


CUT_NAME = "import sys; open('/proc/self/comm', 'wb').write(b'sim-\\xe3\\x83'); print(); sys.stdin.read()"


@contextmanager
def started(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that has written a line. The process ends with the block."""
    with subprocess.Popen([sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def test_a_name_that_is_cut_in_the_middle_of_a_character_hides_no_process() -> None:
    with started(CUT_NAME) as process:
        assert process.pid in descendants(os.getpid())
        assert f"pid {process.pid} (state " in named(os.getpid())


def test_a_process_of_another_user_keeps_no_other_from_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, sent = list[int](), list[int]()

    def kill(pid: int, number: int) -> None:
        if not refused:
            refused.append(pid)
            raise PermissionError
        sent.append(pid)

    with started("print(); input()") as one, started("print(); input()") as other:
        with monkeypatch.context() as patched:
            patched.setattr(os, "kill", kill)
            Descendants(one).signal(signal.SIGTERM)
        assert {one.pid, other.pid} <= {*refused, *sent}
