"""What a trainer's output says about a failure: the rules that match, and the exception that began it. Pure."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tuner.probe.kinds import BREACH, KILLED, SESSION, FailureKind, by_priority
from tuner.probe.output import MAX_LINE_BYTES, plain
from tuner.probe.result import Failure
from tuner.probe.units import BYTES_PER_MIB, MIB_PER_GIB

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
class RootCause:
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
    cause: RootCause | None = None

    def begin(self) -> None:
        self.follows = self.follows and self.is_linked
        self.is_open, self.is_linked, self.raised_at, self.expects_statement = True, False, "", False

    def inside(self, text: str) -> None:
        if frame := _FRAME.match(text):
            self.raised_at, self.expects_statement = f" in {frame['file']}, line {frame['line']}", True
        elif self.expects_statement:
            self.raised_at, self.expects_statement = f"{self.raised_at}: {text.strip()}", False


class RootCauses:
    """Collects exceptions from an output, line by line."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._speaking: dict[str, str] = {}
        """Who writes lines, by their prefix → the stream whose traceback came last."""
        self._announced: dict[str, str] = {}
        """Who writes lines → the child process that a line such as `Process SpawnProcess-1:` has named."""
        self._consequence: RootCause | None = None

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
    def root(self) -> RootCause | None:
        """The earliest exception that did not follow from another process's end; None where there is none.

        Of each process its last exception counts, because a process survives all others. For the same reason only
        exceptions count that came shortly before the last one.
        """
        root: RootCause | None = None
        causes = [stream.cause for stream in self._streams.values() if stream.cause]
        for cause in sorted(causes, key=lambda one: one.t_s, reverse=True):
            if root is None or root.t_s - cause.t_s <= SURVIVED_S:
                root = cause
        return root

    @property
    def any(self) -> RootCause | None:
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
        cause = RootCause(t_s=t_s, text=said, rank=int(numbers[-1]) if rank is None and numbers else rank)
        stream.is_open = stream.is_linked = False
        if stream.follows or follows(line):
            stream.follows = True
            self._consequence = cause
        else:
            stream.cause = cause


def follows(line: str) -> bool:
    """Return whether a process raises this exception because another process has ended."""
    return bool(_FOLLOWS.search(line)) or any(rule.pattern.search(line) for rule in FailureKind.NCCL.rules)


NO_OUTPUT = "no output"
_QUOTED = 400
"""Messages show at most this many characters of a line; the console log has the whole line."""


def last_words(causes: RootCauses, lines: Sequence[str]) -> str:
    """Return the exception that began the crash, or the last of the lines where there was no exception."""
    if causes.any:
        return quoted(causes.any.text)
    return quoted(lines[-1].strip()) if lines else NO_OUTPUT


def quoted(line: str) -> str:
    """Return a line as a message shows it: a long line loses its middle."""
    return line if len(line) <= _QUOTED else f"{line[: _QUOTED // 2]} … {line[-_QUOTED // 2 :]}"


OUT_OF_MEMORY = {FailureKind.GPU_OOM, FailureKind.HOST_OOM}
TOLD = "told"
"""The name of the rule of a failure whose kind the trainer itself reported."""
KILL_SEEN_S = 3.0
"""A killed process is named at most this many seconds after its death: the guard must see it in two looks."""
MOST_BREACHES = 2
"""A trainer may break the session protocol this often, without progress in between, and still recover."""

MOST_RANKS = 1_000_000
"""A reported rank of this number or above is no rank."""

_TELLABLE = [kind for kind in FailureKind if kind is not FailureKind.INTERRUPTED]
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_DEAD_RANK = re.compile(
    r"^Process \S+-(?P<child>[0-9]{1,6}):$|^\[rank(?P<rank>[0-9]{1,6})\]: Traceback"
    r"|^-- Process (?P<spawned>[0-9]{1,6}) terminated with"
)
_FATAL_NOTE = re.compile(r"^\[tuner\] process \d+ was killed by |^" + re.escape(BREACH))
_SIZE = r"([0-9]{1,15}(?:\.[0-9]{1,15})?) (MiB|GiB)"
"""A size as PyTorch prints it. A number of more digits is no size, and Python refuses to read thousands of them."""
_RANK = re.compile(r"\[rank([0-9]{1,6})\]|device 'cuda:([0-9]{1,6})'|GPU ([0-9]{1,6}) has a total capacity")
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free")
_BYTES = re.compile(r"Failed to allocate ([0-9]{1,18}) bytes")
_KEPT_LINES = 200
_KEPT_CLUES = 20
_RULES = tuple(by_priority())


@dataclass(frozen=True, slots=True)
class _Clue:
    t_s: float
    text: str
    fatal: bool = False
    certain: bool = False
    rank: int | None = None
    kind: FailureKind | None = None


