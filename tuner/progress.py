"""Talk to the tuner from a trainer: copy this one file into a trainer, it needs nothing else.

Tell progress, on every rank after every iteration:

    from progress import report
    report(iteration=3, samples=98304, rank=0, busy_s=4.2)

Serve a session, so that one started trainer measures many configs. On the rank that leads:

    from progress import failed, requests, stopped
    build_what_all_configs_share()
    for request in requests():
        agent = build(request["config"])
        for iteration in range(request["iterations"]):
            agent.train()
            report(iteration=iteration)
            if stopped():  # the other ranks must leave at the same iteration: tell them
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
"""Environment variables: the file that takes what the trainer tells, the named pipe that gives what the tuner asks."""


def report(
    *,
    iteration: int,
    samples: int | None = None,
    rank: int | None = None,
    busy_s: float | None = None,
    alloc_retries: int | None = None,
    thin_from_s: float | None = None,
    thin_by: float | None = None,
) -> None:
    """Tell the tuner that `iteration`, counted from 0 in each run, is complete on `rank` (None: on all ranks).

    So far, by this rank: `samples`; `busy_s`, seconds that its device did tensor work; `alloc_retries`, of its
    allocator (`torch.cuda.memory_stats()["num_alloc_retries"]`). The time is that of the system's monotonic clock.

    Where a session does but a part of an iteration's work, all of it alike, to take less time: since `thin_from_s` on
    that clock, each second stands for `thin_by` seconds of training. `busy_s` counts them all.
    """
    for inbox in _opened:
        inbox.reported = iteration
    _tell(
        "iteration",
        iteration=iteration,
        samples=samples,
        rank=rank,
        busy_s=busy_s,
        alloc_retries=alloc_retries,
        thin_from_s=thin_from_s,
        thin_by=thin_by,
        t_s=time.monotonic(),
    )


def requests() -> Iterator[dict[str, Any]]:
    """Give what each run of the session asks for, until the tuner has no more.

    A run is over when the next one is asked for: by then every rank must have freed what belonged to it.
    """
    inbox = _inbox()
    _tell("ready")
    while (request := inbox.next_run()) is not None:
        yield request
        _tell("done")


def stopped(*, midway: bool = False) -> bool:
    """Tell whether the tuner has seen enough of the current run: ask after each iteration, once it is reported here.

    Where iterations are long, ask `midway` as well: whether it has no use even for the one that runs.
    """
    return _inbox().stopped(midway=midway)


def failed(detail: str, kind: str | None = None, rank: int | None = None) -> None:
    """Tell why this session cannot go on; `kind` is one of the tuner's failure kinds, where the trainer knows it."""
    _tell("failed", detail=detail, kind=kind, rank=rank)


def _tell(what: str, **fields: Any) -> None:
    path = os.environ.get(PROGRESS)
    if not path:
        return
    record = {"type": what, **{key: value for key, value in fields.items() if value is not None}}
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")  # one write, so that ranks do not mix their lines
    finally:
        os.close(descriptor)


class _Inbox:
    """What the tuner has asked, in order; a `stop` belongs to the run before it."""

    def __init__(self, path: str) -> None:
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._rest = b""
        self._messages: list[dict[str, Any]] = []
        self._open = True
        self.reported = -1
        """The last iteration that this process has reported of the current run."""

    def next_run(self) -> dict[str, Any] | None:
        while self._open or self._messages:
            while self._messages:
                message = self._messages.pop(0)
                if message["type"] == "run":
                    self.reported = -1
                    return message
            select.select([self._pipe], [], [])
            self._read()
        return None

    def stopped(self, *, midway: bool) -> bool:
        self._read()
        stops = itertools.takewhile(lambda message: message["type"] == "stop", self._messages)
        return not self._open or any(
            stop.get("at_once") or (not midway and self.reported >= stop["after"]) for stop in stops
        )

    def _read(self) -> None:
        try:
            while chunk := os.read(self._pipe, 1 << 16):
                self._rest += chunk
            self._open = False
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        self._messages += map(json.loads, lines)


_opened: list[_Inbox] = []


def _inbox() -> _Inbox:
    if not _opened:
        _opened.append(_Inbox(os.environ[REQUESTS]))
    return _opened[0]
