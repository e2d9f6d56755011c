"""Lets a training script write down what it really trains. Without the variable TRUTH_FILE, nothing is written.

Each process appends lines `seconds, pid, what, value` to the file, with tabs between them. The seconds are those of
`time.monotonic()`. After each step of the optimizer, `what` is `samples`, and the value is the samples that this
process has trained so far. Other work is `begin` and `end` with its name: preparation, evaluation or checkpoint.
The first lines of a process are its ancestors: `ancestor`, with the pid and the second at which each one started.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_counted: dict[int, int] = {}
"""Process → the samples that it has written down."""


def step(samples: int) -> None:
    """Add the samples of one step of the optimizer, which this process has just taken."""
    total(_counted.get(os.getpid(), 0) + int(samples))


def total(samples: int) -> None:
    """Write down all samples that this process has trained so far."""
    _write("samples", int(samples))
    _counted[os.getpid()] = int(samples)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Write down when work that trains nothing begins and ends."""
    begin(name)
    yield
    end(name)


def begin(name: str) -> None:
    """Write down that work that trains nothing begins."""
    _write("begin", name)


def end(name: str) -> None:
    """Write down that work that trains nothing has ended."""
    _write("end", name)


def _write(what: str, value: object) -> None:
    path, pid = os.environ.get("TRUTH_FILE"), os.getpid()
    if not path:
        return
    rows = [(what, value)]
    if pid not in _counted:
        rows[:0] = [("ancestor", f"{one}:{began_s:.2f}") for one, began_s in _ancestors(pid)]
        _counted[pid] = 0
    text = "".join(f"{time.monotonic():.4f}\t{pid}\t{name}\t{shown}\n" for name, shown in rows)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, text.encode())  # one call, so that the lines of two processes do not mix
    finally:
        os.close(file)


def _ancestors(pid: int) -> Iterator[tuple[int, float]]:
    """Yield a process and its ancestors with the seconds at which they started."""
    ticks = os.sysconf("SC_CLK_TCK")
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()  # while the machine was suspended
    while pid > 1:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        yield pid, int(fields[19]) / ticks - asleep_s
        pid = int(fields[1])
