"""Finds the exception that began a crash among the exceptions that followed from it. Pure.

After one rank has raised an error, the other ranks, the main process and the launcher raise errors, too. Those are
errors such as a closed connection, a broken pipe or a failed child. The cause is the first error that is not of this
kind.
"""

import re
from dataclasses import dataclass

from tuner.probe.kinds import FailureKind

EXCEPTION = re.compile(r"^(?:\[rank\d+\]: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: |$)")
"""Matches the last line of most Python tracebacks, with or without the prefix of a rank."""
SURVIVED_S = 30.0
"""A process that raised an exception this many seconds before the next exception has survived it."""

_PREFIX = re.compile(r"(?:\[[\w,]{1,30}\](?:<\w+>)?: ?|[0-9]{1,6}: )?")
"""What torch (`[rank1]: `), torchrun (`[default1]:`), mpirun (`[1,2]<stderr>:`) and srun (`2: `) put before a line."""
_HEADER = re.compile(r"\bTraceback \(most recent call last\)")
_CHILD = re.compile(r"^Process \S+:$")
_FRAME = re.compile(r'^\s+File "(?:[^"]*/)?(?P<file>[^"/]+)", line (?P<line>\d+)')
_RAISED = re.compile(r"^(?:\w+\.)*[A-Z_]\w*(?:: |:?$)")
"""Matches the last line of a traceback that is known to be one: `gymnasium.error.NameNotFound: …` counts, too."""
_LINK = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
_WORDLESS = re.compile(r"^[\w.]+:?$")
_FOLLOWS = re.compile(
    r"^(?:\w+\.)*(?:Connection(?:Reset|Aborted|Refused)Error|BrokenPipeError|EOFError:?$|KeyboardInterrupt|SystemExit"
    r"|SignalException|ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|BrokenProcessPool)"
    r"|DataLoader worker .{0,60} exited unexpectedly|^FileNotFoundError: \[Errno 2\] No such file or directory$"
)
"""Exceptions that a process raises because another process has ended; the last names no file (SemLock's `_rebuild`)."""
_MOST_STREAMS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """An exception that ended a process, or would have."""

    t_s: float
    text: str
    """Its line. An exception without a message is followed by the statement that raised it."""
    rank: int | None
    """The rank that raised it, where its line says so."""


@dataclass(slots=True)
class _Stream:
    """The tracebacks of one process, or of all processes that put the same prefix before their lines."""

    is_open: bool = False
    is_linked: bool = False
    """Whether the next traceback belongs to the same chain of exceptions."""
    follows: bool = False
    """Whether an exception of the chain followed from another process."""
    raised_at: str = ""
    expects_statement: bool = False
    cause: Cause | None = None

    def begin(self) -> None:
        self.follows = self.follows and self.is_linked
        self.is_open, self.is_linked, self.raised_at, self.expects_statement = True, False, "", False

    def inside(self, text: str) -> None:
        if frame := _FRAME.match(text):
            self.raised_at, self.expects_statement = f" in {frame['file']}, line {frame['line']}", True
        elif self.expects_statement:
            self.raised_at, self.expects_statement = f"{self.raised_at}: {text.strip()}", False


class Causes:
    """Collects exceptions from an output, line by line."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._speaking: dict[str, str] = {}
        """Who writes lines, by their prefix → the stream whose traceback came last."""
        self._announced: dict[str, str] = {}
        """Who writes lines → the child process that a line such as `Process SpawnProcess-1:` has named."""
        self._consequence: Cause | None = None

    def feed(self, text: str, t_s: float = 0.0, rank: int | None = None) -> None:
        """Add one line of the output; `rank` is the rank that wrote it, where that is known."""
        prefix = found[0] if (found := _PREFIX.match(text)) else ""
        line, writer = text[len(prefix) :].rstrip(), f"{prefix if rank is None else rank}"
        stream = self._streams.get(self._speaking.get(writer, writer))
        inside = stream is not None and stream.is_open
        if _HEADER.search(line) or (not inside and _FRAME.match(line)):
            stream = self._begun(writer, stream)
            stream.begin()
            stream.inside(line)
        elif stream and inside and not _RAISED.match(line):
            stream.inside(line)
        elif inside or EXCEPTION.match(line):
            self._raise(stream or self._stream(writer), line, prefix, t_s, rank)
        elif stream and _LINK.match(line):
            stream.is_linked = True
        elif _CHILD.match(line):
            self._announced[writer] = line

    def forget(self, before_s: float) -> None:
        """Forget the exceptions before this time."""
        for key in [key for key, stream in self._streams.items() if stream.cause and stream.cause.t_s < before_s]:
            del self._streams[key]
        if self._consequence and self._consequence.t_s < before_s:
            self._consequence = None

    @property
    def root(self) -> Cause | None:
        """The earliest exception that did not follow from another process's end; None where there is none.

        Of each process its last exception counts, because a process survives all others. For the same reason only
        exceptions count that came shortly before the last one.
        """
        root: Cause | None = None
        causes = [stream.cause for stream in self._streams.values() if stream.cause]
        for cause in sorted(causes, key=lambda one: one.t_s, reverse=True):
            if root is None or root.t_s - cause.t_s <= SURVIVED_S:
                root = cause
        return root

    @property
    def any(self) -> Cause | None:
        """The root, or else the last exception."""
        return self.root or self._consequence

    def _begun(self, writer: str, last: _Stream | None) -> _Stream:
        """Return the stream of a traceback that begins: that of its chain, of the named child, or of the writer."""
        if last and last.is_linked:
            return last
        self._speaking[writer] = writer + self._announced.pop(writer, "")
        return self._stream(self._speaking[writer])

    def _stream(self, key: str) -> _Stream:
        if key not in self._streams and len(self._streams) >= _MOST_STREAMS:
            return _Stream()
        return self._streams.setdefault(key, _Stream())

    def _raise(self, stream: _Stream, line: str, prefix: str, t_s: float, rank: int | None) -> None:
        numbers = re.findall(r"\d+", prefix)
        said = f"{prefix}{line}{stream.raised_at if _WORDLESS.match(line) else ''}"
        cause = Cause(t_s=t_s, text=said, rank=int(numbers[-1]) if rank is None and numbers else rank)
        stream.is_open = stream.is_linked = False
        if stream.follows or follows(line):
            stream.follows = True
            self._consequence = cause
        else:
            stream.cause = cause


def follows(line: str) -> bool:
    """Return whether a process raises this exception because another process has ended."""
    return bool(_FOLLOWS.search(line)) or any(rule.pattern.search(line) for rule in FailureKind.NCCL.rules)
