"""A team of worker processes: how they share a machine's devices, how they are followed and ended.

Each worker is a process of `tuner` that probes configs of the same study. Its output is lines of JSON about its events.
"""

import os
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from tuner.devices.cpu import TEAM
from tuner.errors import StudyError
from tuner.probe import json_object, number_of


def device_groups(spec: str, available: int, *, workers: int | None, per_trial: int | None) -> list[str]:
    """Return the devices of each worker, as `--devices` takes them: disjoint sets of cards, or CPU ranks.

    With `per_trial` alone, there are as many workers as fit. With `workers` alone, each worker gets an equal share of
    the cards. CPU ranks are not divided, because a rank is no card: every worker gets `per_trial` ranks, or the study's
    number. For example, four cards and two workers give `["0,1", "2,3"]`.

    Args:
        spec: the study's `devices`: `auto`, `cpu`, `cpu:RANKS` or CUDA indices.
        available: the number of cards that `spec` opens; 0 for CPU ranks.
        workers: the number of workers, if it was given.
        per_trial: the cards or CPU ranks of a trial, if they were given.

    Raises:
        StudyError: there are too few cards.
    """
    if not available:
        ranks = f"cpu:{per_trial}" if per_trial else spec.replace("auto", "cpu")
        return [ranks] * (workers or 1)
    cards = spec.split(",") if re.fullmatch(r"\d+(,\d+)*", spec) else [str(index) for index in range(available)]
    per_trial = per_trial or max(1, available // (workers or 1))
    count = workers or max(1, available // per_trial)
    if count * per_trial > available:
        raise StudyError(
            f"{number_of(count, 'worker')} with {number_of(per_trial, 'GPU')} per trial need {count * per_trial} GPUs, "
            f"and {available} are there; lower --workers or --gpus-per-trial"
        )
    return [",".join(cards[start : start + per_trial]) for start in range(0, count * per_trial, per_trial)]


OWN_EXIT_CODES = {0, 2, 130}
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


class _Worker:
    """A worker's process, which can be started again. Its lines go to a queue; None stands for its end."""

    def __init__(self, plan: WorkerPlan, lines: "queue.SimpleQueue[tuple[_Worker, Line | None]]") -> None:
        """Start a worker's process. Raises OSError."""
        self.plan, self._lines = plan, lines
        self.starts = 0
        """How often the process was started."""
        self.has_ended = False
        """Whether the process has ended and is not started again."""
        self.start()

    def start(self) -> None:
        """Start the process. Raises OSError."""
        self.starts += 1
        self.process = subprocess.Popen(
            self.plan.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # a worker counts no process of its team as another program, see `devices.cpu.OtherPrograms`
            env=os.environ | {TEAM: str(os.getpid()), **self.plan.env},
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends the workers in order
        )
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def close_input(self) -> None:
        """Close the standard input, which asks the worker to end."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def _read(self, stream: IO[str]) -> None:
        """Put each line of the process into the queue, and then its end."""
        with stream:
            for line in stream:
                self._lines.put((self, json_object(line) or {"complaint": line.rstrip()}))  # else the text of an error
        self._lines.put((self, None))


class Exit(NamedTuple):
    """The end of a worker process."""

    code: int
    is_restarted: bool
    """Whether the worker is started again."""

    @property
    def died(self) -> bool:
        """Whether the process was ended from outside or by a fault, rather than by itself."""
        return self.code not in OWN_EXIT_CODES


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
        self._lines = queue.SimpleQueue[tuple[_Worker, Line | None]]()
        self._is_ending = False
        self._workers = [_Worker(plan, self._lines) for plan in plans]

    def run(
        self,
        show: Callable[[str, Line], None],
        ended: Callable[[str, Exit], None],
        interrupted: Callable[[], bool] = lambda: False,
    ) -> list[int]:
        """Follow the workers until all have ended, and return the last exit code of each.

        A worker that died is started again, and repeats the trial that it had begun.

        Args:
            show: takes the name of a worker and a line of it.
            ended: takes the name of a worker and each end of its process.
            interrupted: once it returns True, all workers are asked to end.
        """
        while not all(worker.has_ended for worker in self._workers):
            if interrupted() and not self._is_ending:
                self.stop()
            try:
                worker, line = self._lines.get(timeout=self.POLL_S)
            except queue.Empty:
                continue
            if line is not None:
                show(worker.plan.name, line)
                continue

            # its output has ended, and so does the process
            code = worker.process.wait()
            worker.close_input()
            is_restarted = code not in OWN_EXIT_CODES and worker.starts <= self.RESTARTS and not self._is_ending
            ended(worker.plan.name, Exit(code=code, is_restarted=is_restarted))
            worker.has_ended = not is_restarted
            if is_restarted:
                worker.start()
        return [worker.process.returncode for worker in self._workers]

    def stop(self) -> None:
        """Ask every worker to end its probe; `run` returns when all have ended."""
        self._is_ending = True
        for worker in self._workers:
            worker.close_input()

    def close(self) -> None:
        """End all workers and wait for them. A worker that does not end within `END_S` of its turn is killed."""
        self.stop()
        for worker in self._workers:
            try:
                worker.process.wait(self.END_S)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
