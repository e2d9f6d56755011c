"""What a trainer's output says about why it failed. Pure: rules over lines, first matching rule wins."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.probe.result import Failure, FailureKind
from tuner.units import BYTES_PER_MIB, MIB_PER_GIB


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that names a failure; rules stand in order of priority."""

    kind: FailureKind
    name: str
    pattern: re.Pattern[str]


def _rule(kind: FailureKind, name: str, *patterns: str) -> Rule:
    return Rule(kind, name, re.compile("|".join(patterns)))


RULES: tuple[Rule, ...] = (
    # Memory before everything: a rank out of memory makes its peers report NCCL, sockets and worse.
    _rule(
        FailureKind.GPU_OOM,
        "device memory",
        r"CUDA out of memory",
        r"\bOutOfMemoryError\b",
        r"CUDA error(?: 2)?: out of memory",
        r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CU(?:BLAS|DNN|SPARSE|FFT)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)",
        r"Failed to allocate \d+ bytes on device 'cuda",
        r"Cuda failure 2 '?out of memory",
    ),
    _rule(
        FailureKind.HOST_OOM,
        "host memory",
        r"^(?:\[rank\d+\]: )?MemoryError\b",
        r"Cannot allocate memory",
        r"DefaultCPUAllocator: (?:can't|not enough)",
        r"Failed to allocate \d+ bytes on device 'cpu",
        r"insufficient shared memory",
        r"numpy\S*\.\w*ArrayMemoryError",
        r"DataLoader worker .* killed by signal: Killed",
    ),
    _rule(FailureKind.PORT_IN_USE, "port", r"EADDRINUSE", r"[Aa]ddress already in use"),
    _rule(
        FailureKind.GPU_LOST,
        "device lost",
        r"GPU is lost|fallen off the bus",
        r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE",
        r"uncorrectable (?:NVLink|ECC) error",
    ),
    _rule(FailureKind.GPU_BUSY, "device busy", r"CUDA-capable device\(s\) is/are busy or unavailable"),
    _rule(
        FailureKind.MISSING_DEPENDENCY,
        "import",
        r"\b(?:ModuleNotFoundError|ImportError): ",
        r"cannot open shared object file",
    ),
    _rule(
        FailureKind.MISSING_ASSET,
        "file",
        r"\bFileNotFoundError: ",
        r"\bNotADirectoryError: ",
        r"can't open file '",
    ),
    _rule(
        FailureKind.INVALID_CONFIG,
        "argument",
        r"Array shapes must be non-negative",
        r"CUDA error: invalid configuration argument",
        r"error: (?:unrecognized arguments|argument |the following arguments are required)",
    ),
    _rule(
        FailureKind.NCCL,
        "collective",
        r"\bncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError|NCCL error",
        r"Watchdog caught collective operation timeout",
        r"\bDistBackendError|DistNetworkError|DistStoreError",
        r"\[\S*gloo/\S+\]",
        r"Gloo connectFullMesh failed",
    ),
)

_EXCEPTION = re.compile(r"^(?:\[rank\d+\]: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: |$)")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_DEAD_RANK = re.compile(r"^Process \S+-(?P<child>\d+):$|^\[rank(?P<rank>\d+)\]: ")
_RANK = re.compile(r"\[rank(\d+)\]|device 'cuda:(\d+)'|GPU (\d+) has a total capacity")
_ASKED = re.compile(r"Tried to allocate ([\d.]+) (MiB|GiB)")
_FREE = re.compile(r"of which ([\d.]+) (MiB|GiB) is free")
_BYTES = re.compile(r"Failed to allocate (\d+) bytes")
_KEPT_LINES = 200
_KEPT_MATCHES = 20


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


