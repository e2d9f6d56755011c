"""A model that is split over the GPUs: each rank has a stage, and micro-batches pass through the stages.

Shapes: 16 transformer layers of width 1,024 over sequences of 128 tokens, 202 million weights; on a CPU 8 layers of
width 64 over 16 tokens. `size` is the whole batch of a step. One GPU trains the whole model on the whole batch at once.
The schedule is GPipe's (Huang et al., 2019), as `torch.distributed.pipelining` implements it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from tuner.scaling.workloads.catalogue import MICRO_BATCHES
from tuner.scaling.workloads.steps import SEED, Workload, optimiser
from tuner.trainers.reference.launch_settings import RankTeam
from tuner.trainers.reference.team_ranks import TeamRank


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineShapes:
    """The shapes of the model and of one sample."""

    layers: int
    width: int
    heads: int
    tokens: int


GPU = PipelineShapes(layers=16, width=1024, heads=16, tokens=128)
CPU = PipelineShapes(layers=8, width=64, heads=4, tokens=16)


def stage(shapes: PipelineShapes, number: int, stages: int) -> nn.Module:
    """Return one of the stages: an equal share of the layers; with one stage, the whole model."""
    first, last = shapes.layers * number // stages, shapes.layers * (number + 1) // stages
    layers = [
        nn.TransformerEncoderLayer(shapes.width, shapes.heads, 4 * shapes.width, dropout=0.0, batch_first=True)
        for _ in range(first, last)
    ]
    return nn.Sequential(*layers)


def pipeline(rank: TeamRank[RankTeam], size: int, exchange: bool) -> Workload:
    """Return the workload of a rank.

    Without `exchange`, each rank trains its stage on micro-batches of its own, without waiting for the others.
    """
    shapes = GPU if rank.device.type == "cuda" else CPU
    torch.manual_seed(SEED + rank.number)
    stages = len(rank.team.devices)
    module = stage(shapes, rank.number, stages).to(rank.device)
    batch = torch.randn(size, shapes.tokens, shapes.width, device=rank.device)
    if exchange and stages > 1:
        return _Stage(rank, module, batch)
    return _Alone(module, batch, parts=MICRO_BATCHES if stages > 1 else 1, ranks=stages)


class _Alone:
    """A stage that trains alone."""

    def __init__(self, module: nn.Module, batch: Tensor, *, parts: int, ranks: int) -> None:
        self.samples = len(batch) // ranks
        self._module = module
        self._batch = batch
        self._parts = parts
        self._optimiser = optimiser(module)

    def step(self) -> None:
        """Pass each micro-batch forward and backward, then improve the stage."""
        self._optimiser.zero_grad()
        for part in self._batch.chunk(self._parts):
            nn.functional.mse_loss(self._module(part), part).backward()
        self._optimiser.step()


class _Stage:
    """A stage that receives from the stage before and sends to the stage after."""

    def __init__(self, rank: TeamRank[RankTeam], module: nn.Module, batch: Tensor) -> None:
        stages = len(rank.team.devices)
        self.samples = len(batch) // stages
        self._batch = batch
        self._is_first, self._is_last = rank.number == 0, rank.number == stages - 1
        self._optimiser = optimiser(module)
        self._schedule = ScheduleGPipe(
            PipelineStage(module, rank.number, stages, rank.device), MICRO_BATCHES, loss_fn=nn.functional.mse_loss
        )

    def step(self) -> None:
        """Pass all micro-batches through the pipeline and back, then improve the stage."""
        self._optimiser.zero_grad()
        inputs = (self._batch,) if self._is_first else ()
        self._schedule.step(*inputs, target=self._batch if self._is_last else None)
        self._optimiser.step()
