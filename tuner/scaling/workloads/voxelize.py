"""Point clouds to grids: each rank sums its cloud into voxels, and the ranks add their grids to one map.

Shapes: a cloud has `size` points of 4 floats (place and intensity). The grid has 32 x 256 x 256 voxels of 5 floats
(count, mean place, mean intensity), 42 MB; on a CPU 8 x 64 x 64 voxels.
"""

import math

import torch
from torch import distributed

from tuner.scaling.workloads.step import SEED, pinned
from tuner.trainers.reference.settings import Team
from tuner.trainers.reference.team import Rank

GPU_GRID, CPU_GRID = (32, 256, 256), (8, 64, 64)
FEATURES = 5
TURN_RAD = 0.1
"""How far the sensor is turned against the map."""


class Voxelize:
    """Steps that turn a cloud into the map. The cloud lies in host memory and is copied to the device in each step."""

    def __init__(self, rank: Rank[Team], size: int, exchange: bool) -> None:
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
