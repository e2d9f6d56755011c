"""Reports from a trainer to the tuner: copy this one file into a trainer; it needs nothing else.

Report progress, on every rank, after every iteration:

    from progress import report
    report(iteration=3, samples=98304, rank=0, busy_s=4.2)

Serve a session, so that one started trainer measures many configs. On the leading rank:

    from progress import failed, requests, stopped
    build_what_all_configs_share()
    for request in requests():
        agent = build(request["config"])
        for iteration in range(request["iterations"]):
            agent.train()
            report(iteration=iteration)
            if stopped():  # the other ranks must leave at the same iteration, so pass this on to them
                break
        del agent

Without a tuner, `report` does nothing. The messages are described in `docs/sessions.md`.
"""

import itertools
import json
import os
import select
import time
from collections.abc import Iterator
from typing import Any

PROGRESS, REQUESTS = "TUNER_PROGRESS", "TUNER_REQUESTS"
"""Environment variables: the file for the trainer's messages, and the named pipe with the tuner's requests."""


def report(
    *,
    iteration: int,
    samples: int | None = None,
    rank: int | None = None,
    busy_s: float | None = None,
    alloc_retries: int | None = None,
    score: float | None = None,
    thin_from_s: float | None = None,
    thin_by: float | None = None,
) -> None:
    """Report to the tuner that `rank` has completed `iteration`; without `rank`, all ranks have completed it.

    Iterations count from 0 in each run. The other numbers are totals of this run on this rank:

    - `samples`: the samples that it has collected.
    - `busy_s`: for how many seconds its device did tensor work.
    - `alloc_retries`: its allocator's `torch.cuda.memory_stats()["num_alloc_retries"]`.

    `score` says how well the agent or model does now, such as the mean return of its episodes; greater is better.

    A trainer may do only a part of an iteration's work where all of that work is alike, so that probes end sooner. Then
    each second since `thin_from_s`, on the system's monotonic clock, stands for `thin_by` seconds of training. `busy_s`
    counts the time of the whole work.
    """
    fields = dict(locals())  # the arguments; a copy, because a debugger adds the new variable to `locals()` itself
    for inbox in _opened:  # at most one; it is there if the trainer has called `requests` or `stopped`
        inbox.reported = iteration
    _tell("iteration", **fields, t_s=time.monotonic())


def requests() -> Iterator[dict[str, Any]]:
    """Yield the request of each run of the session, until the tuner has no more runs.

    A run ends when the trainer asks for the next one. By then every rank must have freed the memory of the run.
    """
    inbox = _inbox()
    _tell("ready")
    while (request := inbox.next_run()) is not None:
        yield request
        _tell("done")


def stopped(*, midway: bool = False) -> bool:
    """Return whether the tuner has seen enough of the current run. Ask after each iteration, once it is reported.

    Where iterations are long, ask with `midway` inside an iteration, too: the tuner may not need the rest of it.
    """
    return _inbox().stopped(midway=midway)


def failed(detail: str, kind: str | None = None, rank: int | None = None) -> None:
    """Report why this session cannot go on; `kind` is one of the tuner's failure kinds, where the trainer knows it."""
    _tell("failed", detail=detail, kind=kind, rank=rank)


def _tell(message_type: str, **fields: Any) -> None:
    """Append a message to the tuner's file, without fields that are None; do nothing without a tuner."""
    path = os.environ.get(PROGRESS)
    if not path:
        return
    record = {"type": message_type, **{key: value for key, value in fields.items() if value is not None}}
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")  # one write, so that ranks do not mix their lines
    finally:
        os.close(descriptor)


class _Inbox:
    """Reads the tuner's messages: each `run` is a request, and a `stop` asks to end the run before it."""

    def __init__(self, path: str) -> None:
        """Read the tuner's messages from the named pipe `path`."""
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._rest = b""
        """The beginning of a line whose end is still to come."""
        self._messages: list[dict[str, Any]] = []
        self._open = True
        """Whether the tuner may still write into the pipe."""
        self.reported = -1
        """The last iteration of the current run that this process has reported."""

    def next_run(self) -> dict[str, Any] | None:
        """Wait for the request of the next run, and return it; None once the tuner has no more and closes the pipe."""
        while self._open or self._messages:
            while self._messages:
                message = self._messages.pop(0)
                if message["type"] == "run":  # a `stop` before it belongs to the run that has ended
                    self.reported = -1
                    return message
            select.select([self._pipe], [], [])  # waits for text, or for the end of the tuner
            self._read()
        return None

    def stopped(self, *, midway: bool) -> bool:
        """Return whether the tuner wants the current run to end now.

        A message `stop` asks to end the run `at_once`, or `after` a certain iteration. Inside an iteration (`midway`),
        only the first counts.
        """
        self._read()
        if not self._open:
            return True
        of_this_run = itertools.takewhile(lambda message: message["type"] == "stop", self._messages)
        return any(stop.get("at_once") or (not midway and self.reported >= stop["after"]) for stop in of_this_run)

    def _read(self) -> None:
        """Read the complete messages that the pipe has by now, a line each, without waiting for more."""
        try:
            while chunk := os.read(self._pipe, 1 << 16):
                self._rest += chunk
            self._open = False  # no text and no BlockingIOError: the tuner has closed the pipe
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")  # the last line is not complete yet
        self._messages += map(json.loads, lines)


_opened: list[_Inbox] = []
"""The inbox of this process, once it is needed."""


def _inbox() -> _Inbox:
    """Return the inbox of this process, which is opened when it is first needed."""
    if not _opened:
        _opened.append(_Inbox(os.environ[REQUESTS]))
    return _opened[0]
