"""A plan that runs on all nodes of a trial: the messages of their watchers become the output of one trainer.

A watcher is a process on a node, which runs the node's part of the plan and reports what the part does: see `agent`. A
watcher is gone when its connection has ended, and silent when no sign of life comes. Its ranks may then still run.
"""

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple, TypeVar

from tuner.errors import TunerError
from tuner.nodes import watcher as watching
from tuner.nodes.watcher import BEAT_S, ENDED_WITHIN_S, SILENT_S, Command, Message, RunPart, Watcher
from tuner.probe import Clock, DeviceSample, OutputLine, ProbePlan
from tuner.probe.count_files import CountLine, MergedCounts
from tuner.probe.output import USUAL_BOUNDS, Log
from tuner.probe.own_files import Protection, ProtectionMeans, folders_of, protected
from tuner.probe.probe_plan import StartedProcess
from tuner.probe.process import prepare

Item = TypeVar("Item")
LEAVE_S = 10.0
"""Seconds that the other nodes have to end after one has failed: theirs may be the cause of its failure."""
QUIET_S = 5.0
"""Seconds without a sign of life after which a node is named where the probe fails for any reason."""


class Timing(NamedTuple):
    """How long the tuner waits for a watcher, and how often it gives watchers a sign of life."""

    start_s: float = 120.0
    """Seconds for its start, and for the start of a part: `srun` waits for busy nodes."""
    end_s: float = USUAL_BOUNDS.term_grace_s + USUAL_BOUNDS.kill_s + 5.0
    """Seconds for the end of a part: for the end of its process, and five for the messages."""
    beat_s: float = BEAT_S
    """Seconds between two signs of life of the tuner."""


USUAL_TIMING = Timing()