class Evidence:
    """Collects what the trainer's output says about a failure, until an iteration shows that there was none."""

    def __init__(self) -> None:
        self._clues: dict[str, list[_Clue]] = {}
        self._tail: deque[_Clue] = deque(maxlen=_KEPT_LINES)
        self._printed = RootCauses()
        self._reported = RootCauses()

    @property
    def fatal_t_s(self) -> float | None:
        """When the first line came that shows a rank may be dying; None where no such line came."""
        return min((clue.t_s for clue in self._each() if clue.fatal), default=None)

    @property
    def certain(self) -> bool:
        """Whether some line shows that a process is dying: no process writes such a line and goes on."""
        return any(clue.certain for clue in self._each()) or len(self._clues.get(SESSION, ())) > MOST_BREACHES

    @property
    def reported(self) -> bool:
        """Whether the trainer itself reported that it cannot go on."""
        return bool(self._clues.get(TOLD))

    def feed_report(self, failed: Mapping[str, Any], t_s: float) -> None:
        """Add the trainer's own `failed` record: its detail counts as output, and its kind comes before all rules."""
        lines = map(plain, str(failed.get("detail") or "")[:MAX_LINE_BYTES].splitlines())
        texts = [line.rstrip() for line in lines if line.strip()] or ["no detail"]
        rank = _rank_of(failed.get("rank"))
        own = RootCauses()
        for text in texts:
            self.feed(text, t_s, rank)
            self._reported.feed(text, t_s, rank)
            own.feed(text, t_s, rank)
        kind = next((kind for kind in _TELLABLE if kind == failed.get("kind")), None)
        self._keep(TOLD, _Clue(t_s, last_words(own, texts), fatal=True, certain=True, rank=rank, kind=kind))

    def feed(self, text: str, t_s: float, rank: int | None = None) -> None:
        """Add one line of the output; `rank` is the rank that wrote it, where that is known."""
        self._tail.append(_Clue(t_s, text))
        self._printed.feed(text, t_s, rank)
        kind, rule = next(((kind, rule) for kind, rule in _RULES if rule.pattern.search(text)), (None, None))
        certain = bool(_DEAD_RANK.search(text)) or kind is FailureKind.GPU_OOM
        raised = rule is not None and bool(EXCEPTION.search(text))
        fatal = certain or raised or bool(_TRACEBACK.search(text) or _FATAL_NOTE.search(text))
        if rule or fatal:
            self._keep(rule.name if rule else "", _Clue(t_s, text, fatal, certain, rank))

    def forget(self, before_s: float) -> None:
        """Forget what came before this time, because all ranks have completed an iteration that began then."""
        self._clues = {rule: [clue for clue in clues if clue.t_s >= before_s] for rule, clues in self._clues.items()}
        self._printed.forget(before_s)
        self._reported.forget(before_s)
        while self._tail and self._tail[0].t_s < before_s:
            self._tail.popleft()

    def failure(self) -> Failure | None:
        """Return the failure that the trainer reported, or else the failure of the first rule that matched.

        Of several reported failures, one of memory comes first. Rank and overshoot are set where a line names them.
        """
        named = self._named()
        kinds = [clue for clue in self._clues.get(TOLD, ()) if clue.kind]
        report = min(kinds, key=lambda clue: clue.kind not in OUT_OF_MEMORY, default=None)
        if report is None or report.kind is None:
            return named
        if named is not None and named.kind is report.kind:
            return replace(named, rank=report.rank if named.rank is None else named.rank)
        return Failure(kind=report.kind, rule=TOLD, detail=report.text, rank=report.rank)

    def _named(self) -> Failure | None:
        for kind, rule in _RULES:
            if (clues := self._clues.get(rule.name)) and not self._followed(kind, rule.name, clues):
                lines = [clue.text for clue in clues]
                sized = [line for line in lines if _overshoot_mib(line) is not None]
                return Failure(
                    kind=kind,
                    rule=rule.name,
                    detail=quoted((sized or lines)[0].strip()),
                    rank=self._rank(clues),
                    overshoot_mib=_overshoot_mib(sized[0]) if sized and kind is FailureKind.GPU_OOM else None,
                )
        return None

    def _followed(self, kind: FailureKind, rule: str, clues: Sequence[_Clue]) -> bool:
        """Return whether an exception of another process has led to what these lines show.

        A collective breaks when a rank ends for whatever reason, and a launcher kills the ranks that are left.
        """
        root = self.cause
        if root is None:
            return False
        return kind is FailureKind.NCCL or (rule == KILLED and root.t_s < clues[0].t_s - KILL_SEEN_S)

    def _keep(self, rule: str, clue: _Clue) -> None:
        clues = self._clues.setdefault(rule, [])
        if len(clues) < _KEPT_CLUES:
            clues.append(clue)

    def _each(self) -> Iterator[_Clue]:
        return chain.from_iterable(self._clues.values())

    @property
    def cause(self) -> RootCause | None:
        """The exception that began a crash; None where all exceptions followed from something else."""
        return (self._reported if self.reported else self._printed).root

    def last_words(self) -> str:
        """Return the line that best explains an unknown crash."""
        if reports := self._clues.get(TOLD):
            return last_words(self._reported, [clue.text for clue in reports])
        return last_words(self._printed, [clue.text for clue in self._tail])

    def _rank(self, clues: Sequence[_Clue]) -> int | None:
        for clue in clues:
            if clue.rank is not None:
                return clue.rank
            if found := _RANK.search(clue.text):
                return next(int(group) for group in found.groups() if group)
        dead = [found for clue in self._tail if (found := _DEAD_RANK.search(clue.text))]
        return int(dead[0]["child"] or dead[0]["rank"] or dead[0]["spawned"]) if dead else None


def _rank_of(reported: object) -> int | None:
    if isinstance(reported, bool) or not isinstance(reported, int):
        return None
    return reported if 0 <= reported < MOST_RANKS else None


def _overshoot_mib(line: str) -> float | None:
    """Return how much memory was requested beyond the free memory; the whole request where free memory is not named."""
    if found := _BYTES.search(line):
        return int(found[1]) / BYTES_PER_MIB
    if found := _ASKED.search(line):
        free = _FREE.search(line)
        asked_mib = _size_mib(found[1], found[2])
        return max(0.0, asked_mib - _size_mib(free[1], free[2])) if free else asked_mib
    return None


def _size_mib(number: str, unit: str) -> float:
    return float(number) * (MIB_PER_GIB if unit == "GiB" else 1)