class Evidence:
    """Collects what speaks of a failure since the last iteration; progress refutes it."""

    def __init__(self) -> None:
        self._matches: dict[str, deque[str]] = {}
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self.fatal_t_s: float | None = None
        """When the first line of a dying rank came, if one did."""
        self.certain = False
        """Whether the lines since are such as only a process that dies of them writes."""

    def feed(self, text: str, t_s: float) -> None:
        """Take one line of the trainer's output into account."""
        self._tail.append(text)
        rule = next((rule for rule in RULES if rule.pattern.search(text)), None)
        if rule:
            self._matches.setdefault(rule.name, deque(maxlen=_KEPT_MATCHES)).append(text)
        raised = bool(_EXCEPTION.search(text))
        memory = rule is not None and rule.kind is FailureKind.GPU_OOM
        certain = bool(_DEAD_RANK.search(text)) or memory or (raised and rule is not None)
        if certain or raised or _TRACEBACK.search(text):
            self.fatal_t_s = t_s if self.fatal_t_s is None else self.fatal_t_s
            self.certain = self.certain or certain

    def refute(self) -> None:
        """Forget what was collected: an iteration has been completed since."""
        self._matches.clear()
        self._tail.clear()
        self.fatal_t_s, self.certain = None, False

    def failure(self) -> Failure | None:
        """Give the failure of the first rule that matched, with rank and overshoot where the lines name them."""
        for rule in RULES:
            if lines := self._matches.get(rule.name):
                sized = [line for line in lines if _overshoot_mib(line) is not None]
                return Failure(
                    kind=rule.kind,
                    rule=rule.name,
                    detail=(sized or list(lines))[0].strip(),
                    rank=self._rank(list(lines)),
                    overshoot_mib=_overshoot_mib(sized[0]) if sized and rule.kind is FailureKind.GPU_OOM else None,
                )
        return None

    def last_words(self) -> str:
        """Give the line that best says why an unknown crash happened."""
        spoken = [line for line in self._tail if _EXCEPTION.search(line)] or list(self._tail)
        return spoken[-1].strip() if spoken else "no output"

    def _rank(self, lines: Sequence[str]) -> int | None:
        for line in lines:
            if found := _RANK.search(line):
                return next(int(group) for group in found.groups() if group)
        dead = [found for line in self._tail if (found := _DEAD_RANK.search(line))]
        return int(dead[0]["child"] or dead[0]["rank"]) if dead else None


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
    evidence: Evidence, end: End, *, exit_code: int | None, missing: Sequence[str], measured: bool, oom_kills: int
) -> Failure | None:
    """Decide whether a probe failed and why; None when its window counts.

    `missing` names expected files that are not there, `measured` says whether there is a window, `oom_kills` counts
    processes that the kernel ended for want of memory while the probe ran.
    """
    if end is End.INTERRUPTED:
        return Failure(kind=FailureKind.INTERRUPTED, rule="user", detail="stopped by the user")
    if end is End.STOPPED or (end in (End.ENOUGH, End.OUT_OF_TIME) and measured):
        return None
    if end is End.EXITED and exit_code == 0 and measured and not missing:
        return None
    if oom_kills:
        return Failure(kind=FailureKind.HOST_OOM, rule="kernel", detail=f"the kernel ended {oom_kills} process(es)")
    return evidence.failure() or _unexplained(evidence, end, exit_code, missing)


def _unexplained(evidence: Evidence, end: End, exit_code: int | None, missing: Sequence[str]) -> Failure:
    if end is End.HANG:
        return Failure(kind=FailureKind.HANG, rule="silence", detail=f"no progress after: {evidence.last_words()}")
    if end is End.ENOUGH:
        detail = "the iterations are too short to be told apart; raise probe.iterations"
        return Failure(kind=FailureKind.CRASH, rule="no window", detail=detail)
    if end is End.OUT_OF_TIME:
        detail = "the time limit came before enough iterations"
        return Failure(kind=FailureKind.TOO_SLOW, rule="time limit", detail=detail)
    if end is End.EXITED and exit_code == 0:
        detail = f"exit code 0 without {', '.join(missing)}" if missing else "exit code 0 before enough iterations"
        return Failure(kind=FailureKind.CRASH, rule="incomplete", detail=detail)
    code = "" if end is End.FATAL else f"exit code {exit_code}: "
    return Failure(kind=FailureKind.CRASH, rule="exit", detail=f"{code}{evidence.last_words()}")
