"""A team of worker processes: how they share a machine's devices, how they are followed and ended."""

import json
import os
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from tuner.errors import StudyError


def device_groups(asked: str, available: int, *, workers: int | None, per_trial: int | None) -> list[str]:
    """Return the devices of each worker, in the words of `--devices`: disjoint sets of cards, or CPU ranks.

    `asked` is the study's `devices`: `auto`, `cpu`, `cpu:RANKS` or CUDA indices. `available` is the number of cards
    that `asked` opens; 0 means CPU ranks. With `per_trial` alone, there are as many workers as fit. With `workers`
    alone, each worker gets an equal share of the cards. CPU ranks are not divided, because a rank is no card: every
    worker gets `per_trial` ranks, or the study's number.

    Raises StudyError when there are too few cards.
    """
    if not available:
        ranks = f"cpu:{per_trial}" if per_trial else asked.replace("auto", "cpu")
        return [ranks] * (workers or 1)
    cards = asked.split(",") if re.fullmatch(r"\d+(,\d+)*", asked) else [str(index) for index in range(available)]
    per_trial = per_trial or max(1, available // (workers or 1))
    most = available // per_trial
    if most < (workers or 1):
        raise StudyError(
            f"{workers or 1} worker(s) with {per_trial} GPU(s) per trial need {(workers or 1) * per_trial} GPUs, and "
            f"{available} are there; lower --workers or --gpus-per-trial"
        )
    return [",".join(cards[start : start + per_trial]) for start in range(0, (workers or most) * per_trial, per_trial)]


IN_ORDER = {0, 2, 130}
"""The exit codes with which a worker ends by itself: done, an error that the user can fix, interrupted."""

Line = Mapping[str, Any]
"""A line of a worker's output: an event of `tuner.running.events`, or `{"complaint": text}`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerPlan:
    """How one worker is started."""

    name: str
    """How messages call the worker, with its devices."""
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of this process, such as the URL of the database, which no process list may show."""


@dataclass(slots=True)
class _Worker:
    plan: WorkerPlan
    process: "subprocess.Popen[str]"
    starts: int = 1
    ended: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """The end of a worker process."""

    code: int
    again: bool
    """Whether the worker is started again."""

    @property
    def died(self) -> bool:
        """Whether the process was ended from outside or by a fault, rather than by itself."""
        return self.code not in IN_ORDER


class WorkerTeam:
    """Starts workers and follows them. Each worker reads its standard input and ends when that closes.

    So a worker ends its probe even when this process is killed.
    """

    RESTARTS = 3
    """A worker is started again at most this many times: more deaths have a cause that no start removes."""
    POLL_S = 0.5
    """The seconds between two looks at whether the user wants to stop."""
    END_S = 90.0
    """The seconds that a worker gets to end its probe when the team ends."""

    def __init__(self, plans: Iterable[WorkerPlan]) -> None:
        """Start a worker for each plan. Raises OSError when a process cannot be started."""
        self._lines: queue.SimpleQueue[tuple[_Worker, Line | None]] = queue.SimpleQueue()
        self._ending = False
        self._workers: list[_Worker] = []
        for plan in plans:
            worker = _Worker(plan, _start(plan))
            self._workers.append(worker)
            self._follow(worker)

    def run(
        self,
        show: Callable[[str, Line], None],
        ended: Callable[[str, Exit], None],
        interrupted: Callable[[], bool] = lambda: False,
    ) -> list[int]:
        """Return the last exit code of each worker, after all have ended. Until then every line is shown.

        `ended` is called at each end. A worker that died is started again, and repeats its open trial. Once
        `interrupted` returns True, all workers are asked to end.
        """
        while not all(worker.ended for worker in self._workers):
            if interrupted() and not self._ending:
                self.stop()
            try:
                worker, line = self._lines.get(timeout=self.POLL_S)
            except queue.Empty:
                continue
            if line is not None:
                show(worker.plan.name, line)
                continue
            code = worker.process.wait()
            _hang_up(worker.process)
            again = code not in IN_ORDER and worker.starts <= self.RESTARTS and not self._ending
            ended(worker.plan.name, Exit(code=code, again=again))
            if again:
                worker.process, worker.starts = _start(worker.plan), worker.starts + 1
                self._follow(worker)
            else:
                worker.ended = True
        return [worker.process.returncode for worker in self._workers]

    def stop(self) -> None:
        """Ask every worker to end its probe; `run` returns when all have ended."""
        self._ending = True
        for worker in self._workers:
            _hang_up(worker.process)

    def close(self) -> None:
        """End all workers and wait for them. A worker that does not end within `END_S` is killed."""
        self.stop()
        for worker in self._workers:
            try:
                worker.process.wait(self.END_S)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _follow(self, worker: _Worker) -> None:
        threading.Thread(target=self._read, args=(worker, worker.process.stdout), daemon=True).start()

    def _read(self, worker: _Worker, stream: IO[str]) -> None:
        """Queue each line of a worker, and None at its end."""
        with stream:
            for line in stream:
                self._lines.put((worker, _parsed(line)))
        self._lines.put((worker, None))


def _start(plan: WorkerPlan) -> "subprocess.Popen[str]":
    """Return a worker's process, started."""
    return subprocess.Popen(
        plan.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | plan.env,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends the workers in order
    )


def _hang_up(process: "subprocess.Popen[str]") -> None:
    """Close the worker's standard input, which asks the worker to end."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def _parsed(line: str) -> Line:
    """Return the object in a line; a line without an object is an error's text."""
    with suppress(ValueError):
        parsed = json.loads(line)
        if isinstance(parsed, dict):
            return parsed
    return {"complaint": line.rstrip()}
