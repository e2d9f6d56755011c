"""The kinds of failure, one row for each: whose fault, how the output shows it, what a user does about it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Blame(StrEnum):
    """Who is at fault when a probe gives no number; what the study does follows from it."""

    CONFIG = "config"
    """The search learns to avoid the config."""
    HOST = "host"
    """The config is tried a second time."""
    SETUP = "setup"
    """The case stops, and a message says what to do."""
    UNKNOWN = "unknown"
    """Three such failures in a row stop the case."""
    NOBODY = "nobody"
    """Something outside stopped the probe; the config is tried again."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern over single lines of output that names a failure."""

    name: str
    pattern: re.Pattern[str]
    last_resort: bool = False
    """Whether the rules of all other kinds come before this rule."""


def _rule(name: str, *patterns: str, last_resort: bool = False) -> Rule:
    return Rule(name, re.compile("|".join(patterns)), last_resort)


KILLED = "killed"
"""The name of the rule that a killed rank matches."""
SESSION = "session"
"""The name of the rule that a broken session protocol matches."""
BREACH = "[tuner] session: "
"""A line about a broken session protocol begins with this text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """Everything about one kind of failure."""

    word: str
    """Its name in databases and tables."""
    blame: Blame
    rules: tuple[Rule, ...] = ()
    """The lines that show this kind of failure; none where the tuner sees it in another way."""
    remedy: str | None = None
    """What the user does about it, where no other config would fare better."""
    says_nothing: bool = False
    """Whether the failure says nothing about the config: the config is tried again until it has been measured."""
    invalidity: str = "runtime"
    """The word for it in T4, the result schema of Kernel Tuner and others; recorded tables use these words."""


class FailureKind(StrEnum):
    """Why a probe gave no number; one row for each kind.

    The rows stand in order of priority: where lines match rules of several kinds, the first row wins. Memory comes
    first, because a rank that runs out of memory makes the other ranks report NCCL errors, closed sockets and worse.
    """

    blame: Blame
    rules: tuple[Rule, ...]
    remedy: str | None
    says_nothing: bool
    invalidity: str

    GPU_OOM = _Row(
        word="gpu_oom",
        blame=Blame.CONFIG,
        rules=(
            _rule(
                "device memory",
                r"CUDA out of memory",
                r"\bOutOfMemoryError\b",
                r"(?i:CUDA error)(?: 2)?: out of memory",
                r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
                r"CU(?:BLAS|DNN|SPARSE|FFT)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)",
                r"Failed to allocate \d+ bytes on device 'cuda",
                r"Cuda failure (?:2 )?'?out of memory",
                r"RESOURCE_EXHAUSTED: Out of memory",
            ),
        ),
    )
    HOST_OOM = _Row(
        word="host_oom",
        blame=Blame.CONFIG,
        rules=(
            _rule(
                "host memory",
                r"^(?:\[rank\d+\]: )?MemoryError\b",
                r"Cannot allocate memory",
                r"DefaultCPUAllocator: (?:can't|not enough)",
                r"Failed to allocate \d+ bytes on device 'cpu",
                r"insufficient shared memory",
                r"numpy\S{0,40}\.\w{0,20}ArrayMemoryError",
                r"std::bad_alloc",
                r"unable to (?:allocate shared memory|write to file </torch_)",
                r"DataLoader worker .{0,60} killed by signal: Killed",
            ),
        ),
    )
    PORT_IN_USE = _Row(
        word="port_in_use",
        blame=Blame.HOST,
        rules=(_rule("port", r"EADDRINUSE", r"[Aa]ddress already in use"),),
        remedy="look for a trainer that is still running",
        says_nothing=True,
    )
    GPU_LOST = _Row(
        word="gpu_lost",
        blame=Blame.HOST,
        rules=(
            _rule(
                "device lost",
                r"GPU is lost|fallen off the bus",
                r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE",
                r"uncorrectable (?:NVLink|ECC) error",
            ),
        ),
        remedy="`tuner doctor` shows what the driver says; the card may need a reset, or the machine a reboot",
        says_nothing=True,
    )
    GPU_BUSY = _Row(
        word="gpu_busy",
        blame=Blame.HOST,
        rules=(_rule("device busy", r"CUDA-capable device\(s\) is/are busy or unavailable"),),
        remedy="free the cards, then run the same command again",
        says_nothing=True,
    )
    MISSING_DEPENDENCY = _Row(
        word="missing_dependency",
        blame=Blame.SETUP,
        rules=(
            _rule(
                "import",
                r"\b(?:ModuleNotFoundError|ImportError): ",
                r"cannot open shared object file",
                r": Distributed package doesn't have \w+ built in",
            ),
        ),
        remedy="install it into the trainer's environment (`trainer.python` in the study file)",
    )
    MISSING_ASSET = _Row(
        word="missing_asset",
        blame=Blame.SETUP,
        rules=(
            _rule(
                "file",
                r"\bFileNotFoundError: (?!\[Errno 2\] No such file or directory$)",
                r"\bNotADirectoryError: ",
                r"can't open file '",
            ),
        ),
        remedy="put the file where the trainer looks for it (under `trainer.root`)",
    )
    INVALID_COMMAND = _Row(
        word="invalid_command",
        blame=Blame.SETUP,
        rules=(
            _rule(
                "command line",
                r"error: unrecognized (?:arguments|option)",
                r"[Nn]o such option: |[Uu]nrecognized options?: |Could not override '",
            ),
        ),
        remedy="correct the command in the study file",
    )
    INVALID_CONFIG = _Row(
        word="invalid_config",
        blame=Blame.CONFIG,
        rules=(
            _rule(
                "argument",
                r"Array shapes must be non-negative",
                r"CUDA error: invalid configuration argument",
                r"error: (?:argument |the following arguments are required)",
            ),
        ),
        invalidity="constraints",
    )
    CRASH = _Row(
        word="crash",
        blame=Blame.UNKNOWN,
        rules=(
            # A killed rank breaks the collectives of the others, so this rule comes before NCCL's. SIGABRT is left
            # out: NCCL itself often aborts a rank.
            _rule(
                KILLED,
                r"^\[tuner\] process \d+ was killed by SIG(?!ABRT)",
                r"terminated with signal SIG(?!ABRT|TERM)|Signal \d+ \(SIG(?!ABRT|TERM)\w+\) received by PID",
            ),
            _rule(SESSION, "^" + re.escape(BREACH), last_resort=True),
        ),
    )
    NCCL = _Row(
        word="nccl",
        blame=Blame.HOST,
        rules=(
            _rule(
                "collective",
                r"\bncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError|NCCL error",
                r"Watchdog caught collective operation timeout",
                r"\bDistBackendError|DistNetworkError|DistStoreError",
                r"\[\S{0,200}gloo/\S+\]",
                r"Gloo connectFullMesh failed",
            ),
        ),
    )
    NO_PROGRESS = _Row(
        word="no_progress",
        blame=Blame.SETUP,
        remedy="correct the `progress` patterns or the `progress_file` of the study file, or have the trainer call "
        "`report()` of tuner/progress.py; where only the start takes so long, raise "
        "`probe.start_up_silence_seconds` and `probe.max_seconds`",
    )
    NO_READING = _Row(
        word="no_reading",
        blame=Blame.HOST,
        remedy="the trial's line says what was not measured: let the trainer run longer or report less often, or name "
        "another `objective`",
        invalidity="correctness",
    )
    """The trainer did well, but what it reported cannot be measured. The word is that of a probe without a value."""
    IDLE_DEVICE = _Row(
        word="idle_device",
        blame=Blame.SETUP,
        remedy="let the command start one rank for each device ({ranks}, {devices}), or give the study fewer devices",
    )
    HANG = _Row(word="hang", blame=Blame.HOST, invalidity="timeout")
    TOO_SLOW = _Row(word="too_slow", blame=Blame.CONFIG, invalidity="timeout")
    INTERRUPTED = _Row(word="interrupted", blame=Blame.NOBODY)

    def __new__(cls, row: _Row) -> "FailureKind":
        """Make a member that equals the word of its row."""
        member = str.__new__(cls, row.word)
        member._value_ = row.word
        member.blame, member.rules, member.remedy = row.blame, row.rules, row.remedy
        member.says_nothing, member.invalidity = row.says_nothing, row.invalidity
        return member


def by_priority() -> Iterator[tuple[FailureKind, Rule]]:
    """Yield every rule with its kind, the rule that wins over all others first."""
    every = [(kind, rule) for kind in FailureKind for rule in kind.rules]
    return iter(sorted(every, key=lambda row: row[1].last_resort))
