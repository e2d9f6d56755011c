"""Replays a recorded probe without a trainer: clock, scripted trainer, and recorder."""

import json
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tests_devices import RecordedProbe, ReplayedSource

from tuner.probe import (
    Device,
    DeviceSample,
    DeviceSource,
    Evidence,
    LinePatterns,
    LineSplitter,
    OutputLine,
    ProbePlan,
    ProbeResult,
    ProgressReader,
    Slot,
)
from tuner.probe.count_files import CountLine, MergedCounts
from tuner.probe.probe_plan import Answer, Next, StartedProcess
from tuner.probe.run import run
from tuner.study import ProbeSpec

_TIME_S = attrgetter("t_s")


def never(_: ProbeResult | None) -> Answer:
    """Return that the probe goes on; a `stop` that ends no probe early."""
    return Answer(Next.GO)


class FakeClock:
    """Stands at `now_s` until it is advanced."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now(self) -> float:
        """Seconds since an arbitrary point."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Raises ValueError for a negative number: a monotonic clock never steps back."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot advance by {seconds} s")
        self._now_s += seconds


class ScriptedTrainer(StartedProcess):
    """Writes its lines at their times, and moves the clock while the prober waits.

    It is both a `Launch` and the `RunningTrainer` that the `Launch` returns.
    """

    pid = 1

    def __init__(
        self,
        clock: FakeClock,
        lines: Sequence[OutputLine],
        *,
        records: Sequence[tuple[float, dict[str, object]]] = (),
        exit_at_s: float | None = None,
        exit_code: int = 0,
    ) -> None:
        """With `exit_at_s` None, the trainer runs until the tuner ends it.

        `records`: when its process writes a record of its counts, and the record.
        """
        self._records = deque(records)
        self.counts = MergedCounts(self._new_records)
        self._clock = clock
        self._lines = sorted(lines, key=_TIME_S)
        self._written = 0
        self._exit_at_s = exit_at_s
        self._exit_code = exit_code
        self._origin_s = clock.now()
        self.plans: list[ProbePlan] = []
        """The plans with which the trainer was launched."""
        self.ended_at_s: float | None = None
        """When the tuner ended the trainer; None if the trainer exited by itself."""
        self.last_announced: int | None = None
        """The iteration that the tuner announced as the last; None before that."""
        self.last_announced_at_s: float | None = None
        """When the tuner announced the last iteration."""

    def __call__(self, plan: ProbePlan) -> "ScriptedTrainer":
        """Start now, which is time 0 of the script."""
        self.plans.append(plan)
        self._origin_s = self._clock.now()
        return self

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Let time pass up to the next line or the end of the wait, and return the lines that are due."""
        begin, now_s = self._written, self._now_s()
        next_s = min(
            self._lines[begin].t_s if begin < len(self._lines) else math.inf,
            self._records[0][0] if self._records else math.inf,
        )
        ahead_s = [event_s - now_s for event_s in (next_s, self._exit_at_s or 0.0) if event_s > now_s]
        if next_s > now_s:
            self._clock.advance(min([*ahead_s, timeout_s]))
        self._written = bisect_right(self._lines, self._now_s(), lo=begin, key=_TIME_S)
        counted = [OutputLine(t_s=self._now_s(), text=text, stream="progress") for text in self.counts.read()]
        return [*self._lines[begin : self._written], *counted]

    def _new_records(self) -> list[CountLine]:
        """Return the records that the process has written since the last call."""
        records: list[CountLine] = []
        while self._records and self._records[0][0] <= self._now_s():
            records.append(CountLine("1-a.jsonl", json.dumps(self._records.popleft()[1])))
        return records

    @property
    def still_running(self) -> None:
        """Nothing: a script ends at once."""

    def exit_code(self) -> int | None:
        """Return the exit code once the trainer has ended; -15 if the tuner ended it."""
        if self.ended_at_s is not None:
            return -15
        if self._exit_at_s is not None and self._now_s() >= self._exit_at_s:
            return self._exit_code
        return None

    def last_iteration(self, iteration: int) -> None:
        """Record which iteration is announced as the last, and when."""
        self.last_announced, self.last_announced_at_s = iteration, self._now_s()

    def end(self) -> int:
        """Record when the tuner ended the trainer."""
        code = self.exit_code()
        if code is None:
            self.ended_at_s = self._now_s()
        return self.exit_code() or 0

    def _now_s(self) -> float:
        return self._clock.now() - self._origin_s


class ReplayedRecorder:
    """Returns recorded samples, which are sorted by time, up to the clock's time."""

    def __init__(
        self, source: DeviceSource, samples: Sequence[DeviceSample], clock: FakeClock, lost_at_s: float = math.inf
    ) -> None:
        self.source = source
        self._lost_at_s = lost_at_s
        self._samples = samples
        self._clock = clock
        self._origin_s = 0.0

    def start(self, pid: int, origin_s: float) -> None:
        """Set `origin_s` as time 0 of the recording."""
        self._origin_s = origin_s

    def samples(self) -> list[DeviceSample]:
        """Return the samples recorded so far."""
        end_s = min(self._now_s(), self._lost_at_s)
        return list(self._samples[: bisect_right(self._samples, end_s, key=lambda sample: sample.t_s)])

    @property
    def lost(self) -> str | None:
        """Why the devices cannot be read from `lost_at_s` on; None before."""
        return "cuda:1 is lost" if self._now_s() >= self._lost_at_s else None

    def stop(self) -> None:
        """Do nothing."""

    def _now_s(self) -> float:
        return self._clock.now() - self._origin_s


