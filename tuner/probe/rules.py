"""The lines that name failures: one row for each kind, in order of priority."""

import re
from dataclasses import dataclass

from tuner.probe.result import FailureKind


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that names a failure; rules stand in order of priority."""

    kind: FailureKind
    name: str
    pattern: re.Pattern[str]


def _rule(kind: FailureKind, name: str, *patterns: str) -> Rule:
    return Rule(kind, name, re.compile("|".join(patterns)))


KILLED = "killed"
"""The rule that a killed rank matches."""
SESSION = "session"
"""The rule that a breach of a session's protocol matches, as `BREACH` begins it."""
BREACH = "[tuner] session: "

RULES: tuple[Rule, ...] = (
    # Memory before everything: a rank out of memory makes its peers report NCCL, sockets and worse.
    _rule(
        FailureKind.GPU_OOM,
        "device memory",
        r"CUDA out of memory",
        r"\bOutOfMemoryError\b",
        r"(?i:CUDA error)(?: 2)?: out of memory",
        r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CU(?:BLAS|DNN|SPARSE|FFT)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)",
        r"Failed to allocate \d+ bytes on device 'cuda",
        r"Cuda failure (?:2 )?'?out of memory",
        r"RESOURCE_EXHAUSTED: Out of memory",
    ),
    _rule(
        FailureKind.HOST_OOM,
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
    # A rank that is killed breaks its peers' collectives; one that aborts has often been told to by NCCL itself.
    _rule(
        FailureKind.CRASH,
        KILLED,
        r"^\[tuner\] process \d+ was killed by SIG(?!ABRT)",
        r"terminated with signal SIG(?!ABRT|TERM)|Signal \d+ \(SIG(?!ABRT|TERM)\w+\) received by PID",
    ),
    _rule(
        FailureKind.NCCL,
        "collective",
        r"\bncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError|NCCL error",
        r"Watchdog caught collective operation timeout",
        r"\bDistBackendError|DistNetworkError|DistStoreError",
        r"\[\S{0,200}gloo/\S+\]",
        r"Gloo connectFullMesh failed",
    ),
    _rule(FailureKind.CRASH, SESSION, "^" + re.escape(BREACH)),
)
