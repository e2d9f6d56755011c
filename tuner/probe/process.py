"""Runs a plan's command as a process with a port of its own, always ends it, and ends what a killed guard left.

The guard is a process between the tuner and the trainer, which ends all processes of the trainer: see `guard`. An
orphan is a process whose guard was killed. Each process below a guard names its guard in its environment.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, cast

from tuner.errors import LaunchError, TrainerError
from tuner.probe import guard
from tuner.probe.count_files import CountLines, MergedCounts
from tuner.probe.guard import GUARD_VARIABLE, identity
from tuner.probe.output import USUAL_BOUNDS, Bounds, Console, Log, Mask, Tail, unwritable
from tuner.probe.own_files import Protection, folders_of, protected
from tuner.probe.probe_plan import ProbePlan, search_path
from tuner.probe.protocols import Clock, OutputLine, StartedProcess
from tuner.study import open_anew, shell_join

_NAMED_GUARD = re.compile(rb"(?:^|\0)" + GUARD_VARIABLE.encode() + rb"=([^\0]*)")


def end_orphans(within_s: float) -> list[int]:
    """Kill the processes whose guard has ended; return the ids of those that still run after `within_s` seconds.

    Processes of other users, and of other namespaces of process ids, are left alone, because nothing can be known of
    their guards. So are processes that have cleared their environment.
    """
    import psutil  # noqa: PLC0415 - only processes that run probes need it

    until_s = time.monotonic() + within_s
    while orphans := [process for process in psutil.process_iter() if _is_orphan(process.pid)]:
        for process in orphans:
            with suppress(psutil.Error):  # it has ended, also where another process has its id now
                process.kill()
        if time.monotonic() >= until_s:
            break
        time.sleep(0.02)
    return [process.pid for process in orphans]


def other_tuners() -> list[int]:
    """Return the ids of the other processes that run probes on this machine now, as far as this user may see them."""
    import psutil  # noqa: PLC0415 - only processes that run probes need it

    guards = set(map(_guard_named_by, psutil.pids())) - {os.environ.get(GUARD_VARIABLE)}  # a guard of this tuner itself
    tuners = set[int]()
    for named in guards:
        guard_id = _guard_id(named)
        if guard_id and identity(guard_id) == named:
            with suppress(psutil.Error):  # it has ended
                tuners.add(psutil.Process(guard_id).ppid())
    return sorted(tuners - {os.getpid()})


def _is_orphan(pid: int) -> bool:
    """Return whether a process names a guard of this namespace of process ids that does not run any more."""
    named = _guard_named_by(pid)
    guard_id = _guard_id(named)
    has_own_guard = named == os.environ.get(GUARD_VARIABLE) or pid == os.getpid()  # this tuner itself runs below it
    return guard_id is not None and not has_own_guard and identity(guard_id) != named


def _guard_id(named: str) -> int | None:
    """Return the process id of a guard by its identity; None in another namespace of process ids, or for "".

    `guard.identity` makes the identity: `NAMESPACE/GUARD/START`.
    """
    namespace, _, guard_id = named.rpartition("/")[0].rpartition("/")
    is_of_this_namespace = identity(os.getpid()).startswith(f"{namespace}/")
    return int(guard_id) if guard_id.isdigit() and is_of_this_namespace else None


def _guard_named_by(pid: int) -> str:
    """Return the identity of the guard that a process names; "" if it has none, is of another user, or is gone."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - three times faster
        if match := _NAMED_GUARD.search(file.read()):
            return match[1].decode(errors="replace")
    return ""


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a free TCP port that stays reserved inside the block.

    The port is bound with SO_REUSEADDR, but nothing listens on it. According to socket(7), a trainer that sets the same
    option may bind the port and listen on it; torch's store sets it. Meanwhile the kernel gives the port to no process
    that requests an arbitrary free port.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]


