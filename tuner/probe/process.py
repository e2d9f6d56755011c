"""Runs a plan's command as a process with a port of its own, always ends it, and ends what a killed guard left.

The guard is a process between the tuner and the trainer, which ends all processes of the trainer: see `guard`. An
orphan is a process whose guard was killed. Each process below a guard names its guard in its environment.

In a session, one started trainer serves one probe after another, which saves its start; each such probe is a run. A
plan is warm if a session can serve it, and otherwise cold. `tuner.progress` describes the protocol: the trainer asks
for requests, reports each iteration of a run, and reports the end of the run.
"""

import json
import math
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
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import IO, Any, ClassVar, cast

from tuner.errors import LaunchError, OutputError, TrainerError
from tuner.probe import guard, probe_plan
from tuner.probe.count_files import CountLines, MergedCounts
from tuner.probe.guard import GUARD_VARIABLE, identity
from tuner.probe.output import USUAL_BOUNDS, Bounds, Console, Log, Mask, Tail, json_object, unwritable
from tuner.probe.own_files import Protection, folders_of, protected
from tuner.probe.result import BREACH
from tuner.progress import PROGRESS, REQUESTS
from tuner.study import escaped, open_anew, open_at_once, shell_join

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


def _guard_id(guard_identity: str) -> int | None:
    """Return the process id of a guard by its identity, `NAMESPACE/GUARD/START` as `guard.identity` makes it.

    None in another namespace of process ids, or for "".
    """
    namespace, _, guard_id = guard_identity.rpartition("/")[0].rpartition("/")
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


class Process(probe_plan.StartedProcess):
    """A started trainer with its guard process, its console and its progress file."""

    def __init__(self, plan: probe_plan.ProbePlan, clock: probe_plan.Clock, bounds: Bounds = USUAL_BOUNDS) -> None:
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

    def _started_pid(self, plan: probe_plan.ProbePlan) -> int:
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

    def lines(self, timeout_s: float) -> list[probe_plan.OutputLine]:
        """Return new console lines and progress records; wait up to `timeout_s` seconds for the first console line."""
        lines = self._console.lines(timeout_s)
        now_s = self._clock.now() - self._origin_s
        texts = map(self._mask.text, (*self._reports(), *self.counts.read()))
        return lines + [probe_plan.OutputLine(t_s=now_s, text=text, stream="progress") for text in texts]

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


def prepare(plan: probe_plan.ProbePlan) -> None:
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


def _protection(plan: probe_plan.ProbePlan, command: Sequence[str]) -> Protection | None:
    """Begin to protect the person's files from a command, and return what makes them as they were: see `own_files`.

    None where the plan wants no protection, or where none is possible. None also where the program of the command does
    not exist: then nothing starts that could change files, and the guard reports the missing program.
    """
    program = plan.cwd / command[0] if os.sep in command[0] else command[0]
    path_of_command = plan.environment({"PATH": probe_plan.search_path(plan.programs)})["PATH"]
    if not plan.protects_files or shutil.which(program, path=path_of_command) is None:
        return None
    return protected(folders_of(command, plan.cwd, plan.slot.out_dir), plan.slot.out_dir)


def _start_guard(
    plan: probe_plan.ProbePlan, command: Sequence[str], guards_end: socket.socket, term_grace_s: float
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
                env=plan.environment({**os.environ, "PATH": probe_plan.search_path(plan.programs)}),
                start_new_session=True,
            )
    except OSError as error:
        raise TrainerError(
            f"the trainer cannot be started in {plan.cwd}: {error.strerror}; see trainer.root in the study file"
        ) from error


