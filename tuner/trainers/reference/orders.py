"""Passes the tuner's requests from the rank that listens to the tuner on to all ranks."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import torch
from torch import distributed

from tuner.progress import requests, stopped

LONGEST_PAUSE = timedelta(days=1)
"""The longest pause between two runs; a rank that waits longer fails."""


class Orders:
    """Returns the same answers on every rank. Each answer is a collective that all ranks enter.

    The answers go through CPU memory in a separate process group: a rank may wait long for the next run, and must not
    keep its GPU busy meanwhile.
    """

    def __init__(self, *, leads: bool) -> None:
        """All ranks create this together; the rank that `leads` listens to the tuner."""
        self._leads = leads
        group = distributed.new_group(backend="gloo", timeout=LONGEST_PAUSE)
        self._group = cast("distributed.ProcessGroup", group)  # every rank belongs to the group

    def runs(self) -> Iterator[dict[str, Any]]:
        """Yield the requests; a run ends once every rank has asked for the next run."""
        asked = requests() if self._leads else itertools.repeat(None)
        while (request := self._shared(next(asked, None))) is not None:
            yield request
            distributed.barrier(self._group)

    def stopped(self) -> bool:
        """Return whether the current run should end here. The answer is the same on all ranks: they leave together."""
        answer = torch.tensor(self._leads and stopped())
        distributed.broadcast(answer, src=0, group=self._group)
        return bool(answer)

    def _shared(self, request: dict[str, Any] | None) -> dict[str, Any] | None:
        box = [request]
        distributed.broadcast_object_list(box, src=0, group=self._group)
        return box[0]
