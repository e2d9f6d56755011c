"""A plan that runs on all nodes of a trial: what each of its watchers tells becomes one trainer's output."""

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple, TypeVar

from tuner.errors import TunerError
from tuner.nodes.messages import BEAT_S, ENDED_WITHIN_S, SILENT_S, Part, Word, refusal
from tuner.nodes.watcher import Heard, Watcher, end, on_our_clock, until
from tuner.probe import Clock, DeviceSample, OutputLine, ProbePlan
from tuner.probe.output import USUAL_BOUNDS, Log, unwritable
from tuner.probe.own_files import Keeping, Protection, folders_of, protected
from tuner.probe.process import prepare
from tuner.probe.progress_files import CountLine, MergedCounts

Item = TypeVar("Item")
LEAVE_S = 10.0
"""Seconds that the other nodes have to end after one has failed, so that the cause is heard and not only the echo."""
QUIET_S = 5.0
"""Seconds without a sign of life after which a node is named where the probe fails for any reason."""


class Waits(NamedTuple):
    """How long a watcher may take to answer."""

    start_s: float = 120.0
    """Seconds for its start, and for that of a part: `srun` waits for busy nodes."""
    end_s: float = USUAL_BOUNDS.term_grace_s + USUAL_BOUNDS.kill_s + 5.0
    """Seconds for the end of a part: those of its process, and the way of the messages."""
    beat_s: float = BEAT_S
    """Seconds between two signs of life of the tuner."""


USUAL_WAITS = Waits()


