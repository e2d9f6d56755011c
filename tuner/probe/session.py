"""Sessions: a started trainer that serves one probe after another, as `tuner.progress` describes it."""

import math
import os
from dataclasses import replace

from tuner.errors import OutputError
from tuner.probe.console import Log
from tuner.probe.kinds import BREACH
from tuner.probe.plan import ProbePlan
from tuner.probe.process import Launcher, prepare
from tuner.probe.protocols import Clock, Line, RunningTrainer, StartedProcess, StartProcess
from tuner.probe.reader import record
from tuner.probe.requests import Requests
from tuner.progress import PROGRESS, REQUESTS

STOP_S = 10.0
"""Least time that a trainer is given to heed `stop`."""
STOP_FACTOR = 3
"""The longest iterations seen that it is given where that is more, because it looks only between two."""
POLL_S = 0.05
SHOWN_CHARS = 200
"""Of a line that is no message."""


class Sessions:
    """Launches plans and keeps the trainer of a warm one open for the next of its key; a `Launch`.

    At most one session is open. One that cannot serve the next plan is ended first, which takes seconds of that
    plan's probe where it has not been closed before.
    """

    def __init__(self, clock: Clock, start: StartProcess | None = None, *, stop_s: float = STOP_S) -> None:
        """`start` starts a process, by default on this machine; `stop_s` is how long a trainer may take to stop."""
        self._clock = clock
        self._start = start or Launcher(clock)
        self._stop_s = stop_s
        self._session: _Session | None = None
        self._run: SessionRun | None = None
        self._process: StartedProcess | None = None
        """Started last."""

    @property
    def open_key(self) -> str | None:
        """The key of the session that is open and in good health, if one is."""
        return self._session.key if self._session and self._session.healthy else None

    @property
    def ready_s(self) -> float | None:
        """Seconds from the launch of the last run until its session was ready, 0 where it was open already.

        None for a cold plan, and for a session that never was ready.
        """
        return self._run.ready_s if self._run else None

    @property
    def left(self) -> str | None:
        """Name the processes that have outlived the end of what was started last; None when there are none."""
        return self._process.left if self._process else None

    def __call__(self, plan: ProbePlan) -> RunningTrainer:
        """Start the plan's command, or ask the open session for its run; see `Launch`."""
        origin_s = self._clock.now()
        if self._run is not None:
            self._run.lines(0.0)  # what was said after a run is none of the next one's
        self._run = None
        if plan.request is None or plan.session_key != self.open_key:
            self.close()
        if plan.request is None:
            self._process = self._start(plan)
            return self._process
        prepare(plan)
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
    """One run of a session; a `RunningTrainer`."""

    def __init__(
        self, plan: ProbePlan, session: "_Session", clock: Clock, origin_s: float, stop_s: float = STOP_S
    ) -> None:
        """Ask for the run; its time 0 is `origin_s` on the clock."""
        self._stop_s = stop_s
        self.pid: int = session.process.pid
        self.ready_s: float | None = 0.0 if session.ready else None
        """Of this run, until the session was ready."""
        self._session = session
        self._clock = clock
        self._origin_s = origin_s
        self._iteration_at_s = math.inf
        self._longest_s = 0.0
        self._done = False
        self._asked_to_stop = False
        try:
            self._log = Log(plan.slot.console)
        except OSError as error:
            raise OutputError(f"{plan.slot.console} cannot be written: {error.strerror}") from error
        session.requests.send("run", **(plan.request or {}))

    def lines(self, timeout_s: float) -> list[Line]:
        """Give new console lines and progress records; what breaches the protocol is told as a console line."""
        left = self._session.process.exit_code() == 0  # asked first, because `done` may be its last word
        later_s = self._session.origin_s - self._origin_s
        lines = [self._heard(replace(line, t_s=line.t_s + later_s)) for line in self._session.lines(timeout_s)]
        if left and not (self._done or self._session.failed):
            lines.append(self._breach("exit code 0 in the middle of a run"))
        self._log.write("".join(f"{line.text}\n" for line in lines if line.stream == "console").encode())
        self._log.check()
        return lines

    def exit_code(self) -> int | None:
        """0 once the run is done; before that, a trainer that exits has failed, whatever its exit code."""
        if self._done:
            return 0
        code = self._session.process.exit_code()
        return os.EX_PROTOCOL if code == 0 else code

    def last_iteration(self, iteration: int) -> None:
        """Ask for the run to end after this iteration."""
        if self._under_way() and not self._asked_to_stop:
            self._session.requests.send("stop", after=iteration)
            self._asked_to_stop = True

    def release(self) -> int:
        """Have the run end, after its current iteration at the latest; a trainer that does not heed that is ended."""
        if self._under_way():
            self._session.requests.send("stop", at_once=True)
            until_s = self._clock.now() + max(self._stop_s, STOP_FACTOR * self._longest_s)
            while self._under_way() and self._clock.now() < until_s:
                self.lines(POLL_S)
        if not self._done:
            return self.end()
        self._log.close()
        return 0

    def end(self) -> int:
        """End the whole session at once."""
        self._session.end()
        self._log.close()
        return self.exit_code() or 0

    def _under_way(self) -> bool:
        return not self._done and self._session.healthy

    def _heard(self, line: Line) -> Line:
        if line.stream == "console":
            return line
        match record(line.text).get("type"):
            case "ready":
                self._session.ready = True
                self.ready_s = line.t_s if self.ready_s is None else self.ready_s
            case "iteration" if not self._session.ready:
                return self._breach("an iteration before `ready`; what serves a session asks `requests()` for its runs")
            case "iteration":
                self._longest_s = max(self._longest_s, line.t_s - self._iteration_at_s)
                self._iteration_at_s = line.t_s
            case "done":
                self._done = True
            case "failed":
                self._session.failed = True
            case _:
                return self._breach(f"no message: {line.text[:SHOWN_CHARS]}")
        return line

    def _breach(self, what: str) -> Line:
        return Line(t_s=self._clock.now() - self._origin_s, text=BREACH + what)


class _Session:
    """A started trainer that takes requests."""

    def __init__(self, plan: ProbePlan, clock: Clock, start: StartProcess) -> None:
        self.key = plan.session_key
        self.ready = False
        self.failed = False
        self._ended = False
        self.requests = Requests(plan.slot.out_dir / "requests")
        slot = replace(plan.slot, out_dir=plan.slot.out_dir / "session")
        env = {**plan.env, PROGRESS: str(slot.progress), REQUESTS: str(self.requests.path)}
        self.origin_s = clock.now()
        try:
            self.process = start(replace(plan, slot=slot, env=env, files={}))
        except BaseException:
            self.requests.close()
            raise

    @property
    def healthy(self) -> bool:
        return not (self.failed or self._ended) and self.process.exit_code() is None

    def lines(self, timeout_s: float) -> list[Line]:
        self.requests.flush()
        return self.process.lines(timeout_s)

    def end(self) -> None:
        self._ended = True
        self.process.end()
        self.requests.close()