class Process(StartedProcess):
    """A started trainer with its guard process, its console and its progress file."""

    def __init__(self, plan: ProbePlan, clock: Clock, bounds: Bounds = USUAL_BOUNDS) -> None:
        """Write the plan's files and start its command.

        Raises OutputError when files cannot be written, TrainerError when the command cannot be started.
        """
        self._clock = clock
        self._bounds = bounds
        self._origin_s = clock.now()
        self._exit: int | None = None
        """The exit code; None as long as a process is left."""
        self._given_up_at_s: float | None = None
        """When a process that KILL does not end is given up; None before `end`."""
        prepare(plan)
        end_orphans(bounds.kill_s)
        self._tail = Tail(plan.slot.progress, bounds.tail_bytes)
        self._is_unread = False
        """Whether a message has said that the reports cannot be read."""
        self.counts = MergedCounts(CountLines(plan.slot.counts, bounds.tail_bytes).read if plan.is_counted else tuple)
        self._mask = Mask(plan.hidden(os.environ))
        command = plan.command(os.environ)
        log = Log(plan.slot.console, bounds.log_bytes)
        self._protection = _protection(plan, command)
        prefix = self._protection.prefix if self._protection else ()
        self._socket, guards_end = socket.socketpair()
        try:
            self._guard = _start_guard(plan, (*prefix, *command), guards_end, bounds.term_grace_s)
        except TrainerError:
            self._socket.close()
            log.close()
            if self._protection:
                self._protection.close()
            raise
        self._messages = self._socket.makefile("r")
        pipe = cast("IO[bytes]", self._guard.stdout)
        self._console = Console(pipe, log, clock, self._origin_s, bounds=bounds, mask=self._mask)
        self.pid = self._started_pid(plan)

    def _started_pid(self, plan: ProbePlan) -> int:
        """Wait for the guard's message about the start, and return the id of the trainer's process.

        Raises LaunchError where the message says that the command cannot be started.
        """
        message = json.loads(self._messages.readline() or '{"error": "the guard process died"}')
        if "error" not in message:
            return message["pid"]
        self._close()
        raise LaunchError(
            f"the trainer cannot be started: {self._mask.text(message['error'])}; "
            f"no shell runs it: {shell_join(plan.argv)}; "
            "see `trainer.python` and the command of the study file"
        )

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return new console lines and progress records; wait up to `timeout_s` seconds for the first console line."""
        lines = self._console.lines(timeout_s)
        now_s = self._clock.now() - self._origin_s
        texts = map(self._mask.text, (*self._reports(), *self.counts.read()))
        return lines + [OutputLine(t_s=now_s, text=text, stream="progress") for text in texts]

    def _reports(self) -> list[str]:
        """Return the new messages that the trainer has reported. If they cannot be read, one message says so, once."""
        try:
            return self._tail.read()
        except OSError as error:
            was_unread, self._is_unread = self._is_unread, True
            detail = f"the reports in {error.filename} cannot be read: {error.strerror}"
            return [] if was_unread else [json.dumps({"type": "unread", "detail": detail})]

    def exit_code(self) -> int | None:
        """Return the trainer's exit code once no process of the probe is left; None before that."""
        if self._exit is None and self._guard.poll() is not None:
            self._finish()
        return self._exit

    def end(self) -> int:
        """Return the exit code, after every process of the probe has ended.

        Returns -1 where a process cannot be ended; `still_running` then names it.
        """
        if self._given_up_at_s is None:
            self._given_up_at_s = self._clock.now() + self._bounds.term_grace_s + self._bounds.kill_s
        if self._exit is None:
            self._socket.shutdown(socket.SHUT_WR)
            self._guard.send_signal(signal.SIGCONT)  # somebody may have stopped the guard, and then nothing would end
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(max(0.0, self._given_up_at_s - self._clock.now()))
                self._finish()
        return self._exit if self._exit is not None else -1

    @property
    def still_running(self) -> str | None:
        """The processes that still run after `end`, or their guard if it names none; None when there are none."""
        if self._given_up_at_s is None or self.exit_code() is not None:
            return None
        return guard.named(self._guard.pid) or f"pid {self._guard.pid} (their guard)"

    def _finish(self) -> None:
        """Note the exit code of the trainer, by the last message of the guard, and close all pipes and files."""
        last = self._messages.readline()
        self._exit = json.loads(last)["exit"] if last else -1
        if not last:  # the guard was killed, and the trainer died with it, but the trainer's own children live on
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            end_orphans(self._bounds.kill_s)
        self._close()

    def _close(self) -> None:
        """Wait for the end of the guard and of the trainer's output, and end the protection of the files."""
        self._guard.wait()
        self._console.close()
        if self._protection:
            self._protection.close()
        self._messages.close()
        self._socket.close()


def prepare(plan: ProbePlan) -> None:
    """Make the plan's out dir where it is missing, and write the plan's files. Raises OutputError when this fails."""
    try:
        plan.slot.out_dir.mkdir(parents=True, exist_ok=True)
        if plan.is_counted:
            plan.slot.counts.mkdir(mode=0o700, exist_ok=True)
        for path, text in plan.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open_anew(path) as file:
                file.write(text.encode())
    except OSError as error:
        # an error after a file was opened, such as a full disk, has no file name
        raise unwritable(error.filename or plan.slot.out_dir, error) from error


def _protection(plan: ProbePlan, command: Sequence[str]) -> Protection | None:
    """Begin to protect the person's files from a command, and return what makes them as they were: see `own_files`.

    None where the plan wants no protection, or where none is possible. None also where the program of the command does
    not exist: then nothing starts that could change files, and the guard reports the missing program.
    """
    program = plan.cwd / command[0] if os.sep in command[0] else command[0]
    path_of_command = plan.environment({"PATH": search_path(plan.programs)})["PATH"]
    if not plan.protects_files or shutil.which(program, path=path_of_command) is None:
        return None
    return protected(folders_of(command, plan.cwd, plan.slot.out_dir), plan.slot.out_dir)


def _start_guard(
    plan: ProbePlan, command: Sequence[str], guards_end: socket.socket, term_grace_s: float
) -> "subprocess.Popen[bytes]":
    """Start a guard with a command, and return the guard's process, which has the output of the command.

    Raises TrainerError where it cannot be started. `guards_end`: the guard's end of the socket pair of its messages; it
    is closed here. When the other end closes, the guard ends the command.
    """
    try:
        with guards_end:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(term_grace_s), *command],
                bufsize=0,
                stdin=guards_end.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=plan.cwd,
                env=plan.environment({**os.environ, "PATH": search_path(plan.programs)}),
                start_new_session=True,
            )
    except OSError as error:
        raise TrainerError(
            f"the trainer cannot be started in {plan.cwd}: {error.strerror}; see trainer.root in the study file"
        ) from error