class Requests:
    """Sends a session's trainer requests: JSON lines in a named pipe, which has room for 64 KiB (pipe(7)).

    A request has a few hundred bytes. No write blocks, also if a trainer that hangs takes no request any more.
    """

    def __init__(self, path: Path) -> None:
        """Create the pipe at `path`. Raises OutputError when it cannot be created."""
        self.path = path
        try:
            os.mkfifo(path)
            self._pipe = FileIO(path, "r+", opener=open_at_once)  # "r+": opening for writing only needs a reader
        except OSError as error:
            raise OutputError(
                f"cannot create the named pipe {path}: {error.strerror}; keep runs on a file system of this machine, "
                "or set probe.warm: false"
            ) from error

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message of a kind."""
        self._pipe.write(json.dumps({"type": kind, **fields}).encode() + b"\n")

    def close(self) -> None:
        """Close and remove the pipe: its reader comes to the end of the file. Harmless to repeat."""
        self._pipe.close()
        self.path.unlink(missing_ok=True)


class Sessions:
    """Launches plans, and keeps the trainer of a warm plan open for the next plan with the same key; a `Launch`.

    At most one session is open. A plan with another key ends the open session first, within its own probe's time.
    Call `close` before to keep that time out of the probe.
    """

    STOP_S: ClassVar = 10.0
    """The least time in seconds that a trainer has to end its run after a `stop` request.

    It also has three times its longest iteration, because it looks for requests only between iterations.
    """

    def __init__(
        self, clock: probe_plan.Clock, start: probe_plan.StartProcess | None = None, *, stop_s: float = STOP_S
    ) -> None:
        """Launch plans, in sessions where plans can share one.

        Args:
            clock: Times the sessions.
            start: Starts a process; None for a process on this machine.
            stop_s: The least time in seconds that the trainer has to end a run when it is asked to.
        """
        self._clock = clock
        self._start = start or partial(Process, clock=clock)
        self._stop_s = stop_s
        self._session: _Session | None = None
        """The open session."""
        self._run: SessionRun | None = None
        """The last run of a session; None after a cold plan."""
        self._process: probe_plan.StartedProcess | None = None
        """The process that was started last."""

    @property
    def open_key(self) -> str | None:
        """The key of the open session; None where no healthy session is open."""
        return self._session.key if self._session and self._session.is_healthy else None

    @property
    def ready_s(self) -> float | None:
        """Seconds from the launch of the last run until its session was ready; 0 if the session was already open.

        None for a cold plan, and for a session that never became ready.
        """
        return self._run.ready_s if self._run else None

    @property
    def still_running(self) -> str | None:
        """The processes of the last start that still run after they were ended; None when there are none."""
        return self._process.still_running if self._process else None

    def __call__(self, plan: probe_plan.ProbePlan) -> probe_plan.RunningTrainer:
        """Start the command of a cold plan, or a run of a warm plan in a session, and return it; see `Launch`."""
        origin_s = self._clock.now()
        if self._run is not None:
            self._run.lines(0.0)  # drops late lines of the last run, which must not count for the next run
        self._run = None
        is_warm = plan.request is not None
        if not is_warm or plan.session_key != self.open_key:  # the open session cannot serve this plan
            self.close()
        if not is_warm:
            self._process = self._start(plan)  # writes the plan's files, too
            return self._process
        prepare(plan)  # a session's process does not write the files of its runs
        if self._session is None:
            self._session = _Session(plan, self._clock, self._start)
            self._process = self._session.process
        self._run = SessionRun(plan, self._session, self._clock, origin_s, self._stop_s)
        return self._run

    def close(self) -> None:
        """End the open session and wait for it. Harmless to repeat."""
        if self._session is not None:
            self._session.end()
            self._session = None


class SessionRun:
    """One probe in a session; a `RunningTrainer`."""

    def __init__(
        self, plan: probe_plan.ProbePlan, session: "_Session", clock: probe_plan.Clock, origin_s: float, stop_s: float
    ) -> None:
        """Send the request for the run. Raises OutputError when the run's console log cannot be opened.

        Args:
            plan: The plan of the run, with its request.
            session: The session that serves it.
            clock: Times the run.
            origin_s: The time on the clock at which the run's time is 0.
            stop_s: The least time in seconds that the trainer has to end the run when it is asked to.
        """
        self._stop_s = stop_s
        self.pid: int = session.process.pid
        self.ready_s: float | None = 0.0 if session.ready else None
        """Seconds from the start of this run until the session was ready; None while the session is not ready."""
        self._session, self._clock, self._origin_s = session, clock, origin_s
        self._last_iteration_s = math.inf
        """When the last iteration ended; infinite before the first."""
        self._longest_iteration_s = 0.0
        self._is_done = False
        """Whether the trainer has ended the run."""
        self._was_asked_to_stop = False
        self._log = Log(plan.slot.console)
        session.requests.send("run", **(plan.request or {}))

    def lines(self, timeout_s: float) -> list[probe_plan.OutputLine]:
        """Return the session's new lines, with their times on the clock of this run.

        A breach of the protocol appears as a console line, which a rule for failures matches.
        """
        process = self._session.process
        has_exited = process.exit_code() == 0  # read first: `done` may be the last line before the exit
        shift_s = self._session.origin_s - self._origin_s  # from the session's clock to that of this run
        lines = [self._checked(replace(line, t_s=line.t_s + shift_s)) for line in process.lines(timeout_s)]
        if has_exited and not (self._is_done or self._session.failed):
            lines.append(self._breach("exit code 0 in the middle of a run"))
        self._log.write(line.text for line in lines if line.stream == "console")
        self._log.check()
        return lines

    def exit_code(self) -> int | None:
        """Return 0 once the run is done; None before. A trainer that exits earlier has failed: its code is never 0."""
        if self._is_done:
            return 0
        code = self._session.process.exit_code()
        return os.EX_PROTOCOL if code == 0 else code

    def last_iteration(self, iteration: int) -> None:
        """Ask the trainer, once, to end the run after the iteration with this number."""
        if self._is_running() and not self._was_asked_to_stop:
            self._session.requests.send("stop", after=iteration)
            self._was_asked_to_stop = True

    def release(self) -> int:
        """Let the trainer end the run, after its current iteration at most, and return 0.

        A trainer that does not end the run in time is ended itself, and its exit code is returned.
        """
        if self._is_running():
            self._session.requests.send("stop", at_once=True)
            # the current iteration may be longer than any before
            until_s = self._clock.now() + max(self._stop_s, 3 * self._longest_iteration_s)
            while self._is_running() and self._clock.now() < until_s:
                self.lines(0.05)  # the trainer's message that it is done ends the run
        if not self._is_done:
            return self.end()
        self._log.close()
        return 0

    def end(self) -> int:
        """End the session at once, and return its exit code."""
        self._session.end()
        self._log.close()
        return self.exit_code() or 0

    def _is_running(self) -> bool:
        """Return whether the trainer still works on the run, in a healthy session."""
        return not self._is_done and self._session.is_healthy

    def _checked(self, line: probe_plan.OutputLine) -> probe_plan.OutputLine:
        """Update the state of the run and of the session by a message of the trainer, and return its line.

        A line of the console is no message and is returned as it is. In place of a message that the protocol does not
        allow, a console line about this breach is returned.
        """
        if line.stream == "console":
            return line
        match json_object(line.text).get("type"):
            case "ready":
                self._session.ready = True
                if self.ready_s is None:
                    self.ready_s = line.t_s
            case "iteration" if not self._session.ready:
                return self._breach("an iteration before `ready`; a session's program must ask `requests()` for runs")
            case "iteration":
                self._longest_iteration_s = max(self._longest_iteration_s, line.t_s - self._last_iteration_s)
                self._last_iteration_s = line.t_s
            case "done":
                self._is_done = True
            case "failed":
                self._session.failed = True
            case _:
                return self._breach(f"no message: {line.text[:200]}")
        return line

    def _breach(self, problem: str) -> probe_plan.OutputLine:
        """Return a console line about a breach of the protocol; `problem` says which."""
        return probe_plan.OutputLine(t_s=self._clock.now() - self._origin_s, text=BREACH + problem)


class _Session:
    """A started trainer that accepts requests."""

    def __init__(self, plan: probe_plan.ProbePlan, clock: probe_plan.Clock, start: probe_plan.StartProcess) -> None:
        """Start the trainer that serves `plan` and later plans with the same key.

        The log files of its start lie in a folder of the session, because each run has log files of its own.
        """
        self.key = plan.session_key
        self.ready = False
        """Whether the trainer has reported that it takes requests."""
        self.failed = False
        """Whether the trainer has reported a failure."""
        self._has_ended = False
        self.requests = Requests(plan.slot.out_dir / "requests")
        slot = replace(plan.slot, out_dir=plan.slot.out_dir / "session")
        files = {PROGRESS: escaped(str(slot.progress)), REQUESTS: escaped(str(self.requests.path))}
        self.origin_s = clock.now()
        try:
            self.process = start(replace(plan, slot=slot, env={**plan.env, **files}, files={}))
        except BaseException:
            self.requests.close()
            raise

    @property
    def is_healthy(self) -> bool:
        """Whether the session can serve a run."""
        return not (self.failed or self._has_ended) and self.process.exit_code() is None

    def end(self) -> None:
        """End the process, wait for it, and remove the pipe."""
        self._has_ended = True
        self.process.end()
        self.requests.close()
