"""What the tuner asks of a session, brought from the rank that listens to all ranks."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import torch
from torch import distributed

from tuner.progress import requests, stopped

LONGEST_PAUSE = timedelta(days=1)
"""Between two runs; ranks that wait longer for the first one fail."""


class Orders:
    """Gives every rank the same answers, each a collective that all ranks enter.

    They pass through CPU memory by a process group of their own: a rank that waits for the next run must not keep its
    GPU busy, and may wait long.
    """

    def __init__(self, *, leads: bool) -> None:
        """Made by all ranks together; the one that `leads` listens to the tuner."""
        self._leads = leads
        group = distributed.new_group(backend="gloo", timeout=LONGEST_PAUSE)
        self._group = cast("distributed.ProcessGroup", group)  # else it would be a rank that does not belong to it

    def runs(self) -> Iterator[dict[str, Any]]:
        """Give the requests; a run is over once every rank has asked for the next."""
        asked = requests() if self._leads else itertools.repeat(None)
        while (request := self._shared(next(asked, None))) is not None:
            yield request
            distributed.barrier(self._group)

    def stopped(self) -> bool:
        """Tell whether the current run should end here: the same on all ranks, so that they leave together."""
        answer = torch.tensor(self._leads and stopped())
        distributed.broadcast(answer, src=0, group=self._group)
        return bool(answer)

    def _shared(self, request: dict[str, Any] | None) -> dict[str, Any] | None:
        box = [request]
        distributed.broadcast_object_list(box, src=0, group=self._group)
        return box[0]
