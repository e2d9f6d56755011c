"""Multimodal sensor fusion: tokens of camera, lidar and inertial readings meet in a transformer, which finds a pose.

Shapes of one sample, on a GPU (and on a CPU):

- camera: 3 x 96 x 96 bytes (3 x 32 x 32), by four strided convolutions to 36 (4) tokens
- lidar: 2,048 points of 4 floats (256), by a network per point and a maximum over groups of 64 to 32 (4) tokens
- inertial: 6 x 200 floats (6 x 64), by a strided convolution to 25 (8) tokens
- tokens are 384 (64) wide and pass 6 layers (1); the target is a pose of 6 numbers
"""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.scaling.workloads.steps import SEED, joined, optimiser, pinned
from tuner.trainers.reference.launch_settings import RankTeam
from tuner.trainers.reference.team_ranks import TeamRank

POSE = 6
GROUP = 64
"""The lidar points that make one token."""
STRIDE = 8
"""The inertial readings that make one token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FusionShapes:
    """The shapes of one sample and of the network."""

    pixels: int
    points: int
    readings: int
    width: int
    layers: int
    heads: int


GPU = FusionShapes(pixels=96, points=2048, readings=200, width=384, layers=6, heads=6)
CPU = FusionShapes(pixels=32, points=256, readings=64, width=64, layers=1, heads=2)


class FusionNet(nn.Module):
    """Three encoders and a transformer over their tokens."""

    def __init__(self, shapes: FusionShapes) -> None:
        super().__init__()
        width = shapes.width
        channels = (3, width // 8, width // 4, width // 2, width)
        self.camera = nn.Sequential(
            *(
                layer
                for before, after in itertools.pairwise(channels)
                for layer in (nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU())
            )
        )
        self.lidar = nn.Sequential(nn.Linear(4, width // 2), nn.ReLU(), nn.Linear(width // 2, width))
        self.inertial = nn.Conv1d(6, width, STRIDE, stride=STRIDE)
        layer = nn.TransformerEncoderLayer(width, shapes.heads, 4 * width, dropout=0.0, batch_first=True)
        self.fused = nn.TransformerEncoder(layer, shapes.layers, enable_nested_tensor=False)
        self.pose = nn.Linear(width, POSE)

    def forward(self, camera: Tensor, lidar: Tensor, inertial: Tensor) -> Tensor:
        """Return the pose of each sample, [batch, POSE]."""
        tokens = (
            self.camera(camera.float() / 255).flatten(2).transpose(1, 2),
            self.lidar(lidar).unflatten(1, (-1, GROUP)).amax(2),
            self.inertial(inertial).transpose(1, 2),
        )
        return self.pose(self.fused(torch.cat(tokens, 1)).mean(1))


class Fusion:
    """Training steps of the network. The readings lie in host memory and are copied to the device in each step."""

    def __init__(self, rank: TeamRank[RankTeam], size: int, exchange: bool) -> None:
        shapes = GPU if rank.device.type == "cuda" else CPU
        torch.manual_seed(SEED)
        self.samples = size
        self._device = rank.device
        self._model = joined(FusionNet(shapes), rank, exchange=exchange)
        self._optimiser = optimiser(self._model)
        batch = (
            torch.randint(0, 256, (size, 3, shapes.pixels, shapes.pixels), dtype=torch.uint8),
            torch.randn(size, shapes.points, 4),
            torch.randn(size, 6, shapes.readings),
            torch.randn(size, POSE),
        )
        self._batch = [pinned(readings, rank.device) for readings in batch]

    def step(self) -> None:
        """Copy the readings, find the poses, and improve the network."""
        *readings, poses = [one.to(self._device, non_blocking=True) for one in self._batch]
        loss = nn.functional.mse_loss(self._model(*readings), poses)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