class NodeProcesses(StartedProcess):
    """A plan that runs on all nodes."""

    pid = 0
    """No process of this machine."""

    def __init__(
        self,
        plan: ProbePlan,
        watchers: Sequence[Watcher],
        inbox: "SimpleQueue[Message]",
        clock: Clock,
        *,
        head: str,
        protections: list[Protection],
        timing: Timing,
    ) -> None:
        """Start the plan's command on each node. Raises the errors of `Launch`, and the error of a node that refuses.

        Args:
            plan: The plan.
            watchers: The watchers of the nodes that the plan uses, the first node's first.
            inbox: The messages of all watchers.
            clock: Times the messages.
            head: The host where the ranks of all nodes meet.
            protections: The person's files are protected until `end`; see `own_files`. If ranks of a lost node may
                still write then, `end` leaves the protection open and adds it here, so that the caller closes it.
            timing: How long watchers may take to answer.
        """
        self._clock, self._inbox, self._origin_s, self._timing = clock, inbox, clock.now(), timing
        self.watchers = tuple(watchers)
        self.samples: deque[DeviceSample] = deque()
        """The samples that nobody has taken yet; times are on this side's clock."""
        self.lost: str | None = None
        """Why a node cannot be watched any more; None while all can."""
        self.silent_at_end: str | None = None
        """Which nodes were silent at the end; None if none was."""
        self._code = 0
        """The exit code of the first node that failed; 0 before that."""
        self._failed_s = math.inf
        """When the first node failed."""
        self._refusal: TunerError | None = None
        self._lines: list[OutputLine] = []
        """The lines that `lines` returns next."""
        self._has_ended = False
        self._may_have_left_ranks = False
        """Whether ranks of a lost node may still run."""
        self._left_protections = protections
        self._oom_kills = {watcher.host: watcher.oom_kills for watcher in watchers}
        """Host → the processes that its kernel had killed for lack of memory at the start."""
        self._devices_per_node = len(plan.slot.local_devices)
        self._count_lines: deque[CountLine] = deque()
        self.counts = MergedCounts(lambda: drained(self._count_lines))
        prepare(replace(plan, is_counted=False))  # each watcher makes the folder of its counts
        self._log = Log(plan.slot.console)
        self._protection = _protected(plan)
        for watcher in self.watchers:
            watcher.ask(RunPart(plan=plan, head=head))
        try:
            self._await_start(timing.start_s)
        except BaseException:
            self.end()
            raise

    def _await_start(self, limit_s: float) -> None:
        """Wait until each node has started its part, or until `lost` says which one cannot be watched.

        Raises the error of a node that refuses.
        """
        for watcher in self.watchers:
            if watcher.is_gone:  # the message about that may have been taken before this plan
                self._handle(Message(watcher, self._clock.now(), {"kind": "gone"}))
        waiting = {watcher.number: watcher.host for watcher in self.watchers}
        for message in watching.messages_until(self._inbox, self._clock, limit_s):
            self._handle(message)
            if self._refusal:
                raise self._refusal
            if message.content["kind"] == "started":
                waiting.pop(message.watcher.number, None)
            if not waiting or self.lost:
                return
        self.lost = f"{', '.join(waiting.values())}: nothing has started within {limit_s:g} s"

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return the new lines of all nodes; wait up to `timeout_s` seconds for the first message.

        Raises the error of a node that gives up.
        """
        with suppress(Empty):
            self._handle(self._inbox.get(timeout=timeout_s or 1e-3))  # a message may be on its way, so 0 waits a little
            while True:  # all others that have come
                self._handle(self._inbox.get_nowait())
        if self._refusal:
            raise self._refusal
        self.lost = self.lost or self._silence(SILENT_S)
        for text in self.counts.read():
            self._print(text, self._clock.now(), "progress")
        self._log.check()
        lines, self._lines = self._lines, []
        return lines

    def _print(self, text: str, at_s: float, stream: Literal["console", "progress"]) -> None:
        """Add a line that came at `at_s` to those that `lines` returns next."""
        self._lines.append(OutputLine(t_s=at_s - self._origin_s, text=text, stream=stream))

    def _silence(self, limit_s: float) -> str | None:
        """Return a sentence that names running nodes without a sign of life for `limit_s`; None without any."""
        running = [watcher for watcher in self.watchers if watcher.code is None]
        silent = [watcher.host for watcher in running if self._clock.now() - watcher.heard_s > limit_s]
        return f"no word from {', '.join(silent)} for {limit_s:g} s" if silent else None

    def _handle(self, message: Message) -> None:
        """Take a message of a watcher into account. A message of a node that the plan does not use is ignored."""
        watcher = message.watcher
        match message.content:
            case _ if watcher not in self.watchers:
                pass
            case {"kind": "line", "text": text, "stream": "progress"}:  # a message of the trainer
                self._print(watching.on_our_clock(text, watcher.clock.behind_s), message.at_s, "progress")
            case {"kind": "line" | "srun" as kind, "text": text}:
                watcher.recent.append(text)
                self._log.write([f"{watcher.host}: {text}"])
                if kind == "line" or "error" in text:  # `srun` also prints remarks that say nothing about the training
                    self._print(text, message.at_s, "console")
            case content:
                self._handle_measurement_or_end(watcher, content)

    def _handle_measurement_or_end(self, watcher: Watcher, content: Mapping[str, Any]) -> None:
        """Take a message with measurements (counts, or samples of devices), or about the end of a part, into account.

        A part ends when its devices are lost, its watcher refuses to start it, its trainer exits, or the watcher is
        gone. Of several reasons, the first one is kept. A part that ends without an exit code gets -1.
        """
        behind_s = watcher.clock.behind_s
        match content:
            case {"kind": "count", "name": name, "text": text}:
                self._count_lines.append(CountLine(f"{watcher.number}-{name}", watching.on_our_clock(text, behind_s)))
            case {"kind": "samples", "samples": samples}:
                first_device = watcher.number * self._devices_per_node
                for sample in samples:
                    moved = {"t_s": sample["t_s"] + behind_s, "device": first_device + sample["device"]}
                    self.samples.append(DeviceSample(**sample | moved))
            case {"kind": "lost", "why": why}:
                self.lost = self.lost or f"{watcher.host}: {why}"
            case {"kind": "refused"}:
                self._refusal = self._refusal or watching.refusal(watcher.host, content)
                self._set_code(watcher, -1)
            case {"kind": "exit", "code": code}:
                self._set_code(watcher, -1 if code is None else code)
            case {"kind": "gone"} if watcher.code is None:
                self._set_code(watcher, -1)
                self._may_have_left_ranks = True
                if not self._has_ended:  # after the end, a watcher goes because it is told to
                    errors = (text for text in reversed(watcher.recent) if text.startswith("srun: error"))
                    last_error = next(errors, "srun says nothing")
                    self.lost = self.lost or f"the watcher of {watcher.host} is gone ({last_error})"

    def _set_code(self, watcher: Watcher, code: int) -> None:
        """Note the exit code of a node. The first one other than 0 becomes that of the whole."""
        watcher.code = code
        if code and not self._code:
            self._code, self._failed_s = code, self._clock.now()

    @property
    def still_running(self) -> str | None:
        """The processes that still run after `end`; None when there are none."""
        processes = (f"{watcher.host}: {watcher.still_running}" for watcher in self.watchers if watcher.still_running)
        return next(processes, None)

    @property
    def short_of_memory(self) -> list[str]:
        """The hosts on which the kernel has killed processes for lack of memory."""
        return [watcher.host for watcher in self.watchers if watcher.oom_kills > self._oom_kills[watcher.host]]

    def exit_code(self) -> int | None:
        """Return the exit code of the node that failed first, or 0 once all have ended without a failure; None before.

        After the first failure, it stays None for `LEAVE_S` or until all nodes have ended, so that others can report
        failures, too. Before `end`, it is also None if a node is lost: the caller reads `lost`, which says more.
        """
        grace_is_over = self._clock.now() - self._failed_s > LEAVE_S
        if grace_is_over:
            self.lost = self.lost or self._silence(QUIET_S)
        if self.lost and not self._has_ended:
            return None
        have_all_ended = all(watcher.code is not None for watcher in self.watchers)
        return self._code if grace_is_over or have_all_ended else None

    def end(self) -> int:
        """End every process on all nodes, wait for them, and return the exit code.

        The person's files stay protected where ranks of a lost node may still write to them. A second call only returns
        the exit code.
        """
        if self._has_ended:
            return self._code
        self.silent_at_end = self.lost or self._silence(QUIET_S)  # before the end, which silences all
        self._has_ended = True  # first: after an error, a second call shall not wait again
        have_all_ended = False
        try:
            self._end_parts()
            have_all_ended = not self._may_have_left_ranks
        finally:
            self._log.close()
            if self._protection and have_all_ended:
                self._protection.close()
            elif self._protection:
                self._left_protections.append(self._protection)
        return self._code

    def _end_parts(self) -> None:
        """Let all watchers end their parts of the plan, wait for that, and end the watchers that do not answer.

        A watcher that has not answered may have left ranks behind. Nobody waits for a watcher that is silent already.
        """
        unanswered = [watcher for watcher in self.watchers if watcher.code is None]
        for watcher in unanswered:
            watcher.ask(Command.END_PART)
        answers = watching.messages_until(self._inbox, self._clock, self._timing.end_s)
        while any(self._clock.now() - watcher.heard_s <= SILENT_S for watcher in unanswered):
            if (message := next(answers, None)) is None:  # the time for answers is over
                break
            self._handle(message)  # an answer gives a watcher its `code`
            unanswered = [watcher for watcher in unanswered if watcher.code is None]
        watching.end_watchers(unanswered, self._clock)
        self._may_have_left_ranks |= bool(unanswered)


def drained(queue: "deque[Item]") -> list[Item]:
    """Take all items out of a queue, and return them."""
    return [queue.popleft() for _ in range(len(queue))]  # another thread may add some meanwhile


def _protected(plan: ProbePlan) -> Protection | None:
    """Begin to protect the person's files, and return the protection.

    None if the plan does not protect them, or if that is not possible. The watchers do not protect them, because ranks
    of several nodes may write to the same files.
    """
    if not plan.protects_files:
        return None
    folders = folders_of(plan.command(os.environ), plan.cwd, plan.slot.out_dir)
    return protected(folders, plan.slot.out_dir, ProtectionMeans(has_views=False, ended_within_s=ENDED_WITHIN_S))