class NodeProcesses:
    """A plan that runs on all nodes; a `StartedProcess`."""

    pid = 0

    def __init__(
        self,
        plan: ProbePlan,
        watchers: Sequence[Watcher],
        inbox: "SimpleQueue[Heard]",
        clock: Clock,
        *,
        head: str,
        unsettled: list[Protection],
        waits: Waits,
    ) -> None:
        """Start the plan's command on each node. Raises the errors of `Launch`, and those of a node that refuses.

        `unsettled` gets what keeps the person's files where ranks of a lost node may write after `end`.
        """
        self._clock, self._inbox, self._origin_s, self._waits = clock, inbox, clock.now(), waits
        self.watchers = tuple(watchers)
        self.samples: deque[DeviceSample] = deque()
        """What devices showed and nobody has taken yet; times are on this side's clock."""
        self.lost: str | None = None
        """Why a node cannot be watched any more; None while all can."""
        self.quiet: str | None = None
        """Which nodes told nothing at the end; None where all did."""
        self._code, self._failed_s = 0, math.inf
        """The exit code of the first node that failed, and when it did."""
        self._refusal: TunerError | None = None
        self._lines: list[OutputLine] = []
        """What `lines` returns next."""
        self._has_ended = False
        self._is_astray = False
        """Whether ranks of a lost node may still run."""
        self._unsettled = unsettled
        self._oom_kills = {watcher.host: watcher.oom_kills for watcher in watchers}
        self._each = len(plan.slot.local_devices)
        self._count_lines: deque[CountLine] = deque()
        self._counts = MergedCounts(lambda: drained(self._count_lines)) if plan.is_counted else None
        prepare(replace(plan, is_counted=False))
        try:
            self._log = Log(plan.slot.console)
        except OSError as error:
            raise unwritable(plan.slot.console, error) from error
        self._protection = _protected(plan)
        for watcher in self.watchers:
            watcher.ask(Part(plan=plan, head=head))
        try:
            self._await_start(waits.start_s)
        except BaseException:
            self.end()
            raise

    def _await_start(self, limit_s: float) -> None:
        """Wait until each node has started its part, or until `lost` says which one cannot be watched.

        Raises the error of a node that refuses.
        """
        for watcher in (watcher for watcher in self.watchers if watcher.is_gone):
            self._heard(Heard(watcher, self._clock.now(), {"kind": "gone"}))
        waiting = {watcher.number: watcher.host for watcher in self.watchers}
        for heard in until(self._inbox, self._clock, limit_s):
            self._heard(heard)
            if self._refusal:
                raise self._refusal
            if heard.content["kind"] == "started":
                waiting.pop(heard.watcher.number, None)
            if not waiting or self.lost:
                return
        self.lost = f"{', '.join(waiting.values())}: nothing has started within {limit_s:g} s"

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return the new lines of all nodes; see `RunningTrainer.lines`. Raises the error of a node that gives up."""
        with suppress(Empty):
            self._heard(self._inbox.get(timeout=timeout_s or 1e-3))
            while True:
                self._heard(self._inbox.get_nowait())
        if self._refusal:
            raise self._refusal
        self.lost = self.lost or self._silent(SILENT_S)
        for text in self._counts.read() if self._counts else ():
            self._print(text, self._clock.now(), "progress")
        self._log.check()
        lines, self._lines = self._lines, []
        return lines

    def _print(self, text: str, at_s: float, stream: Literal["console", "progress"]) -> None:
        self._lines.append(OutputLine(t_s=at_s - self._origin_s, text=text, stream=stream))

    def _silent(self, limit_s: float) -> str | None:
        running = [watcher for watcher in self.watchers if watcher.code is None]
        silent = [watcher.host for watcher in running if self._clock.now() - watcher.heard_s > limit_s]
        return f"{', '.join(silent)} has told nothing for {limit_s:g} s" if silent else None

    def _heard(self, heard: Heard) -> None:
        """Note what a message says."""
        watcher = heard.watcher
        match heard.content:
            case _ if watcher not in self.watchers:
                pass
            case {"kind": "line", "text": text, "stream": "progress"}:
                self._print(on_our_clock(text, watcher.clock.behind_s), heard.at_s, "progress")
            case {"kind": "line" | "srun" as kind, "text": text}:
                watcher.recent.append(text)
                self._log.write([f"{watcher.host}: {text}"])
                if kind == "line" or "error" in text:
                    self._print(text, heard.at_s, "console")
            case content:
                self._note(watcher, content)

    def _note(self, watcher: Watcher, content: Mapping[str, Any]) -> None:
        """Note what a message without a line says."""
        behind_s = watcher.clock.behind_s
        match content:
            case {"kind": "count", "name": name, "text": text}:
                self._count_lines.append(CountLine(f"{watcher.number}-{name}", on_our_clock(text, behind_s)))
            case {"kind": "samples", "samples": samples}:
                for sample in samples:
                    moved = {"t_s": sample["t_s"] + behind_s, "device": watcher.number * self._each + sample["device"]}
                    self.samples.append(DeviceSample(**sample | moved))
            case {"kind": "lost", "why": why}:
                self.lost = self.lost or f"{watcher.host}: {why}"
            case {"kind": "refused"}:
                self._refusal = self._refusal or refusal(watcher.host, content)
                self._ended(watcher, -1)
            case {"kind": "exit", "code": code}:
                self._ended(watcher, -1 if code is None else code)
            case {"kind": "gone"} if watcher.code is None:
                self._ended(watcher, -1)
                self._is_astray = True
                if not self._has_ended:
                    errors = (text for text in reversed(watcher.recent) if text.startswith("srun: error"))
                    last_error = next(errors, "srun says nothing")
                    self.lost = self.lost or f"the watcher of {watcher.host} is gone ({last_error})"

    def _ended(self, watcher: Watcher, code: int) -> None:
        watcher.code = code
        if code and not self._code:
            self._code, self._failed_s = code, self._clock.now()

    @property
    def left(self) -> str | None:
        """The processes that still run after `end`; None when there are none."""
        return next((f"{watcher.host}: {watcher.left}" for watcher in self.watchers if watcher.left), None)

    @property
    def short_of_memory(self) -> list[str]:
        """The hosts on which the kernel has killed processes for lack of memory."""
        return [watcher.host for watcher in self.watchers if watcher.oom_kills > self._oom_kills[watcher.host]]

    def exit_code(self) -> int | None:
        """Return the exit code of the node that failed first, or 0 once all are done; None while any runs.

        After a failure, the other nodes have some seconds to tell of it, too.
        """
        is_over = self._clock.now() - self._failed_s > LEAVE_S
        if is_over:
            self.lost = self.lost or self._silent(QUIET_S)
        if self.lost and not self._has_ended:
            return None  # lost devices end the probe, too, and tell more
        return self._code if is_over or all(watcher.code is not None for watcher in self.watchers) else None

    def last_iteration(self, iteration: int) -> None:
        """Do nothing: a command takes no requests."""

    def release(self) -> int:
        """End everything: a command serves one probe only."""
        return self.end()

    def end(self) -> int:
        """End every process on all nodes, wait for them, and return the exit code.

        A watcher that does not answer is ended, too.
        """
        if not self._has_ended:
            self.quiet = self.lost or self._silent(QUIET_S)
            self._has_ended = True
            have_all_ended = False
            try:
                self._end_parts()
                have_all_ended = not self._is_astray
            finally:
                self._log.close()
                if self._protection and have_all_ended:
                    self._protection.close()
                elif self._protection:
                    self._unsettled.append(self._protection)
        return self._code

    def _end_parts(self) -> None:
        running = [watcher for watcher in self.watchers if watcher.code is None]
        for watcher in running:
            watcher.ask(Word.END)
        answers = until(self._inbox, self._clock, self._waits.end_s)
        while any(map(self._is_heard, running)) and (heard := next(answers, None)):
            self._heard(heard)
            running = [watcher for watcher in running if watcher.code is None]
        end(running, self._clock)
        self._is_astray |= bool(running)

    def _is_heard(self, watcher: Watcher) -> bool:
        """Return whether a watcher has lately given a sign of life, so that an answer may come."""
        return self._clock.now() - watcher.heard_s <= SILENT_S


def drained(queue: "deque[Item]") -> list[Item]:
    """Return what a queue holds, and leave it empty."""
    return [queue.popleft() for _ in range(len(queue))]


def _protected(plan: ProbePlan) -> Protection | None:
    """Return what keeps the person's files, from here: ranks of several nodes may share what they write."""
    with suppress(OSError):
        if plan.protects_files:
            keeping = Keeping(has_views=False, ended_within_s=ENDED_WITHIN_S)
            return protected(folders_of(plan.command(os.environ), plan.cwd), plan.slot.out_dir, keeping)
    return None
