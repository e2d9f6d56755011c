"""Finds out from a trainer's output why it failed: by rules that lines match, and by the first exception. Pure.

A clue is a line that says something about a failure. When a process ends, others that wait for it raise exceptions,
too: the first exception is the cause of a crash, and these are its consequences. Rules are those of `failures.toml`.
"""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any, NamedTuple

from tuner.probe.output import MAX_LINE_BYTES, printable
from tuner.probe.quantities import BYTES_PER_MIB, MIB_PER_GIB
from tuner.probe.result import BREACH, KILLED, RULES, SESSION, Failure, FailureKind

OUT_OF_MEMORY = {FailureKind.GPU_OOM, FailureKind.HOST_OOM}
REPORTED = "told"
"""The name of the rule of a failure whose kind the trainer itself reported."""
NO_OUTPUT = "no output"
"""What stands for the last words of a trainer that has printed nothing."""

_EXCEPTION = re.compile(r"^(?:\[rank\d+\]: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: |$)")
"""Matches the last line of most Python tracebacks, with or without the prefix of a rank."""
_FRAME = re.compile(r'^\s+File "(?:[^"]*/)?(?P<file>[^"/]+)", line (?P<line>\d+)')


class Clue(NamedTuple):
    """A line of the output, or the trainer's own report, that says something about a failure."""

    t_s: float
    text: str
    """An exception without a message is followed by the statement that raised it."""
    rank: int | None = None
    """The rank that wrote it, where that is known."""
    is_fatal: bool = False
    """Whether it shows that a rank may be dying."""
    is_certain: bool = False
    """Whether it shows that a process is dying: none writes such a line and goes on."""
    kind: FailureKind | None = None
    """The kind of the failure that the trainer itself reported."""


@dataclass(slots=True)
class _Stream:
    """The tracebacks of one process, or of all processes that put the same prefix before their lines."""

    is_open: bool = False
    """Whether the last line of the traceback is still to come."""
    is_linked: bool = False
    """Whether a line has said that the next traceback belongs to the same chain of exceptions."""
    is_consequence: bool = False
    """Whether an exception of the chain followed from the end of another process."""
    raised_at: str = ""
    """Where the innermost frame stands, and its statement: ` in train.py, line 12: assert ready`."""
    is_statement_next: bool = False
    """Whether the last line named the file of a frame: its statement comes next."""
    cause: Clue | None = None
    """The last exception that no end of another process has caused."""

    def note_frame(self, text: str) -> None:
        """Note the place and the statement of a frame; `text` is a line inside a traceback, which may be either."""
        if frame := _FRAME.match(text):
            self.raised_at, self.is_statement_next = f" in {frame['file']}, line {frame['line']}", True
        elif self.is_statement_next:
            self.raised_at, self.is_statement_next = f"{self.raised_at}: {text.strip()}", False


