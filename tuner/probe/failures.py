"""What a trainer's output says about why it failed. Pure: the first of the rules that a line has matched wins."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from tuner.probe.result import Failure, FailureKind
from tuner.probe.rules import KILLED, RULES
from tuner.units import BYTES_PER_MIB, MIB_PER_GIB

OUT_OF_MEMORY = {FailureKind.GPU_OOM, FailureKind.HOST_OOM}

_EXCEPTION = re.compile(r"^(?:\[rank\d+\]: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: |$)")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_DEAD_RANK = re.compile(
    r"^Process \S+-(?P<child>\d+):$|^\[rank(?P<rank>\d+)\]: Traceback|^-- Process (?P<spawned>\d+) terminated with"
)
_KILLED_PROCESS = re.compile(r"^\[tuner\] process \d+ was killed by ")
_RANK = re.compile(r"\[rank(\d+)\]|device 'cuda:(\d+)'|GPU (\d+) has a total capacity")
_ASKED = re.compile(r"Tried to allocate ([\d.]+) (MiB|GiB)")
_FREE = re.compile(r"of which ([\d.]+) (MiB|GiB) is free")
_BYTES = re.compile(r"Failed to allocate (\d+) bytes")
_KEPT_LINES = 200
_KEPT_CLUES = 20


class End(StrEnum):
    """Why a probe is over."""

    ENOUGH = "enough"
    """The iterations asked for have been seen."""
    EXITED = "exited"
    """The trainer ended by itself."""
    FATAL = "fatal"
    """A rank died and nothing moved afterwards."""
    HANG = "hang"
    """Neither lines nor iterations came any more."""
    OUT_OF_TIME = "out_of_time"
    """The time limit."""
    STOPPED = "stopped"
    """The pruner said so."""
    INTERRUPTED = "interrupted"
    """The user said so."""


@dataclass(frozen=True, slots=True)
class _Clue:
    t_s: float
    text: str
    fatal: bool = False
    certain: bool = False


class Evidence:
    """Collects what the trainer's output says of a failure, until progress refutes it."""

    def __init__(self) -> None:
        self._clues: dict[str, list[_Clue]] = {}
        self._tail: deque[_Clue] = deque(maxlen=_KEPT_LINES)

    @property
    def fatal_t_s(self) -> float | None:
        """When the first line of a rank that may be dying came, if one did."""
        return min((clue.t_s for clue in self._each() if clue.fatal), default=None)

    @property
    def certain(self) -> bool:
        """Whether there are lines such as only a process that dies of them writes."""
        return any(clue.certain for clue in self._each())

    def feed(self, text: str, t_s: float) -> None:
        """Take one line of the trainer's output into account."""
        self._tail.append(_Clue(t_s, text))
        rule = next((rule for rule in RULES if rule.pattern.search(text)), None)
        certain = bool(_DEAD_RANK.search(text)) or (rule is not None and rule.kind is FailureKind.GPU_OOM)
        raised = rule is not None and bool(_EXCEPTION.search(text))
        fatal = certain or raised or bool(_TRACEBACK.search(text) or _KILLED_PROCESS.search(text))
        clues = self._clues.setdefault(rule.name if rule else "", [])
        if (rule or fatal) and len(clues) < _KEPT_CLUES:
            clues.append(_Clue(t_s, text, fatal, certain))

    def forget(self, before_s: float) -> None:
        """Forget what came before: an iteration that began then has been completed by all ranks."""
        self._clues = {rule: [clue for clue in clues if clue.t_s >= before_s] for rule, clues in self._clues.items()}
        while self._tail and self._tail[0].t_s < before_s:
            self._tail.popleft()

    def failure(self) -> Failure | None:
        """Give the failure of the first rule that matched, with rank and overshoot where the lines name them."""
        for rule in RULES:
            if lines := [clue.text for clue in self._clues.get(rule.name, [])]:
                sized = [line for line in lines if _overshoot_mib(line) is not None]
                return Failure(
                    kind=rule.kind,
                    rule=rule.name,
                    detail=(sized or lines)[0].strip(),
                    rank=self._rank(lines),
                    overshoot_mib=_overshoot_mib(sized[0]) if sized and rule.kind is FailureKind.GPU_OOM else None,
                )
        return None

    def _each(self) -> Iterator[_Clue]:
        return chain.from_iterable(self._clues.values())

    def last_words(self) -> str:
        """Give the line that best says why an unknown crash happened."""
        lines = [clue.text for clue in self._tail]
        spoken = [line for line in lines if _EXCEPTION.search(line)] or lines
        return spoken[-1].strip() if spoken else "no output"

    def _rank(self, lines: Sequence[str]) -> int | None:
        for line in lines:
            if found := _RANK.search(line):
                return next(int(group) for group in found.groups() if group)
        dead = [found for clue in self._tail if (found := _DEAD_RANK.search(clue.text))]
        return int(dead[0]["child"] or dead[0]["rank"] or dead[0]["spawned"]) if dead else None


