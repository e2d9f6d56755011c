"""The guard: a process between the tuner and a trainer that runs one command and leaves no process behind.

The tuner starts the guard as a script, `python -I -S guard.py GRACE_SECONDS COMMAND…`. Its standard input is one end
of a socket pair. The guard is the subreaper of every process below the command, so it also finds grandchildren that
left the command's process group. Each of them names the guard in its environment: by that, `end_orphans` of
`process.py` finds and ends what a killed guard leaves behind.

The guard ends all processes in three cases: the command exits, the tuner asks for it, or the tuner is gone (even after
`kill -9`, because the socket closes). It sends TERM first, and KILL after the grace time.

The guard writes JSON lines to the socket: `{"pid": …}` when the command runs, `{"exit": code}` when no process is
left, and `{"error": text}` when the command cannot be started.

The guard adds lines of its own to the command's output:
- one line for each process that a signal killed and that nobody has collected. A killed rank prints nothing, and its
  peers wait for it for ever;
- now and then, a line with the processes that KILL has not ended, such as a process that hangs in a driver. The guard
  waits for them.

The guard imports the standard library only: `-I -S` hides every other package.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

GUARD_VARIABLE = "TUNER_GUARD"
"""The environment variable by which every process below the command names its guard: see `identity`."""
MEMORY = "TUNER_MEMORY_MIB"
"""The environment variable with the memory that each process below the command may have (setrlimit(2), RLIMIT_DATA)."""
STATE, PARENT, START, EXIT_STATUS = 0, 1, 19, 49
"""The positions of fields of /proc/PID/stat, counted after the process's name (proc(5): fields 3, 4, 22 and 52)."""
POLL_S = 0.01
"""Seconds between two attempts to collect the processes that are to end."""
SCAN_S = 1.0
"""Seconds between two looks for killed processes. A killed process counts when two looks in a row find it."""
SLOW_S = 5.0
"""A process that lives for this many seconds after KILL is named, and the guard then looks once every `SCAN_S`."""
NAMED_EVERY_S = 60.0
"""Seconds between two lines that name the processes that KILL has not ended."""
KILLING = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSEGV}
"""The signals that count as killing a process; TERM and INT ask it to end."""


def main() -> None:
    """Run the command of the arguments until it exits or the tuner is gone, and end all processes below it.

    Standard input is the socket to the tuner.
    """
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER (linux/prctl.h): orphans below become children of this process
    signal.signal(signal.SIGTERM, lambda *_: None)  # a handler, unlike SIG_IGN, is not inherited by the trainer
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited SIG_IGN would hide all exit codes
    with socket.socket(fileno=0) as tuner:
        try:
            trainer = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, GUARD_VARIABLE: identity(os.getpid())},
                process_group=0,
                preexec_fn=lambda: _prepare(libc),  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            _say(tuner, error=f"{error.strerror}: {error.filename}")
            return
        _say(tuner, pid=trainer.pid)
        _wait_for_either(trainer, tuner)
        end_all(Descendants(trainer), grace_s)
        _say(tuner, exit=trainer.returncode)


def _prepare(libc: ctypes.CDLL) -> None:
    """Prepare the new process for the command: it dies with this process, and its memory is limited."""
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG (linux/prctl.h)
    if limit := os.environ.get(MEMORY):
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit) << 20, int(limit) << 20))


def _say(tuner: socket.socket, **message: object) -> None:
    """Write a message to the tuner; nothing happens if the tuner is gone."""
    with contextlib.suppress(OSError):
        tuner.sendall(json.dumps(message).encode() + b"\n")


def _wait_for_either(trainer: "subprocess.Popen[bytes]", tuner: socket.socket) -> None:
    """Return when the command has exited, or the tuner has sent something or is gone; report killed processes."""
    exited = os.pidfd_open(trainer.pid)  # becomes readable when the command has exited
    before: dict[int, str] = {}
    reported: set[int] = set()
    ready: list[int | socket.socket] = []
    while not ready:
        ready, _, _ = select.select([exited, tuner], [], [], SCAN_S)
        if tuner not in ready:
            now = killed(os.getpid())
            # a parent may be about to collect a process, so it counts when two scans find it; at the end, one suffices
            for pid in (now.keys() if ready else now.keys() & before.keys()) - reported:
                _write(f"\n[tuner] process {pid} was killed by {now[pid]}\n")
                reported.add(pid)
            before = now
    os.close(exited)


