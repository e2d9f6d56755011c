"""Decides when a probe is over: enough measured, a dead rank, silence, the time limit.

Pure: the caller passes the time in with the lines.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from tuner.probe.evidence import Evidence
from tuner.probe.failing import ProbeEnd, laggard
from tuner.probe.progress_reader import ProgressReader, Unmatched, record
from tuner.probe.protocols import OutputLine
from tuner.probe.result import Failure, Progress, Score
from tuner.probe.window import Mark, counted, first_mark, marks
from tuner.study import ProbeSpec

STALL_FACTOR = 20
"""A trainer stalls when it completes no iteration for this many median iterations.

This is twice the longest pause that was seen in a healthy trainer.
"""
HICCUP_FACTOR = 15
"""A trainer may print nothing for this many median iterations.

At the time limit, a trainer without an iteration for that long counts as hanging, not as slow.
"""
LEAST_STALL_FACTOR = 2
"""A stall takes at least this many grace times, however short the iterations are."""
CERTAIN_FACTOR = 2
"""A rank that is certainly dead ends the probe after this many grace times, even while its peers still print."""
QUIET_FACTOR = 3
"""A rank that may be dead ends the probe after this many grace times or median iterations without a line."""


class Watch:
    """Follows the lines of one probe and decides when the probe is over."""

    def __init__(self, limits: ProbeSpec, reader: ProgressReader, ranks: int, *, late: bool = False) -> None:
        """`late`: reports may come long after their iterations. Then only silence shows that a trainer hangs."""
        self._limits, self._reader, self._ranks, self._late = limits, reader, ranks, late
        self._block_s = reader.patterns.block_s
        self._first_line_s: float | None = None
        self._last_line_s = 0.0
        self.evidence = Evidence()
        self._unmatched = Unmatched()
        self._unread: str | None = None
        self._unusable = False
        self.backlog: str | None = None
        """Why the newest rows of the progress file are not known yet; None where all are."""
        self.progress: list[Progress] = []
        self.marks: list[Mark] = []

    @property
    def doubt(self) -> str | None:
        """Why the samples that are counted may be wrong; None where nothing speaks against them."""
        return self._reader.doubt

    @property
    def score(self) -> Score | None:
        """The newest score that the trainer has printed or reported."""
        return self._reader.score

    def feed(self, lines: Sequence[OutputLine], now_s: float) -> bool:
        """Take lines and the time into account; return whether all ranks have completed another iteration."""
        before, latest = len(self.marks), self.progress[-1:]
        for line in lines:
            self._last_line_s = line.t_s
            self._first_line_s = line.t_s if self._first_line_s is None else self._first_line_s
            if report := self._reader.feed(line):
                if report.begins_anew:
                    self.progress.clear()
                self.progress.append(report)
            if line.stream == "console":
                self.evidence.feed(line.text, line.t_s)
                if self._silent:
                    self._unmatched.feed(line.text)
            else:
                self._hear(record(line.text), line.t_s)
        if self.progress[-1:] != latest:
            self.marks = counted(marks(self.progress, self._ranks), self._reader.patterns.samples_per_iteration)
            if len(self.marks) > max(before, 1):
                self.evidence.forget(before_s=self.marks[-2].t_s)
        self._close_blocks(now_s)
        return len(self.marks) > before

    def _hear(self, message: Mapping[str, Any], t_s: float) -> None:
        match message.get("type"):
            case "failed":
                self.evidence.feed_report(message, t_s)
            case "unread":
                self._unread, self._unusable = str(message.get("detail")), not message.get("missing")
            case "backlog":
                self.backlog = message.get("detail")

    def _close_blocks(self, now_s: float) -> None:
        """Count blocks of time as iterations where the trainer reports none.

        No block is counted once a rank may be dead.
        """
        if self._block_s is None or self._first_line_s is None or self.evidence.fatal_t_s is not None:
            return
        while (end_s := self._first_line_s + (len(self.marks) + 1) * self._block_s) <= now_s:
            self.marks.append(Mark(iteration=len(self.marks), t_s=end_s))

    @property
    def has_enough(self) -> bool:
        """Whether the window is long enough and has all iterations of a usual probe."""
        return self._is_long and self._inside + self._limits.warmup_iterations > self._limits.iterations

    def over(self, now_s: float) -> ProbeEnd | None:
        """Return why the probe is over at `now_s`, whatever it measures; None while it may go on."""
        if self._rank_is_dead(now_s):
            return ProbeEnd.FATAL
        if now_s >= self._limits.longest_start_s and (self.unmatched or (self.backlog and not self.progress)):
            return ProbeEnd.UNMATCHED
        if now_s >= self._limits.max_seconds:
            return ProbeEnd.HANG if self._stalled(now_s, HICCUP_FACTOR) else ProbeEnd.OUT_OF_TIME
        if self._is_long and self.evidence.fatal_t_s is None and not self._time_for(1):
            return ProbeEnd.ENOUGH
        return ProbeEnd.HANG if self._stalled(now_s, STALL_FACTOR) else None

    def next_is_last(self, *, more: bool = False) -> bool:
        """Return whether the iteration that runs now is the last that the probe needs or has time for.

        The running iteration is assumed to take at least half as long as the shortest iteration. `more` says that the
        probe needs more iterations than usual.
        """
        if self._block_s is not None or not self._measures:
            return False
        shortest_s = min(later.t_s - earlier.t_s for earlier, later in pairwise(self.marks))
        window_s = self._window_s + shortest_s / 2
        enough = (
            self._inside + self._limits.warmup_iterations >= self._limits.iterations
            and window_s >= self._limits.window_seconds
        )
        return (enough and not more) or not self._time_for(2)

    @property
    def unmatched(self) -> Sequence[str]:
        """Why the rows of the progress file cannot be used, and the last lines that look like progress.

        Empty as soon as anything has reported progress.
        """
        unusable = [self._unread] if self._unread and self._unusable else []
        return [*unusable, *self._unmatched.lines] if self._silent else ()

    @property
    def unread(self) -> str | None:
        """Why the progress file gives no iteration; None where it gives some, or the plan names no file."""
        return self._unread if self._silent else None

    @property
    def _silent(self) -> bool:
        """Whether no pattern has matched and no report has come. Blocks of time need neither."""
        return not self.progress and not self._reader.matched and self._block_s is None

    @property
    def silent(self) -> bool:
        """Whether no line and no report has come."""
        return self._first_line_s is None

    def behind(self) -> Failure | None:
        """Return the failure of the rank that the others wait for, if there is one."""
        return laggard(self.progress, self._ranks)

    def _time_for(self, more: int) -> bool:
        """Return whether `more` iterations are expected to end before the time limit."""
        return self._last_mark_s + more * self._median_iteration_s() <= self._limits.max_seconds

    @property
    def _begin(self) -> int | None:
        return first_mark(self.marks, self._limits.warmup_iterations, self._reader.patterns.queue)

    @property
    def _inside(self) -> int:
        """The marks from the one on at which the window begins."""
        return 0 if self._begin is None else len(self.marks) - self._begin

    @property
    def _measures(self) -> bool:
        """Whether an iteration after the warm-up has been completed."""
        return self._inside > 1

    @property
    def _is_long(self) -> bool:
        return self._measures and self._window_s >= self._limits.window_seconds

    @property
    def _window_s(self) -> float:
        return 0.0 if self._begin is None else self.marks[-1].t_s - self.marks[self._begin].t_s

    def _rank_is_dead(self, now_s: float) -> bool:
        fatal_s, grace_s = self.evidence.fatal_t_s, self._limits.grace_seconds
        if fatal_s is None:
            return False
        quiet_s = now_s - self._last_line_s
        if self.evidence.certain:
            return quiet_s >= grace_s or now_s - max(fatal_s, self._last_mark_s) >= CERTAIN_FACTOR * grace_s
        return quiet_s >= max(grace_s, QUIET_FACTOR * (self._median_iteration_s() or grace_s))

    def _stalled(self, now_s: float, factor: float) -> bool:
        limits, usual_s = self._limits, self._median_iteration_s()
        silence_s = limits.silence_seconds if self.marks else limits.start_up_silence_seconds
        if now_s - self._last_line_s >= max(silence_s, HICCUP_FACTOR * usual_s):
            return True
        stall_s = max(LEAST_STALL_FACTOR * limits.grace_seconds, factor * usual_s)
        return usual_s > 0 and not self._late and now_s - self._last_mark_s >= stall_s

    @property
    def _last_mark_s(self) -> float:
        return self.marks[-1].t_s if self.marks else 0.0

    def _median_iteration_s(self) -> float:
        """Return the median length of an iteration.

        It is 0 where it is not known yet, and where marks come in bursts, as they do out of a buffered output.
        """
        return median([later.t_s - earlier.t_s for earlier, later in pairwise(self.marks)] or [0.0])