class RootCauses:
    """Follows the tracebacks in an output, line by line, to find the exception that began a crash.

    A writer is a rank, or all processes that put the same prefix before their lines. A writer whose line names a child
    process has a stream of tracebacks for that child, too.
    """

    SURVIVED_S = 30.0
    """A process that raised an exception this many seconds before the next exception has survived it."""
    _PREFIX = re.compile(r"(?:\[[\w,]{1,30}\](?:<\w+>)?: ?|[0-9]{1,6}: )?")
    """What torch (`[rank1]: `), torchrun (`[default1]:`), mpirun (`[1,2]<stderr>:`) and srun (`2: `) put first."""
    _HEADER = re.compile(r"\bTraceback \(most recent call last\)")
    _CHILD_NAME = re.compile(r"^Process \S+:$")
    """Matches the line with which multiprocessing names the process whose traceback follows."""
    _RAISED = re.compile(r"^(?:\w+\.)*[A-Z_]\w*(?:: |:?$)")
    """Matches the last line of a traceback that is known to be one: `gymnasium.error.NameNotFound: …` counts, too."""
    _LINK = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
    _FOLLOWS = re.compile(
        r"^(?:\w+\.)*(?:Connection(?:Reset|Aborted|Refused)Error|BrokenPipeError|EOFError:?$|KeyboardInterrupt|SystemExit"
        r"|SignalException|ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|BrokenProcessPool)"
        r"|DataLoader worker .{0,60} exited unexpectedly|^FileNotFoundError: \[Errno 2\] No such file or directory$"
    )
    """Exceptions that a process raises because another one has ended; the last names no file (SemLock's `_rebuild`)."""

    def __init__(self) -> None:
        """Look for the exception that began a crash."""
        self._streams: dict[str, _Stream] = {}
        """The key of a stream, which is a writer and perhaps the name of its child process → the tracebacks."""
        self._newest_keys: dict[str, str] = {}
        """A writer → the key of the stream of its newest traceback: its own stream, or that of a child process."""
        self._child_of_next_traceback: dict[str, str] = {}
        """A writer → its line, such as `Process SpawnProcess-1:`, which says whose traceback comes next."""
        self.consequence: Clue | None = None
        """The last exception that followed from the end of another process."""

    def feed(self, text: str, t_s: float = 0.0, rank: int | None = None) -> None:
        """Read the next line of the output, and keep the exception with which a traceback ends.

        The line begins, continues or ends a traceback of its writer, or none of these. An exception that was raised
        while another was handled has the same cause. `rank` is the rank that wrote the line; None if unknown.
        """
        match = self._PREFIX.match(text)
        prefix = match[0] if match else ""
        line = text[len(prefix) :].rstrip()
        writer = f"{prefix if rank is None else rank}"
        stream = self._streams.get(self._newest_keys.get(writer, writer))
        is_in_traceback = stream is not None and stream.is_open
        # a frame alone begins a traceback, too: its header may be lost
        begins_traceback = self._HEADER.search(line) or (not is_in_traceback and _FRAME.match(line))
        if begins_traceback:
            if not (stream and stream.is_linked):  # a new chain, perhaps of a child process with the writer's prefix
                self._newest_keys[writer] = writer + self._child_of_next_traceback.pop(writer, "")
                stream = self._streams.setdefault(self._newest_keys[writer], _Stream())
            stream.is_consequence = stream.is_consequence and stream.is_linked  # a new chain may be a cause
            stream.is_open, stream.is_linked, stream.raised_at, stream.is_statement_next = True, False, "", False
            stream.note_frame(line)
        elif stream and is_in_traceback and not self._RAISED.match(line):
            stream.note_frame(line)
        elif is_in_traceback or _EXCEPTION.match(line):  # the last line of a traceback, or an exception without one
            self._end_traceback(stream or self._streams.setdefault(writer, _Stream()), line, prefix, t_s, rank)
        elif stream and self._LINK.match(line):
            stream.is_linked = True
        elif self._CHILD_NAME.match(line):
            self._child_of_next_traceback[writer] = line

    def drop_before(self, t_s: float) -> None:
        """Drop the exceptions before this time, because the training has gone on after them."""
        for stream in self._streams.values():
            if stream.cause and stream.cause.t_s < t_s:
                stream.cause = None
        if self.consequence and self.consequence.t_s < t_s:
            self.consequence = None

    @property
    def root_cause(self) -> Clue | None:
        """The exception that began the crash; None without one.

        Only the last exception of each process counts, because the process has survived its earlier ones, and only if
        it did not follow from the end of another process. Of these, the earliest began the crash. But where the next
        one comes more than `SURVIVED_S` later, the process has survived the earlier one, too.
        """
        earliest: Clue | None = None
        causes = [stream.cause for stream in self._streams.values() if stream.cause]
        for cause in sorted(causes, key=lambda cause: cause.t_s, reverse=True):  # backwards, up to the first long gap
            if earliest is None or earliest.t_s - cause.t_s <= self.SURVIVED_S:
                earliest = cause
        return earliest

    def _end_traceback(self, stream: _Stream, line: str, prefix: str, t_s: float, rank: int | None) -> None:
        """End a traceback with its last line, and keep its exception as a cause or as a consequence."""
        prefix_numbers = re.findall(r"\d+", prefix)  # the last one is the rank, as in `[1,2]<stderr>:`
        if rank is None and prefix_numbers:
            rank = int(prefix_numbers[-1])
        has_no_message = re.match(r"^[\w.]+:?$", line) is not None
        exception = Clue(t_s, prefix + line + (stream.raised_at if has_no_message else ""), rank)
        stream.is_open = stream.is_linked = False
        is_of_nccl = any(pattern.search(line) for pattern in FailureKind.NCCL.rules.values())
        if stream.is_consequence or self._FOLLOWS.search(line) or is_of_nccl:
            stream.is_consequence = True  # and so are further exceptions of its chain
            self.consequence = exception
        else:
            stream.cause = exception


_TORCHRUN_ENDS = re.compile(r"torch[./]distributed[./]elastic\b.*(?:closing signal|failed \(exitcode)")
"""Matches the lines with which torchrun reports that a rank has ended; its own `ChildFailedError` follows."""