_NO_PATTERNS = LinePatterns()


def scripted_plan(
    out_dir: Path, devices: Sequence[Device], limits: ProbeSpec, progress: LinePatterns = _NO_PATTERNS
) -> ProbePlan:
    """Return a plan for a scripted trainer: a config of one parameter, no files, no command that could run."""
    slot = Slot(devices=tuple(devices), out_dir=out_dir, port=1, limits=limits)
    return ProbePlan(
        config={"num_envs": 32},
        argv=("scripted",),
        cwd=out_dir,
        env={},
        files={},
        slot=slot,
        progress=progress,
        session_key="scripted",
    )


LINE_S = 0.05
"""The seconds between two lines of a log, if the times of its lines were not recorded."""


def replay(
    log: Path,
    progress: LinePatterns,
    *,
    recording: RecordedProbe | None = None,
    exit_code: int | None = None,
    limits: ProbeSpec | None = None,
) -> ProbeResult:
    """Probe the recorded trainer once more, in no time.

    `exit_code` None: the trainer did not end by itself. Without a `recording` there are no device readings, and the
    lines come `LINE_S` apart.
    """
    clock = FakeClock()
    recording = recording or RecordedProbe(devices=_TWO_CPU_RANKS, samples=(), marks_s=(), total_s=0.0, exit_code=0)
    lines = timed_lines(log, progress, recording)
    exit_at_s = None if exit_code is None else max(recording.total_s, lines[-1].t_s)
    trainer = ScriptedTrainer(clock, lines, exit_at_s=exit_at_s, exit_code=exit_code or 0)
    with TemporaryDirectory() as folder:
        return run(
            scripted_plan(Path(folder), recording.devices, limits or ProbeSpec(), progress),
            launch=trainer,
            recorder=ReplayedRecorder(ReplayedSource(recording), recording.samples, clock),
            clock=clock,
            stop=never,
        )


def timed_lines(log: Path, progress: LinePatterns, recording: RecordedProbe) -> list[OutputLine]:
    """Return a log's lines with times.

    Marks and the first fatal line have their recorded times. The other lines are spread evenly between them.
    """
    splitter = LineSplitter()
    texts = splitter.feed(log.read_bytes()) + splitter.close()
    anchors = _anchors(texts, progress, recording)
    if not anchors:
        return [OutputLine(t_s=LINE_S * position, text=text) for position, text in enumerate(texts)]
    positions = sorted(anchors)
    known_s = [anchors[position] for position in positions]
    spread_s = np.interp(range(len(texts)), [-1, *positions], [0.0, *known_s])
    times_s = np.maximum.accumulate(spread_s).tolist()
    return [OutputLine(t_s=t_s, text=text) for t_s, text in zip(times_s, texts, strict=True)]


def _anchors(texts: list[str], progress: LinePatterns, recording: RecordedProbe) -> dict[int, float]:
    """Return the positions of the lines whose time is known → the time in seconds."""
    reader = ProgressReader(progress, 0.0)
    marked = [position for position, text in enumerate(texts) if reader.feed(OutputLine(t_s=0.0, text=text))]
    anchors = dict(zip(marked, recording.marks_s, strict=False))
    if recording.error_s is not None:
        evidence = Evidence()
        for position, text in enumerate(texts):
            evidence.feed(text, 0.0)
            if evidence.fatal_t_s is not None:
                anchors[position] = recording.error_s
                break
    return anchors


_TWO_CPU_RANKS = tuple(Device(name=f"cpu:{rank}", model="recorded CPU") for rank in range(2))
