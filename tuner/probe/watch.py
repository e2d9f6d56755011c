"""Follows the lines of a probe, decides when the probe is over, and says why it has failed.

A mark is the end of an iteration on all ranks. The window is the iterations that the probe evaluates: those after the
warm-up. A line is fatal if a rank may be dying, as after a traceback, and certain if a process surely dies.
Pure: the caller passes the time in with the lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Any

from tuner.count import TrainingCounts
from tuner.probe.count_files import training_counts
from tuner.probe.evidence import NO_OUTPUT, OUT_OF_MEMORY, Evidence
from tuner.probe.output import json_object
from tuner.probe.probe_plan import Device, OutputLine
from tuner.probe.progress_reader import ProgressReader, Unmatched
from tuner.probe.result import KILLED, STOPPED, Failure, FailureKind, ProbeResult, Progress, unreadable
from tuner.probe.window import Mark, Marks, first_mark
from tuner.study import ProbeSpec


class ProbeEnd(StrEnum):
    """Why a probe is over."""

    ENOUGH = "enough"
    """All iterations of a usual probe have come, the value is known well enough, or no time is left for more."""
    EXITED = "exited"
    """The trainer ended by itself."""
    FATAL = "fatal"
    """A rank died, and no iteration came afterwards."""
    UNMATCHED = "unmatched"
    """Lines that look like progress came for a while, and no pattern matched one."""
    HANG = "hang"
    """Lines and iterations stopped coming."""
    OUT_OF_TIME = "out_of_time"
    """The probe reached its time limit."""
    STOPPED = "stopped"
    """The pruner stopped it."""
    OTHER_TRAINING = "other_training"
    """The first steps show another training than the person's own."""
    LOST = "lost"
    """The devices can no longer be read."""
    INTERRUPTED = "interrupted"
    """The user interrupted it, or the study's time is over."""


