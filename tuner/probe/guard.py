"""Runs one command and leaves nothing behind: the process between the tuner and a trainer.

Started as a script of its own, `python -I -S guard.py GRACE_SECONDS COMMAND…`, with one end of a socket pair as its
standard input. It is the subreaper of all that the command starts, so it finds grandchildren even when they left the
command's process group. It ends them all, TERM first and KILL after the grace time, when the command exits, when the
tuner asks for it, and when the tuner is gone (the socket closes), `kill -9` included.

Over the socket it writes one JSON line `{"pid": …}` when the command runs, and `{"exit": code}` when nothing is left;
`{"error": text}` when the command cannot be started. Beside what the command writes, it puts a line of its own for each
process that a signal killed without anybody noticing: a rank that is killed says nothing, and its peers wait for ever.
Another one names, now and then, what KILL does not end, such as a process that hangs in a driver; it waits for that.
It imports the standard library alone.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STATE, PARENT, EXIT_STATUS = 0, 1, 49
"""Where these stand among the fields of /proc/PID/stat that follow the process's name (proc(5): fields 3, 4 and 52)."""
POLL_S = 0.01
SCAN_S = 1.0
"""Between two looks for killed processes; one counts when nobody has collected it from one look to the next."""
SLOW_S = 5.0
"""After KILL; what takes longer to die is named, and looked at less often."""
NAMED_EVERY_S = 60.0
KILLING = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSEGV}


def main() -> None:
    """Run the command line's command until it or the tuner ends."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: None)  # a handler, unlike SIG_IGN, is not inherited by the trainer
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as SIG_IGN, it would keep exit codes from all of us
    with socket.socket(fileno=0) as tuner:
        try:
            trainer = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                process_group=0,
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            _say(tuner, error=f"{error.strerror}: {error.filename}")
            return
        _say(tuner, pid=trainer.pid)
        _wait_for_either(trainer, tuner)
        end_all(Descendants(trainer), grace_s)
        _say(tuner, exit=trainer.returncode)


def _say(tuner: socket.socket, **message: object) -> None:
    with contextlib.suppress(OSError):
        tuner.sendall(json.dumps(message).encode() + b"\n")


def _wait_for_either(trainer: "subprocess.Popen[bytes]", tuner: socket.socket) -> None:
    """Return when the command has exited or the tuner has spoken or gone; tell of the killed meanwhile."""
    exited = os.pidfd_open(trainer.pid)
    before: dict[int, str] = {}
    told: set[int] = set()
    ready: list[int | socket.socket] = []
    while not ready:
        ready, _, _ = select.select([exited, tuner], [], [], SCAN_S)
        if tuner not in ready:
            now = killed(os.getpid())
            for pid in (now.keys() if ready else now.keys() & before.keys()) - told:
                _write(f"\n[tuner] process {pid} was killed by {now[pid]}\n")
                told.add(pid)
            before = now
    os.close(exited)


def _write(line: str) -> None:
    """Put a line among the command's output, or leave it where the pipe is full: the guard must not wait for it."""
    with contextlib.suppress(OSError):
        # opened anew, because O_NONBLOCK on standard output itself would count for the command as well
        pipe = os.open("/proc/self/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, line.encode())
        finally:
            os.close(pipe)


class Descendants:
    """All that this process has started, itself or through others; nobody else collects them."""

    def __init__(self, trainer: "subprocess.Popen[bytes]") -> None:
        self._trainer = trainer

    def signal(self, number: int) -> None:
        """Send each of them a signal; one of another user, as `sudo` makes them, takes none."""
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def reap(self) -> bool:
        """Collect what has exited; tell whether any are left."""
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
        """Name those that are left."""
        return named(os.getpid())


def end_all(
    left: Descendants,
    grace_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    write: Callable[[str], None] = _write,
) -> None:
    """End and reap every descendant: TERM, then KILL once `grace_s` has passed; name what outlives that."""
    kill_s = now() + grace_s
    name_s = slow_s = kill_s + SLOW_S
    left.signal(signal.SIGTERM)
    while left.reap():
        if now() >= kill_s:
            left.signal(signal.SIGKILL)
        if now() >= name_s:
            write(f"\n[tuner] waiting for what KILL has not ended: {left.named()}\n")
            name_s += NAMED_EVERY_S
        sleep(POLL_S if now() < slow_s else SCAN_S)


def named(root: int) -> str:
    """Name the processes below `root` with their states, see proc(5); in D, in the kernel, no signal reaches one."""
    return ", ".join(f"pid {pid} (state {fields[STATE]})" for pid, fields in descendants(root).items())


def killed(root: int) -> dict[int, str]:
    """Give pid → signal of the processes below `root` that a signal killed and nobody has collected."""
    found: dict[int, str] = {}
    for pid, fields in descendants(root).items():
        number = os.WTERMSIG(int(fields[EXIT_STATUS]))
        if fields[STATE] == "Z" and number in KILLING:
            found[pid] = signal.Signals(number).name
    return found


def descendants(root: int) -> dict[int, list[str]]:
    """Give all processes below `root`: pid → the fields of /proc/PID/stat after its name, see proc(5)."""
    fields: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            # pathlib would double the start-up time of this script; names are cut to 15 bytes, in mid-character too
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/stat", errors="replace") as stat:  # noqa: PTH123
                pid = int(entry.name)
                fields[pid] = stat.read().rpartition(")")[2].split()
                children.setdefault(int(fields[pid][PARENT]), []).append(pid)
    found, rest = {}, [root]
    while rest:
        below = children.get(rest.pop(), [])
        found |= {pid: fields[pid] for pid in below}
        rest += below
    return found


if __name__ == "__main__":
    main()