def crash_line(causes: RootCauses, lines: Sequence[str]) -> str:
    """Return the exception that began a crash, or else the last line, shortened for a message.

    A rank may end without an exception, as by `SystemExit("unknown key")`. torchrun then raises `ChildFailedError`, and
    the line before torchrun's first one says more than that.

    Args:
        causes: The exceptions in the output.
        lines: The last lines of the output. Those without a letter or digit, such as the rule below a table, do not
            count.
    """
    lines = [line for line in lines if re.search(r"\w", line)] or lines
    exception = causes.root_cause or causes.consequence
    before_torchrun = list(takewhile(lambda line: not _TORCHRUN_ENDS.search(line), lines))
    is_of_torchrun = exception and "ChildFailedError" in exception.text and len(before_torchrun) < len(lines)
    if before_torchrun and (exception is None or is_of_torchrun):
        return quoted(before_torchrun[-1].strip())
    if exception:
        return quoted(exception.text)
    return quoted(lines[-1].strip()) if lines else NO_OUTPUT


def quoted(line: str) -> str:
    """Return a line as a message shows it: a line of more than 400 characters loses its middle."""
    return line if len(line) <= 400 else f"{line[:200]} … {line[-200:]}"


class Evidence:
    """Collects the clues to a failure from a trainer's output, until an iteration shows that there was none."""

    KILL_SEEN_S = 3.0
    """A killed process is named at most this many seconds after its death: the guard must see it in two looks."""
    _DEAD_RANK = re.compile(
        r"^Process \S+-(?P<child>[0-9]{1,6}):$|^\[rank(?P<rank>[0-9]{1,6})\]: Traceback"
        r"|^-- Process (?P<spawned>[0-9]{1,6}) terminated with"
    )
    """Matches lines with which a rank, or the process that has spawned it, reports the rank's death."""
    _FATAL = re.compile(
        r"Traceback \(most recent call last\)|^\[tuner\] process \d+ was killed by |^" + re.escape(BREACH)
    )
    """Matches lines after which a rank may be dying, whatever rule they match."""
    _RANK = re.compile(r"\[rank([0-9]{1,6})\]|device 'cuda:([0-9]{1,6})'|GPU ([0-9]{1,6}) has a total capacity")
    """Matches the number of a rank in a line of torch."""

    def __init__(self) -> None:
        self._clues: dict[str, list[Clue]] = {}
        """The name of a rule → the first lines that it has matched; the empty name stands for no rule."""
        self._tail: deque[Clue] = deque(maxlen=200)
        """The last lines of the output."""
        self._printed_causes = RootCauses()

    @property
    def fatal_t_s(self) -> float | None:
        """When the first line came that shows a rank may be dying; None if no such line came."""
        return min((clue.t_s for clue in self._all_clues() if clue.is_fatal), default=None)

    @property
    def is_certain(self) -> bool:
        """Whether some line shows for sure that a process is dying.

        The third breach of a session's protocol does so, too; a session may survive two of them.
        """
        return any(clue.is_certain for clue in self._all_clues()) or len(self._clues.get(SESSION, ())) > 2

    @property
    def reported(self) -> Sequence[Clue]:
        """The failures that the trainer itself has reported."""
        return self._clues.get(REPORTED, ())

    def feed_report(self, message: Mapping[str, Any], t_s: float) -> None:
        """Add the message with which the trainer itself reports a failure.

        Its `detail` counts as output, too, and its `kind` comes before all rules.

        Args:
            message: The message, which a script may have written: its fields may be anything.
            t_s: When it came.
        """
        lines = map(printable, str(message.get("detail") or "")[:MAX_LINE_BYTES].splitlines())
        texts = [line.rstrip() for line in lines if line.strip()] or ["no detail"]
        rank = message.get("rank")
        if type(rank) is not int or not 0 <= rank < 1_000_000:
            rank = None
        causes = RootCauses()  # those in the detail alone
        for text in texts:
            self.feed(text, t_s, rank)
            causes.feed(text, t_s, rank)
        kinds = [kind for kind in FailureKind if kind is not FailureKind.INTERRUPTED]  # only the user interrupts
        kind = next((kind for kind in kinds if kind == message.get("kind")), None)
        self._add(REPORTED, Clue(t_s, crash_line(causes, texts), rank, is_fatal=True, is_certain=True, kind=kind))

    def feed(self, text: str, t_s: float, rank: int | None = None) -> None:
        """Add one line of the output; keep it as a clue if a rule matches it, or if it shows that a rank may be dying.

        `rank` is the rank that wrote the line; None if that is not known.
        """
        self._tail.append(Clue(t_s, text))
        self._printed_causes.feed(text, t_s, rank)
        kind, rule = next(((kind, rule) for kind, rule, pattern in RULES if pattern.search(text)), (None, ""))
        is_certain = bool(self._DEAD_RANK.search(text)) or kind is FailureKind.GPU_OOM
        is_known_exception = kind is not None and bool(_EXCEPTION.search(text))
        is_fatal = is_certain or is_known_exception or bool(self._FATAL.search(text))
        if kind or is_fatal:
            self._add(rule, Clue(t_s, text, rank, is_fatal=is_fatal, is_certain=is_certain))

    def drop_before(self, t_s: float) -> None:
        """Drop all lines before this time, because all ranks have completed an iteration that began then."""
        self._clues = {rule: [clue for clue in clues if clue.t_s >= t_s] for rule, clues in self._clues.items()}
        self._printed_causes.drop_before(t_s)
        while self._tail and self._tail[0].t_s < t_s:
            self._tail.popleft()

    def failure(self) -> Failure | None:
        """Return the failure that the trainer reported, or else that of the first rule that matched; None if none did.

        Of several reports, a report of memory comes first: other ranks may fail because of it. If a rule shows the same
        kind of failure as the report, the rule's failure is returned, because it may say how much memory was missing.
        """
        printed = self._printed_failure()
        reports = [(clue, clue.kind) for clue in self.reported if clue.kind]
        if not reports:
            return printed
        report, kind = next((pair for pair in reports if pair[1] in OUT_OF_MEMORY), reports[0])
        if printed is not None and printed.kind is kind:
            return replace(printed, rank=report.rank if printed.rank is None else printed.rank)
        return Failure(kind=kind, rule=REPORTED, detail=report.text, rank=report.rank)

    def _printed_failure(self) -> Failure | None:
        """Return the failure of the first rule that matched lines; None without such a rule.

        Lines that only follow from the crash of another rank are left out: when a rank ends for whatever reason,
        collectives of NCCL break, and a launcher kills the ranks that are left.
        """
        cause_s = self.cause.t_s if self.cause else math.inf
        for kind, rule, _ in RULES:
            if not (clues := self._clues.get(rule)):
                continue
            # a rank that was killed before the exception, and named a moment after it, is itself the cause
            was_killed_later = rule == KILLED and cause_s < clues[0].t_s - self.KILL_SEEN_S
            if was_killed_later or (kind is FailureKind.NCCL and self.cause):
                continue
            lines = [clue.text for clue in clues]
            # a line that says how much memory was requested is the most useful
            detail = next((line for line in lines if _overshoot_mib(line) is not None), lines[0])
            return Failure(
                kind=kind,
                rule=rule,
                detail=quoted(detail.strip()),
                rank=self._rank(clues),
                overshoot_mib=_overshoot_mib(detail) if kind is FailureKind.GPU_OOM else None,
            )
        return None

    def _add(self, rule: str, clue: Clue) -> None:
        """Keep a line that a rule has matched, up to 20 for each rule."""
        if len(clues := self._clues.setdefault(rule, [])) < 20:
            clues.append(clue)

    def _all_clues(self) -> Iterator[Clue]:
        """Return all lines that are kept, whatever rule they match."""
        return chain.from_iterable(self._clues.values())

    @property
    def cause(self) -> Clue | None:
        """The trainer's own report, or else the exception that began a crash; None if neither is known."""
        return self.reported[0] if self.reported else self._printed_causes.root_cause

    def crash_line(self) -> str:
        """Return the line that best explains an unknown crash."""
        if self.reported:
            return self.reported[0].text
        return crash_line(self._printed_causes, [clue.text for clue in self._tail])

    def _rank(self, clues: Sequence[Clue]) -> int | None:
        """Return the rank that some lines name, or else the first rank that has died; None if none is known."""
        for clue in clues:
            rank = clue.rank if clue.rank is not None else _first_number(self._RANK, clue.text)
            if rank is not None:
                return rank
        dead = (_first_number(self._DEAD_RANK, clue.text) for clue in self._tail)
        return next((rank for rank in dead if rank is not None), None)


def _first_number(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the number in the first group that a pattern finds in a text; None if it does not match."""
    match = pattern.search(text)
    return int(next(filter(None, match.groups()))) if match else None


_SIZE = r"([0-9]{1,15}(?:\.[0-9]{1,15})?) (MiB|GiB)"
"""A size as PyTorch prints it. A number of more digits is no size, and Python refuses to read thousands of them."""
_REQUEST = re.compile(rf"Tried to allocate {_SIZE}(?:.*of which {_SIZE} is free)?")


def _overshoot_mib(line: str) -> float | None:
    """Return how much memory a line requested beyond the free memory; None if it requested none.

    Without a word about free memory, this is the whole request.
    """
    if match := re.search(r"Failed to allocate ([0-9]{1,18}) bytes", line):
        return int(match[1]) / BYTES_PER_MIB
    if match := _REQUEST.search(line):
        size, unit, free, free_unit = match.groups("0")
        in_mib = {"GiB": MIB_PER_GIB}
        return max(0.0, float(size) * in_mib.get(unit, 1) - float(free) * in_mib.get(free_unit, 1))
    return None
