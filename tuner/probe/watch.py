"""When a probe is over: enough seen, a dead rank, silence, the time limit. Pure; time comes in with the lines."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from tuner.probe.failures import End, Evidence
from tuner.probe.protocols import Line
from tuner.probe.reader import ProgressReader
from tuner.probe.result import Progress
from tuner.probe.window import Mark, marks
from tuner.study.spec import ProbeSpec

STALL_FACTOR = 20
"""Median iterations without a mark that count as a stall: twice what a healthy hiccup was seen to take."""
LEAST_STALL_S = 10.0
"""No stall is called sooner than this, however short the iterations are."""
CERTAIN_FACTOR = 3
"""A rank known to be dead ends the probe after this many grace times even while its peers still print."""


class Watch:
    """Follows one probe through its lines and says when it is over."""

    def __init__(self, limits: ProbeSpec, reader: ProgressReader, ranks: int) -> None:
        self._limits = limits
        self._reader = reader
        self._ranks = ranks
        self._last_line_s = 0.0
        self.evidence = Evidence()
        self.progress: list[Progress] = []
        self.marks: list[Mark] = []

    def feed(self, lines: Sequence[Line]) -> bool:
        """Take lines into account; tell whether they completed an iteration on all ranks."""
        before = len(self.marks)
        for line in lines:
            self._last_line_s = line.t_s
            if mark := self._reader.feed(line):
                self.progress.append(mark)
            if line.stream == "console":
                self.evidence.feed(line.text, line.t_s)
            if mark:
                self.marks = marks(self.progress, self._ranks)
                if len(self.marks) > before:
                    self.evidence.refute()
        return len(self.marks) > before

    def over(self, now_s: float) -> End | None:
        """Say why the probe is over at `now_s`, or None while it should go on."""
        if self._has_enough():
            return End.ENOUGH
        if self._rank_is_dead(now_s):
            return End.FATAL
        if now_s >= self._limits.max_seconds:
            return End.OUT_OF_TIME
        return End.HANG if self._stalled(now_s) else None

    def _has_enough(self) -> bool:
        limits = self._limits
        if len(self.marks) < limits.iterations:
            return False
        window_s = self.marks[-1].t_s - self.marks[limits.warmup_iterations - 1].t_s
        return window_s >= limits.window_seconds or len(self.marks) >= limits.most_iterations

    def _rank_is_dead(self, now_s: float) -> bool:
        fatal_s, grace_s = self.evidence.fatal_t_s, self._limits.grace_seconds
        if fatal_s is None:
            return False
        if self.evidence.certain:
            return now_s - self._last_line_s >= grace_s or now_s - fatal_s >= CERTAIN_FACTOR * grace_s
        return now_s - self._last_line_s >= max(grace_s, CERTAIN_FACTOR * (self._median_iteration_s() or grace_s))

    def _stalled(self, now_s: float) -> bool:
        if not self.marks:
            return now_s - self._last_line_s >= self._limits.start_up_silence_seconds
        last_mark_s = self.marks[-1].t_s
        if now_s - max(self._last_line_s, last_mark_s) >= self._limits.silence_seconds:
            return True
        usual_s = self._median_iteration_s()
        return usual_s is not None and now_s - last_mark_s >= max(LEAST_STALL_S, STALL_FACTOR * usual_s)

    def _median_iteration_s(self) -> float | None:
        times = [mark.t_s for mark in self.marks]
        return median(later - earlier for earlier, later in pairwise(times)) if len(times) > 1 else None
