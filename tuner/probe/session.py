"""Sessions: one started trainer serves one probe after another, which saves its start; each such probe is a run.

A plan is warm if a session can serve it, and otherwise cold. `tuner.progress` describes the protocol: the trainer asks
for requests, reports each iteration of a run, and reports the end of the run.
"""

import json
import math
import os
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

from tuner.errors import OutputError
from tuner.probe.output import Log, json_object
from tuner.probe.probe_plan import ProbePlan
from tuner.probe.process import Process, prepare
from tuner.probe.protocols import Clock, OutputLine, RunningTrainer, StartedProcess, StartProcess
from tuner.probe.result import BREACH
from tuner.progress import PROGRESS, REQUESTS
from tuner.study import escaped, open_at_once


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

    def __init__(self, clock: Clock, start: StartProcess | None = None, *, stop_s: float = STOP_S) -> None:
        """Begin without a session.

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
        self._process: StartedProcess | None = None
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

    def __call__(self, plan: ProbePlan) -> RunningTrainer:
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

    def __init__(self, plan: ProbePlan, session: "_Session", clock: Clock, origin_s: float, stop_s: float) -> None:
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

    def lines(self, timeout_s: float) -> list[OutputLine]:
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

    def _checked(self, line: OutputLine) -> OutputLine:
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

    def _breach(self, problem: str) -> OutputLine:
        """Return a console line about a breach of the protocol; `problem` says which."""
        return OutputLine(t_s=self._clock.now() - self._origin_s, text=BREACH + problem)


class _Session:
    """A started trainer that accepts requests."""

    def __init__(self, plan: ProbePlan, clock: Clock, start: StartProcess) -> None:
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
