"""What all workloads share: one step of work, and how ranks meet after it."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tuner.trainers.reference.settings import Team
from tuner.trainers.reference.team import Rank

SEED = 0
LEARNING_RATE = 1e-4


class Workload(Protocol):
    """A workload that is ready to run on one rank."""

    samples: int
    """The samples that this rank works through in one step."""

    def step(self) -> None:
        """Do one step of work. On a GPU, the work may still be running when this returns."""
        ...


Build = Callable[[Rank[Team], int, bool], Workload]
"""Makes the workload of a rank, of a size. The flag says whether the ranks exchange gradients or other results."""


def joined(model: nn.Module, rank: Rank[Team], *, exchange: bool) -> nn.Module:
    """Return the model on its device, joined with its copies on the other ranks where the ranks `exchange`."""
    model = model.to(rank.device)
    return DistributedDataParallel(model) if exchange and len(rank.team.devices) > 1 else model


def optimiser(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser of every workload that trains."""
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)


def pinned(batch: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a batch in host memory from which the device can copy it without waiting for the host."""
    return batch.pin_memory() if device.type == "cuda" else batch


class Meeting:
    """The ranks wait for each other after each step, without exchanging anything of use."""

    def __init__(self, rank: Rank[Team]) -> None:
        self._word = torch.zeros(1, device=rank.device)

    def wait(self) -> None:
        """Wait until all ranks are here. On a GPU, the stream of the device waits, not the host."""
        distributed.all_reduce(self._word)
