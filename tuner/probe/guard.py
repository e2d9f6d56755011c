"""Runs one command and leaves nothing behind: the process between the tuner and a trainer.

Started as a script of its own, `python -I -S guard.py GRACE_SECONDS COMMAND…`, with one end of a socket pair as its
standard input. It is the subreaper of all that the command starts, so it finds grandchildren even when they left the
command's process group. It ends them all, TERM first and KILL after the grace time, when the command exits, when the
tuner asks for it, and when the tuner is gone (the socket closes), `kill -9` included.

Over the socket it writes one JSON line `{"pid": …}` when the command runs, and `{"exit": code}` when nothing is left;
`{"error": text}` when the command cannot be started. It imports the standard library alone.
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

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.01


def main() -> None:
    """Run the command line's command until it or the tuner ends."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: None)  # a handler, unlike SIG_IGN, is not inherited by the trainer
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
        end_all(trainer, grace_s)
        _say(tuner, exit=trainer.returncode)


def _say(tuner: socket.socket, **message: object) -> None:
    with contextlib.suppress(OSError):
        tuner.sendall(json.dumps(message).encode() + b"\n")


def _wait_for_either(trainer: "subprocess.Popen[bytes]", tuner: socket.socket) -> None:
    """Return when the command has exited or the tuner has spoken or gone."""
    exited = os.pidfd_open(trainer.pid)
    try:
        select.select([exited, tuner], [], [])
    finally:
        os.close(exited)


def end_all(trainer: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """End and reap every descendant: TERM, then KILL once `grace_s` has passed."""
    deadline = time.monotonic() + grace_s
    _signal_all(signal.SIGTERM)
    while _reap(trainer):
        if time.monotonic() >= deadline:
            _signal_all(signal.SIGKILL)
        time.sleep(POLL_S)


def _reap(trainer: "subprocess.Popen[bytes]") -> bool:
    """Collect what has exited; tell whether descendants are left."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True
            if pid == trainer.pid:
                trainer.returncode = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return False


def _signal_all(number: int) -> None:
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def descendants(root: int) -> list[int]:
    """List all processes below `root`, read from /proc/*/stat (proc(5): field 4 is the parent)."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            # pathlib would double the start-up time of this script
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/stat") as stat:  # noqa: PTH123
                parent = int(stat.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, rest = [], [root]
    while rest:
        below = children.get(rest.pop(), [])
        found += below
        rest += below
    return found


if __name__ == "__main__":
    main()
