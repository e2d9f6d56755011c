"""What all workloads share: one step of work and how ranks meet; and the workloads that only exchange buffers."""

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tuner.trainers.reference.launch_settings import RankTeam
from tuner.trainers.reference.team_ranks import TeamRank

SEED = 0
LEARNING_RATE = 1e-4


class Workload(Protocol):
    """A workload that is ready to run on one rank."""

    samples: int
    """The samples that this rank works through in one step."""

    def step(self) -> None:
        """Do one step of work. On a GPU, the work may still be running when this returns."""
        ...


Build = Callable[[TeamRank[RankTeam], int, bool], Workload]
"""Makes the workload of a rank, of a size. The flag says whether the ranks exchange gradients or other results."""


def joined(model: nn.Module, rank: TeamRank[RankTeam], *, exchange: bool) -> nn.Module:
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

    def __init__(self, rank: TeamRank[RankTeam]) -> None:
        self._word = torch.zeros(1, device=rank.device)

    def wait(self) -> None:
        """Wait until all ranks are here. On a GPU, the stream of the device waits, not the host."""
        distributed.all_reduce(self._word)


FLOAT_BYTES = 4


class AllReduce:
    """All-reduces of a buffer of `size` bytes. Each counts as one sample of each rank."""

    samples = 1

    def __init__(self, rank: TeamRank[RankTeam], size: int, exchange: bool) -> None:
        count = max(1, size // FLOAT_BYTES)
        self._buffer = torch.zeros(count if exchange else 1, device=rank.device)

    def step(self) -> None:
        """Sum the buffers of all ranks."""
        distributed.all_reduce(self._buffer)


GPU_GRID, CPU_GRID = (32, 256, 256), (8, 64, 64)
FEATURES = 5
TURN_RAD = 0.1
"""How far the sensor is turned against the map."""


class Voxelize:
    """Steps that turn a cloud into the map. The cloud lies in host memory and is copied to the device in each step."""

    def __init__(self, rank: TeamRank[RankTeam], size: int, exchange: bool) -> None:
        self._grid = GPU_GRID if rank.device.type == "cuda" else CPU_GRID
        torch.manual_seed(SEED + rank.number)
        self.samples = size
        self._device = rank.device
        self._adds_grids = exchange and len(rank.team.devices) > 1
        self._cloud = pinned(torch.rand(size, 4), rank.device)
        cos, sin = math.cos(TURN_RAD), math.sin(TURN_RAD)
        self._turn = torch.tensor([[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]], device=rank.device)
        self._cells = torch.tensor(self._grid, device=rank.device)
        self._strides = torch.tensor((self._grid[1] * self._grid[2], self._grid[2], 1), device=rank.device)
        self._empty = torch.zeros(math.prod(self._grid), FEATURES, device=rank.device)

    def step(self) -> None:
        """Turn the cloud into the map's frame, sum it into voxels, add all ranks' sums, and take means."""
        cloud = self._cloud.to(self._device, non_blocking=True)
        places = cloud[:, :3] @ self._turn
        voxels = (places * self._cells).long().clamp_min(0).minimum(self._cells - 1)
        index = (voxels * self._strides).sum(1)
        features = torch.cat((torch.ones_like(cloud[:, :1]), places, cloud[:, 3:]), 1)
        sums = self._empty.clone().index_add_(0, index, features)
        if self._adds_grids:
            distributed.all_reduce(sums)
        sums[:, 1:] /= sums[:, :1].clamp_min(1.0)
