"""Ends the processes that a killed guard has left behind.

A guard is the parent of last resort of all processes below its command. Once it is killed, grandchildren with a session
of their own have no such parent. They still carry the guard's mark in their environment.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

from tuner.probe.guard import MARK, identity

POLL_S = 0.02
"""Seconds between two searches for processes that have not ended yet."""
_MARKED = re.compile(rb"(?:^|\0)" + MARK.encode() + rb"=([^\0]*)")


def end_orphans(
    within_s: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> list[int]:
    """Kill the processes whose guard does not run any more; wait until they have ended, at most `within_s` seconds.

    Returns the ids of those that still run. Processes of other users, and of other namespaces of process ids, are left
    alone, because nothing can be known of their guards. So are processes that have cleared their environment.
    """
    until_s = now() + within_s
    while left := [pid for pid in _processes() if _kill_orphan(pid)]:
        if now() >= until_s:
            break
        sleep(POLL_S)
    return left


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())


def _kill_orphan(pid: int) -> bool:
    """Kill a process if it is an orphan, and return whether it is.

    The handle is opened before the mark is read, so no other process can get the signal.
    """
    if pid == os.getpid() or not _is_orphan(pid):
        return False
    with suppress(OSError), ExitStack() as stack:
        handle = os.pidfd_open(pid)
        stack.callback(os.close, handle)
        if _is_orphan(pid):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
    return False


def _is_orphan(pid: int) -> bool:
    """Return whether a process names a guard of this namespace that does not run."""
    mark = _mark(pid)
    namespace, _, guard = mark.rpartition("/")[0].rpartition("/")
    if not guard.isdigit() or mark == os.environ.get(MARK) or not identity(os.getpid()).startswith(f"{namespace}/"):
        return False
    return identity(int(guard)) != mark


def _mark(pid: int) -> str:
    """Return the mark of a process; "" for a process without a mark, of another user, or gone."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - three times faster
        if found := _MARKED.search(file.read()):
            return found[1].decode(errors="replace")
    return ""