def _overshoot_mib(line: str) -> float | None:
    """Read how much memory was asked for beyond what was free; where free memory is not named, the whole request."""
    if found := _BYTES.search(line):
        return int(found[1]) / BYTES_PER_MIB
    if found := _ASKED.search(line):
        free = _FREE.search(line)
        asked_mib = _size_mib(found[1], found[2])
        return max(0.0, asked_mib - _size_mib(free[1], free[2])) if free else asked_mib
    return None


def _size_mib(number: str, unit: str) -> float:
    return float(number) * (MIB_PER_GIB if unit == "GiB" else 1)


def classify(
    evidence: Evidence,
    end: End,
    *,
    exit_code: int | None,
    missing: Sequence[str],
    measured: bool,
    oom_kills: int,
    behind: int | None = None,
) -> Failure | None:
    """Decide whether a probe failed and why; None when its window counts.

    `missing` names expected files that are not there, `measured` says whether there is a window, `oom_kills` counts
    processes that the kernel ended for want of memory while the probe ran, `behind` is the rank that had fallen behind
    the others, if one had.
    """
    if end is End.INTERRUPTED:
        return Failure(kind=FailureKind.INTERRUPTED, rule="user", detail="stopped by the user")
    if (end is End.HANG and evidence.fatal_t_s is not None) or (end is End.OUT_OF_TIME and evidence.certain):
        end = End.FATAL  # its peers kept on talking
    named = evidence.failure()
    out_of_memory = evidence.certain and named is not None and named.kind in OUT_OF_MEMORY
    if not out_of_memory and _ran_its_course(end, exit_code, missing, measured, behind):
        return None
    if oom_kills and (named is None or named.rule == KILLED):
        return Failure(kind=FailureKind.HOST_OOM, rule="kernel", detail=f"the kernel ended {oom_kills} process(es)")
    return named or _unexplained(end, exit_code, missing, behind, evidence.last_words())


def _ran_its_course(
    end: End, exit_code: int | None, missing: Sequence[str], measured: bool, behind: int | None
) -> bool:
    if end is End.EXITED:
        return measured and exit_code == 0 and not missing and behind is None
    return end is End.STOPPED or (measured and end in {End.ENOUGH, End.OUT_OF_TIME})


def _unexplained(
    end: End, exit_code: int | None, missing: Sequence[str], behind: int | None, last_words: str
) -> Failure:
    finished = end is End.EXITED and exit_code == 0
    if end is End.HANG or (behind is not None and (finished or end is End.OUT_OF_TIME)):
        rank = "" if behind is None else f"rank {behind} fell behind; "
        detail = f"{rank}no progress after: {last_words}"
        return Failure(kind=FailureKind.HANG, rule="silence", detail=detail, rank=behind)
    if end is End.ENOUGH:
        detail = "the iterations are too short to be told apart; raise probe.iterations"
        return Failure(kind=FailureKind.CRASH, rule="no window", detail=detail)
    if end is End.OUT_OF_TIME:
        detail = "the time limit came before enough iterations"
        return Failure(kind=FailureKind.TOO_SLOW, rule="time limit", detail=detail)
    if finished:
        detail = f"exit code 0 without {', '.join(missing)}" if missing else "exit code 0 before enough iterations"
        return Failure(kind=FailureKind.CRASH, rule="incomplete", detail=detail)
    code = "" if end is End.FATAL else f"exit code {exit_code}: "
    return Failure(kind=FailureKind.CRASH, rule="exit", detail=f"{code}{last_words}")