def _write(line: str) -> None:
    """Add a line to the command's output. A full pipe drops the line, because the guard must not wait."""
    with contextlib.suppress(OSError):
        # a second handle, because O_NONBLOCK on standard output itself would also affect the command
        pipe = os.open("/proc/self/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, line.encode())
        finally:
            os.close(pipe)


class Descendants:
    """Every process below this process, direct child or not; only this process collects their exit codes."""

    def __init__(self, trainer: "subprocess.Popen[bytes]") -> None:
        self._trainer = trainer

    def signal(self, number: int) -> None:
        """Send a signal to each process. A process of another user, started with `sudo`, cannot be signalled."""
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def reap(self) -> bool:
        """Read the exit codes of the processes that have exited (wait(2)); return whether any process is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._trainer.pid:
                    self._trainer.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def named(self) -> str:
        """Return the names of the processes that are left."""
        return named(os.getpid())


def end_all(
    processes: Descendants,
    grace_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    write: Callable[[str], None] = _write,
) -> None:
    """End and collect every descendant: TERM, then KILL after `grace_s` seconds; `write` which ones outlive KILL.

    `now` returns the time in seconds, and `sleep` waits for some seconds.
    """
    kill_s = now() + grace_s
    name_s = slow_s = kill_s + SLOW_S  # when processes are named next; from when on they are looked at less often
    processes.signal(signal.SIGTERM)
    while processes.reap():
        if now() >= kill_s:
            processes.signal(signal.SIGKILL)
        if now() >= name_s:
            write(f"\n[tuner] waiting for what KILL has not ended: {processes.named()}\n")
            name_s += NAMED_EVERY_S
        sleep(POLL_S if now() < slow_s else SCAN_S)


def identity(pid: int) -> str:
    """Return a name of a process that no later process gets, not even with the same id; "" for no process.

    It consists of the namespace of process ids, the process id, and the start of the process in clock ticks.
    """
    try:
        return f"{os.readlink('/proc/self/ns/pid')}/{pid}/{_fields(pid)[START]}"  # noqa: PTH115 - pathlib takes long to import
    except OSError:
        return ""


def named(root: int) -> str:
    """Return the processes below `root` in words, with their states (proc(5)); no signal reaches one in state D."""
    return ", ".join(f"pid {pid} (state {fields[STATE]})" for pid, fields in descendants(root).items())


def killed(root: int) -> dict[int, str]:
    """Return pid → signal of each process below `root` that a signal killed and whose exit code nobody has read."""
    signals: dict[int, str] = {}
    for pid, fields in descendants(root).items():
        number = os.WTERMSIG(int(fields[EXIT_STATUS]))
        if fields[STATE] == "Z" and number in KILLING:
            signals[pid] = signal.Signals(number).name
    return signals


def descendants(root: int) -> dict[int, list[str]]:
    """Return all processes below `root`: pid → the fields of /proc/PID/stat after the process's name (proc(5))."""
    fields: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                fields[pid] = _fields(pid)
                children.setdefault(int(fields[pid][PARENT]), []).append(pid)
    family, unvisited = {}, [root]
    while unvisited:
        below = children.get(unvisited.pop(), [])
        family |= {pid: fields[pid] for pid in below}
        unvisited += below
    return family


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the process's name. Raises OSError if there is no such process."""
    # pathlib would double this script's start-up time; the kernel cuts names after 15 bytes, even mid-character
    with open(f"/proc/{pid}/stat", errors="replace") as stat:  # noqa: PTH123
        return stat.read().rpartition(")")[2].split()


if __name__ == "__main__":
    main()
