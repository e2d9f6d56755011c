"""The links: an all-reduce of one buffer, again and again."""

import torch
from torch import distributed

from tuner.trainers.reference.settings import Team
from tuner.trainers.reference.team import Rank

FLOAT_BYTES = 4


class AllReduce:
    """All-reduces of a buffer of `size` bytes. Each counts as one sample of each rank."""

    samples = 1

    def __init__(self, rank: Rank[Team], size: int, exchange: bool) -> None:
        count = max(1, size // FLOAT_BYTES)
        self._buffer = torch.zeros(count if exchange else 1, device=rank.device)

    def step(self) -> None:
        """Sum the buffers of all ranks."""
        distributed.all_reduce(self._buffer)
