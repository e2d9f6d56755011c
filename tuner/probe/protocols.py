"""What the probe needs from the rooms above it: devices, a started process, a clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tuner.probe.plan import Device, ProbePlan
from tuner.probe.result import DeviceSample, ProbeResult
from tuner.probe.stop import Stop


class DeviceSource(Protocol):
    """Reads a fixed list of devices."""

    @property
    def label(self) -> str:
        """What measures utilisation: `nvml`, `process_cpu`, …."""
        ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices read, in rank order."""
        ...

    def attach(self, pid: int) -> None:
        """Say which process is the root of the probe that starts now; sources that measure whole cards ignore it."""
        ...

    def sample(self, t_s: float) -> Sequence[DeviceSample]:
        """Read every device once, stamping the readings with `t_s`.

        Raises DeviceError when one cannot be read now, DeviceLostError when it never will be.
        """
        ...


class Clock(Protocol):
    """Monotonic time in seconds; the same time base as `time.monotonic` where real."""

    def now(self) -> float:
        """Seconds since an arbitrary point."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line that the trainer wrote."""

    t_s: float
    """On the probe's clock, when the line was read."""
    text: str
    stream: Literal["console", "progress"] = "console"


class RunningTrainer(Protocol):
    """A started trainer."""

    @property
    def pid(self) -> int:
        """The root process."""
        ...

    def lines(self, timeout_s: float) -> list[Line]:
        """Give the lines that came since the last call, waiting up to `timeout_s` for the first one."""
        ...

    def exit_code(self) -> int | None:
        """The root process's exit code, negative for a signal; None while it runs."""
        ...

    def last_iteration(self, iteration: int) -> None:
        """Say that no iteration after this one will be measured, so that none need be begun."""
        ...

    def release(self) -> int:
        """End this probe's run, which is in good health: what serves it may stay for the next one.

        Gives the exit code, 0 where a session goes on. Harmless to repeat.
        """
        ...

    def end(self) -> int:
        """End every process of the probe (TERM, then KILL) and wait for it; give the exit code. Harmless to repeat.

        One that nothing can kill is given up after some seconds.
        """
        ...


class Launch(Protocol):
    """Starts a plan's command with its files written."""

    def __call__(self, plan: ProbePlan) -> RunningTrainer:
        """Start it. Raises TrainerError when the command cannot start, OutputError when a file cannot be written."""
        ...


class StartedProcess(RunningTrainer, Protocol):
    """A started trainer that is a process, here or elsewhere."""

    @property
    def left(self) -> str | None:
        """Name the processes that have outlived `end`; None when there are none."""
        ...


class StartProcess(Protocol):
    """Starts a plan's command as a process: the seam through which a probe may run on another machine."""

    def __call__(self, plan: ProbePlan) -> StartedProcess:
        """Start it; raises as `Launch` does."""
        ...


class Prober(Protocol):
    """Probes for real, or looks up what was recorded."""

    @property
    def open_session(self) -> str | None:
        """The key of the session that is open, if one is."""
        ...

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        """Probe once; `stop` may end the probe early.

        Raises OutputError or TrainerError when the tuner's own side fails.
        """
        ...

    def close(self) -> None:
        """End the open session, if there is one, and wait for it. Harmless to repeat."""
        ...


class Recorder(Protocol):
    """Records devices while a probe runs."""

    @property
    def source(self) -> DeviceSource:
        """What is read."""
        ...

    def start(self, pid: int, origin_s: float) -> None:
        """Begin a fresh recording whose time 0 is `origin_s` on the clock."""
        ...

    def samples(self) -> list[DeviceSample]:
        """Give the readings so far; those that failed are missing."""
        ...

    @property
    def lost(self) -> str | None:
        """Why the devices cannot be read any more; None while they can."""
        ...

    def stop(self) -> None:
        """End the recording."""
        ...