class Watch:
    """Follows the lines of one probe, decides when the probe is over, and says why it has failed."""

    STALL_FACTOR = 20
    """A trainer stalls when it completes no iteration for this many median iterations: twice the longest pause of any
    healthy trainer so far."""
    HICCUP_FACTOR = 15
    """A trainer may print nothing for this many median iterations. At the time limit, a trainer that has made no
    iteration for that long counts as hanging, not as slow."""
    LEAST_STALL_FACTOR = 2
    """A stall takes at least this many grace times, however short the iterations are. After an evaluation or a
    checkpoint it takes at least `silence_seconds`."""
    CERTAIN_FACTOR = 2
    """A rank that is certainly dead ends the probe after this many grace times, even while its peers still print."""
    QUIET_FACTOR = 3
    """A rank that may be dead ends the probe after this many grace times or median iterations without a line."""

    def __init__(self, limits: ProbeSpec, reader: ProgressReader, ranks: int) -> None:
        """Follow the lines of a probe, to decide when it ends.

        Args:
            limits: The times and numbers of iterations that limit the probe.
            reader: Finds the progress in its lines.
            ranks: The number of its ranks.
        """
        self._limits, self._reader, self._ranks = limits, reader, ranks
        self._first_line_s: float | None = None
        """When the first line came; None before it."""
        self._last_line_s = 0.0
        """When the last line came; 0 before the first."""
        self._last_pause_s = 0.0
        """When a message last said that a process evaluates or saves."""
        self.evidence = Evidence()
        """The signs of a failure since the last iteration."""
        self._unmatched = Unmatched()
        """The lines that look like progress and match no pattern."""
        self._unread: str | None = None
        """Why the trainer's reports cannot be read, as their reader said last."""
        self.training: TrainingCounts | None = None
        """The counts from inside the training; None without any."""
        self.progress: list[Progress] = []
        """The reports that count."""
        self._marks = Marks(ranks, reader.patterns.samples_per_iteration)

    def feed(self, lines: Sequence[OutputLine]) -> bool:
        """Take new lines into account, and return whether they complete another iteration on all ranks.

        Evidence of a failure from before the previous mark is then forgotten: the training has gone on after it.
        """
        marks_before = len(self.marks)
        for line in lines:
            self._last_line_s = line.t_s
            if self._first_line_s is None:
                self._first_line_s = line.t_s
            if report := self._reader.feed(line):
                if report.begins_anew:
                    self.progress.clear()
                    self._marks = Marks(self._ranks, self._reader.patterns.samples_per_iteration)
                self.progress.append(report)
                self._marks.add(report)
            if line.stream == "console":
                self.evidence.feed(line.text, line.t_s)
                if self._has_no_progress:
                    self._unmatched.feed(line.text)
            else:
                self._feed_message(json_object(line.text), line.t_s)
        if len(self.marks) > max(marks_before, 1):
            self.evidence.drop_before(self.marks[-2].t_s)
        return len(self.marks) > marks_before

    @property
    def marks(self) -> list[Mark]:
        """The iterations that all ranks have completed."""
        return self._marks.complete

    def _feed_message(self, message: Mapping[str, Any], t_s: float) -> None:
        """Take a message about something beside progress into account: a failure, a file, counts, or a pause."""
        match message.get("type"):
            case "failed":
                self.evidence.feed_report(message, t_s)
            case "unread":  # the trainer's reports cannot be read
                self._unread = str(message.get("detail"))
            case "training":  # from what counts steps inside the training
                self.training = training_counts(message.get("counts")) or self.training
                if message.get("paused"):
                    self._last_pause_s = t_s

    @property
    def has_enough(self) -> bool:
        """Whether the window is long enough and has all iterations of a usual probe."""
        return self._is_long_enough and self._has_iterations(self._limits.iterations + 1)

    def reason_to_end(self, now_s: float) -> ProbeEnd | None:
        """Return why the probe must end now, however well its value is known; None while it may go on.

        It must end if a rank is dead, if lines come and none is progress, if the time is up or too short for another
        iteration, or if nothing comes any more. `now_s` are the seconds since the probe began.
        """
        if self._rank_is_dead(now_s):
            return ProbeEnd.FATAL
        if now_s >= self._limits.longest_start_s and self.unmatched_lines:
            return ProbeEnd.UNMATCHED
        if now_s >= self._limit_s:  # a shorter silence than earlier already shows a hang, not a slow trainer
            return ProbeEnd.HANG if self._is_stalled(now_s, self.HICCUP_FACTOR) else ProbeEnd.OUT_OF_TIME
        # another iteration would not end in time, and none is needed
        if self._is_long_enough and self.evidence.fatal_t_s is None and not self._has_time_for(1):
            return ProbeEnd.ENOUGH
        return ProbeEnd.HANG if self._is_stalled(now_s, self.STALL_FACTOR) else None

    def is_last_iteration(self, *, needs_more: bool = False) -> bool:
        """Return whether the iteration that runs now is the last that the probe needs or has time for.

        Then a session need not begin another. `needs_more` says that the probe needs more iterations than usual. The
        running iteration is taken to last half as long as the shortest one, so that a probe rather runs one too many.
        There is time for another iteration where two median iterations fit into the time that is left.
        """
        if len(self._window_marks) < 2:
            return False
        shortest_s = min(later.t_s - earlier.t_s for earlier, later in pairwise(self.marks))
        will_be_long_enough = self._window_s + shortest_s / 2 >= self._limits.window_seconds
        is_last_needed = will_be_long_enough and self._has_iterations(self._limits.iterations)
        return (is_last_needed and not needs_more) or not self._has_time_for(2)

    @property
    def unmatched_lines(self) -> Sequence[str]:
        """The last lines that look like progress and match no pattern; empty once anything has reported progress."""
        return self._unmatched.lines if self._has_no_progress else ()

    @property
    def unread(self) -> str | None:
        """Why the trainer's reports cannot be read; None if they can be, or once anything has reported progress."""
        return self._unread if self._has_no_progress else None

    @property
    def _has_no_progress(self) -> bool:
        """Whether no pattern has matched and no report has come."""
        return not self.progress and not self._reader.matched

    def failure(
        self,
        end: ProbeEnd,
        *,
        exit_code: int | None,
        missing: Sequence[str] = (),
        measured: bool = False,
        oom_kills: int = 0,
        lost: str | None = None,
        in_session: bool = False,
        is_counted: bool = False,
    ) -> Failure | None:
        """Return why the probe failed; None when its window counts.

        Args:
            end: how the probe ended.
            exit_code: the trainer's exit code; None if it did not end by itself.
            missing: expected files that do not exist.
            measured: whether there is a window.
            oom_kills: the number of processes that the kernel killed for lack of memory during the probe.
            lost: why the devices can no longer be read; None if they can.
            in_session: whether a session served the probe.
            is_counted: whether the trainer's Python counts steps, whatever it prints.
        """
        if end is ProbeEnd.INTERRUPTED:
            return STOPPED
        # for each other way to end: whether the output shows that a rank had died before
        had_died = {
            ProbeEnd.HANG: self.evidence.fatal_t_s is not None,  # the silence confirms even a line that may be harmless
            ProbeEnd.OUT_OF_TIME: self.evidence.is_certain,  # the ranks that write on may have survived any other line
            ProbeEnd.EXITED: bool(self.evidence.reported),  # otherwise the exit code decides
        }
        if had_died.get(end):
            end = ProbeEnd.FATAL
        shown = self.evidence.failure()  # what the output shows
        finished = end is ProbeEnd.EXITED and exit_code == 0
        is_complete = finished and not missing and self._rank_behind() is None
        window_counts = measured and (is_complete or end in {ProbeEnd.ENOUGH, ProbeEnd.OUT_OF_TIME})
        # a certain lack of memory fails even a probe with a window: the same config would fail later
        out_of_memory = self.evidence.is_certain and shown is not None and shown.kind in OUT_OF_MEMORY
        if not out_of_memory and (window_counts or end is ProbeEnd.STOPPED):
            return None
        if lost is not None and not out_of_memory:
            return unreadable(lost)
        if oom_kills and (shown is None or shown.rule == KILLED):  # by its count, the kernel has killed it
            return Failure(kind=FailureKind.HOST_OOM, rule="kernel", detail=f"the kernel ended {oom_kills} process(es)")
        is_silent = self._first_line_s is None and not in_session
        # a counted trainer that ends without a step was understood: its data may be fewer than a batch
        has_no_step = finished and is_counted and not self._reader.patterns.patterns
        without_progress = None if has_no_step else self._without_progress(end, finished, is_silent)
        return shown or without_progress or self._unexplained(end, exit_code, missing)

    def _without_progress(self, end: ProbeEnd, finished: bool, is_silent: bool) -> Failure | None:
        """Return the failure of a trainer that may have trained, but of which no iteration could be read.

        None for any other trainer.

        Args:
            end: How the probe ended.
            finished: Whether the trainer ended by itself with exit code 0.
            is_silent: Whether a plain command has neither printed nor reported anything.
        """
        lines = self.unmatched_lines or ([self.unread] if self.unread and finished else [])
        if lines and (finished or end in {ProbeEnd.UNMATCHED, ProbeEnd.OUT_OF_TIME}):
            detail = f"no line matched `progress` and nothing called report(); the last lines: {' | '.join(lines)}"
            return Failure(kind=FailureKind.NO_PROGRESS, rule="unmatched", detail=detail)
        if is_silent and (finished or end in {ProbeEnd.HANG, ProbeEnd.OUT_OF_TIME}):
            begin = "the trainer ended with exit code 0; it" if finished else "the trainer"
            detail = f"{begin} printed nothing and nothing called report()"
            if self.unread:
                detail += f"; {self.unread}"
            if not finished:
                detail += "; its start may be slow, as on a busy machine: then the same command tries again"
            return Failure(kind=FailureKind.NO_PROGRESS, rule="silent", detail=detail)
        return None

    def _unexplained(self, end: ProbeEnd, exit_code: int | None, missing: Sequence[str]) -> Failure:
        """Return the failure of a probe whose output shows none, by how it ended.

        `missing` names expected files that do not exist.
        """
        # parts of the sentences below
        crash_line, reached = self.evidence.crash_line(), self.marks[-1].iteration if self.marks else None
        last_line = crash_line if crash_line == NO_OUTPUT else f"the last line: {crash_line}"
        if self.unread:
            last_line = f"{self.unread}; {last_line}"
        awaited = "an iteration was seen" if reached is None else f"enough iterations (the last is {reached})"
        too_early = f"before {awaited}; {last_line}"
        finished = end is ProbeEnd.EXITED and exit_code == 0
        may_lag = finished or end in {ProbeEnd.HANG, ProbeEnd.OUT_OF_TIME}
        if may_lag and (behind := self._rank_behind()):
            return replace(behind, detail=f"{behind.detail}; {last_line}")
        rank = None
        match end:
            case ProbeEnd.HANG:
                limit = ""
                if not self._median_iteration_s():  # else as long as a few usual iterations
                    key = "start_up_silence_seconds" if reached is None else "silence_seconds"
                    limit = f" for {getattr(self._limits, key):.0f} s (see probe.{key})"
                kind, rule, detail = FailureKind.HANG, "silence", f"no new iteration{limit}; {last_line}"
            case ProbeEnd.ENOUGH:
                kind, rule, detail = FailureKind.CRASH, "no window", f"the window is too short {too_early}"
            case ProbeEnd.OUT_OF_TIME:
                kind, rule = FailureKind.TOO_SLOW, "time limit"
                key = "max_seconds" if self.marks else "max_start_seconds"
                detail = f"the time limit of {getattr(self._limits, key):.0f} s (probe.{key}) came {too_early}"
            case _ if finished and reached is not None and not missing and self.evidence.fatal_t_s is None:
                kind, rule = FailureKind.NO_READING, "too short"
                done = f"the training was over at iteration {reached}, before it could be measured"
                detail = f"{done}; let it run for more steps or epochs; {last_line}"
            case _ if finished:
                how = f"without {', '.join(missing)}" if missing else too_early
                kind, rule, detail = FailureKind.CRASH, "incomplete", f"the trainer ended with exit code 0, {how}"
            case _:
                kind, rule = FailureKind.CRASH, "exit"
                detail = crash_line if end is ProbeEnd.FATAL else f"exit code {exit_code}: {crash_line}"
                rank = self.evidence.cause.rank if self.evidence.cause else None
        return Failure(kind=kind, rule=rule, detail=detail, rank=rank)

    def _rank_behind(self) -> Failure | None:
        """Return the failure of a rank that is more than one iteration behind another, or has reported none at all.

        None if all ranks are in step, or if no rank reports for itself.
        """
        reported = {report.rank: report.iteration for report in self.progress if report.rank is not None}
        reached = [reported.get(rank, -1) for rank in range(self._ranks)]  # -1: nothing
        slowest = reached.index(min(reached))
        if not reported or (slowest in reported and reached[slowest] >= max(reached) - 1):
            return None
        why = "has reported no iteration; ranks are numbered from 0, and a report for all ranks has no `rank`"
        detail = f"rank {slowest} {'fell behind' if slowest in reported else why}"
        return Failure(kind=FailureKind.HANG, rule="silence", detail=detail, rank=slowest)

    def _has_time_for(self, more: int) -> bool:
        """Return whether `more` median iterations after the last mark would end before the time limit."""
        return self._last_mark_s + more * self._median_iteration_s() <= self._limit_s

    @property
    def _limit_s(self) -> float:
        """The time limit that holds now, in seconds since the probe began: that of the start before the first mark."""
        return self.marks[0].t_s + self._limits.max_seconds if self.marks else self._limits.max_start_seconds

    @property
    def _window_marks(self) -> Sequence[Mark]:
        """The marks of the window so far; empty before it begins."""
        begin = first_mark(self.marks, self._limits.warmup_iterations, self._reader.patterns.queue)
        return () if begin is None else self.marks[begin:]

    @property
    def _window_s(self) -> float:
        """The length of the window so far."""
        inside = self._window_marks
        return inside[-1].t_s - inside[0].t_s if inside else 0.0

    @property
    def _is_long_enough(self) -> bool:
        """Whether the window has an iteration, and lasts as long as a window must."""
        return len(self._window_marks) > 1 and self._window_s >= self._limits.window_seconds

    def _has_iterations(self, count: int) -> bool:
        """Return whether `count` iterations are complete, those of the warm-up included."""
        return len(self._window_marks) + self._limits.warmup_iterations >= count

    def _rank_is_dead(self, now_s: float) -> bool:
        """Return whether a rank has died, and the others have had time to say so or to die as well.

        If a rank is surely dead, a silence of the grace time suffices; if others still print, so do `CERTAIN_FACTOR`
        grace times without an iteration. If a rank only may be dead, the silence must be longer than a usual iteration
        explains: see `QUIET_FACTOR`.
        """
        fatal_s, grace_s = self.evidence.fatal_t_s, self._limits.grace_seconds
        if fatal_s is None:
            return False
        silent_s = now_s - self._last_line_s
        if self.evidence.is_certain:
            without_iteration_s = now_s - max(fatal_s, self._last_mark_s)
            return silent_s >= grace_s or without_iteration_s >= self.CERTAIN_FACTOR * grace_s
        return silent_s >= max(grace_s, self.QUIET_FACTOR * (self._median_iteration_s() or grace_s))

    def _is_stalled(self, now_s: float, factor: float) -> bool:
        """Return whether no line has come for long, or no iteration for `factor` median iterations.

        Without a known length of an iteration, only lines count. While a trainer reports a pause, such as an
        evaluation, it may be without an iteration for at least `silence_seconds`.
        """
        limits, usual_s = self._limits, self._median_iteration_s()
        silence_s = limits.silence_seconds if self.marks else limits.start_up_silence_seconds
        if now_s - self._last_line_s >= max(silence_s, self.HICCUP_FACTOR * usual_s):
            return True
        is_paused = self._reader.pause is not None or self._last_pause_s > self._last_mark_s
        least_s = limits.silence_seconds if is_paused else self.LEAST_STALL_FACTOR * limits.grace_seconds
        stall_s = max(least_s, factor * usual_s)
        return usual_s > 0 and now_s - max(self._last_mark_s, self._last_pause_s) >= stall_s

    @property
    def _last_mark_s(self) -> float:
        """The time of the last mark; 0 before the first."""
        return self.marks[-1].t_s if self.marks else 0.0

    def _median_iteration_s(self) -> float:
        """Return the median length of an iteration in seconds; 0 if it is unknown.

        It is unknown before two marks, and if marks come in bursts, as they do out of a buffered output. A launcher may
        pass the lines of a burst on one by one, so a median below 5 ms (chosen) is not the length of an iteration.
        """
        usual_s = median([later.t_s - earlier.t_s for earlier, later in pairwise(self.marks)] or [0.0])
        return usual_s if usual_s >= 0.005 else 0.0


IDLE_PCT = 0.5
"""A CPU rank below this share, in percent, is idle: a launcher that only waits takes less.

A GPU is idle at 0 alone, because a launcher takes nothing of it.
"""


def idle_device(result: ProbeResult, devices: Sequence[Device]) -> Failure | None:
    """Return the failure of a probe that advanced while a device did nothing; None if every device worked.

    `devices` are those of the plan, in the order of `result.devices`. On a single device, idleness is no failure: that
    device must have made the iterations. A window of less than a second shows no idleness.
    """
    if len(devices) < 2 or (result.window_s or 0.0) < 1.0:
        return None
    idle: list[str] = []
    for device, summary in zip(devices, result.devices, strict=False):  # a result without a window has no devices
        util_pct = summary.util_mean_pct
        if util_pct is not None and (util_pct <= 0.0 if device.is_gpu else util_pct < IDLE_PCT):
            idle.append(device.name)
    detail = f"{', '.join(idle)} did nothing while iterations advanced"
    return Failure(kind=FailureKind.IDLE_DEVICE, rule="idle", detail=detail) if idle else None
