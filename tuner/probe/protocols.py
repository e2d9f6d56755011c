"""The interfaces of the parts that a probe works with: devices, processes, the clock, and what stops a probe.

In a session, one started trainer serves several probes: see `session`.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from tuner.probe.probe_plan import Device, ProbePlan
from tuner.probe.result import DeviceSample, ProbeResult

if TYPE_CHECKING:
    from tuner.probe.count_files import MergedCounts


class Next(Enum):
    """What a probe does next."""

    GO = auto()
    """It goes on."""
    MORE = auto()
    """It goes on beyond its usual iterations, as long as it has time: the value is far from known."""
    LAST_ITERATION = auto()
    """It needs no iteration after the one that runs now, so a session need not start another."""
    ENOUGH = auto()
    """It ends and its value counts, because the value is known well enough."""
    PRUNED = auto()
    """It ends, because it cannot win."""
    OTHER_TRAINING = auto()
    """It ends and its value does not count: the first steps show another training than the person's own."""
    INTERRUPTED = auto()
    """It ends and its value does not count: the user wants to stop, or the time is over."""


class Answer(NamedTuple):
    """The answer of `Stop` to a probe: what it does next."""

    next: Next
    reason: str | None = None
    """Why the probe is given up; None if it is not."""
    next_result_s: float = math.inf
    """The seconds after the first mark from which on the next iteration gives a result, however new the last one is."""


Stop = Callable[[ProbeResult | None], Answer]
"""A probe calls this function with the result so far, and with None at every poll that has no new result.

There is a result after each iteration of the first minute of training, and later each time that the training has become
2 % longer. A result takes longer the more a probe has measured, so one after each iteration would cost too much.
"""


def ending_after_last(stop: Stop) -> Stop:
    """Return a function like `stop` that ends the probe once the iteration that `stop` called the last has ended."""
    runs_last_iteration = False

    def stop_after_last(so_far: ProbeResult | None) -> Answer:
        """Return the answer of `stop`, or `ENOUGH` after the last iteration where `stop` now wants to go on.

        A session may have started no further iteration, so the probe would wait for one in vain. If `stop` ends the
        probe for another reason, such as `PRUNED`, that answer stays.
        """
        nonlocal runs_last_iteration
        answer = stop(so_far)
        if so_far is None:  # no iteration has ended since the last call
            return answer
        if runs_last_iteration and answer.next in {Next.GO, Next.MORE, Next.LAST_ITERATION}:
            return Answer(Next.ENOUGH)
        runs_last_iteration = answer.next is Next.LAST_ITERATION
        return answer

    return stop_after_last


class DeviceSource(Protocol):
    """Reads a fixed list of devices."""

    @property
    def label(self) -> str:
        """The name of what measures utilisation: `nvml`, `process_cpu`, …."""
        ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that are sampled, in rank order."""
        ...

    def attach(self, pid: int) -> None:
        """Set the root process of the probe that starts now; sources that measure whole cards ignore it."""

    def sample(self, t_s: float) -> Sequence[DeviceSample]:
        """Return a sample of every device, taken now; `t_s` becomes the time of the samples.

        Raises DeviceError when a device cannot be sampled now, DeviceLostError when it cannot be sampled any more.
        """
        ...


class Clock(Protocol):
    """Monotonic time in seconds; the real clock has the time base of `time.monotonic`."""

    def now(self) -> float:
        """Return the seconds since an arbitrary point."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLine:
    """One line that the trainer wrote."""

    t_s: float
    """The time on the probe's clock when the line was read."""
    text: str
    stream: Literal["console", "progress"] = "console"


class RunningTrainer(Protocol):
    """A started trainer."""

    pid: int
    """The root process."""

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return the lines since the last call; wait up to `timeout_s` seconds for the first line."""
        ...

    def exit_code(self) -> int | None:
        """Return the root process's exit code, negative for a signal; None while the process runs."""
        ...

    def last_iteration(self, iteration: int) -> None:
        """Announce that no iteration after `iteration` is measured, so that the trainer need not begin another."""

    def release(self) -> int:
        """Wait until the run of a healthy probe has ended, and return the exit code, 0 if its session stays open.

        Harmless to repeat.
        """
        ...

    def end(self) -> int:
        """End every process of the probe (TERM, then KILL), wait for that, and return the exit code.

        The wait for a process that cannot be killed ends after some seconds. Harmless to repeat.
        """
        ...


Launch = Callable[[ProbePlan], RunningTrainer]
"""Writes a plan's files and starts its command, or hands the plan to an open session.

Raises TrainerError when the command cannot start, OutputError when a file cannot be written.
"""


class StartedProcess(RunningTrainer, Protocol):
    """A started trainer that is a process, on this machine or on another. It serves one probe."""

    counts: "MergedCounts"
    """What was counted inside its processes, as far as `lines` has read it."""

    def last_iteration(self, iteration: int) -> None:
        """Do nothing: a plain command takes no requests, and the probe ends it soon after this iteration."""

    def release(self) -> int:
        """Return the exit code, after every process has ended."""
        return self.end()

    @property
    def still_running(self) -> str | None:
        """The processes that still run after `end`; None when there are none."""
        ...


StartProcess = Callable[[ProbePlan], StartedProcess]
"""Starts a plan's command as a process, here or on another machine. Raises the errors of `Launch`."""


class Prober(Protocol):
    """Probes configs: on real devices, or by looking up recorded results."""

    @property
    def open_session(self) -> str | None:
        """The key of the open session; None where no session is open."""
        ...

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        """Return the result of one probe; `stop` may end the probe early.

        Raises OutputError or TrainerError when the tuner's own side fails.
        """
        ...

    def utilisation(self) -> Sequence[float | None]:
        """Return how busy each device was since the last call, in percent; empty if nothing was measured.

        This is for people who watch a probe. The result of a probe does not depend on it.
        """
        ...

    def close(self) -> None:
        """End the open session, if there is one, and wait for it. Harmless to repeat."""


class Recorder(Protocol):
    """Records devices while a probe runs."""

    source: DeviceSource
    """The devices that are sampled."""

    def start(self, pid: int, origin_s: float) -> None:
        """Begin a new recording whose time 0 is `origin_s` on the clock; `pid` is the probe's root process."""

    def samples(self) -> list[DeviceSample]:
        """Return the samples so far; failed samples are left out."""
        ...

    @property
    def lost(self) -> str | None:
        """Why the devices cannot be sampled any more; None while they can."""
        ...

    def stop(self) -> None:
        """End the recording."""


class MonotonicClock:
    """The system's monotonic clock. Trainers use the same clock for the times in their reports."""

    def now(self) -> float:
        """Return the seconds since an arbitrary point in time. The value never decreases."""
        return time.monotonic()
