"""The programs: sensor fusion, a pipeline, an all-reduce; what they share; and how ranks run them."""

import itertools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

from tuner.progress import report
from tuner.tools.scaling.workloads import MICRO_BATCHES
from tuner.trainers.reference.launch_settings import RankTeam
from tuner.trainers.reference.team_ranks import TeamRank, busy_meter


class Workload(NamedTuple):
    """A workload that is ready to run on one rank."""

    samples: int
    """The samples that this rank works through in one step."""
    step: Callable[[], object]
    """Does one step of work. On a GPU, the work may still be running when this returns."""


Build = Callable[[TeamRank[RankTeam], int, bool], Workload]
"""Makes the workload of a rank, of a size. The flag says whether several ranks exchange gradients or other results."""


def trained(model: nn.Module, passes: Callable[[], object]) -> Callable[[], None]:
    """Return a training step: `passes` goes forward and backward through the model, then an optimizer improves it."""
    improving = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        improving.zero_grad()
        passes()
        improving.step()

    return step


def pinned(batch: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a batch in host memory from which the device can copy it without waiting for the host."""
    return batch.pin_memory() if device.type == "cuda" else batch


def allreduce(rank: TeamRank[RankTeam], size: int, exchange: bool) -> Workload:
    """Return all-reduces of a buffer of `size` bytes. Each counts as one sample of each rank."""
    buffer = torch.zeros(max(1, size // 4) if exchange else 1, device=rank.device)
    return Workload(1, lambda: distributed.all_reduce(buffer))


class FusionShapes(NamedTuple):
    """The shapes of one sample and of the network."""

    pixels: int
    points: int
    readings: int
    width: int
    layers: int
    heads: int


class FusionNet(nn.Module):
    """Sensor fusion: tokens of camera, lidar and inertial readings meet in a transformer, which finds a pose.

    Shapes of one sample, on a GPU (and on a CPU):

    - camera: 3 x 96 x 96 bytes (3 x 32 x 32), by four strided convolutions to 36 (4) tokens
    - lidar: 2,048 points of 4 floats (256), by a network per point and a maximum over groups of 64 to 32 (4) tokens
    - inertial: 6 x 200 floats (6 x 64), by a convolution of stride 8 to 25 (8) tokens
    - tokens are 384 (64) wide and pass 6 layers (1); the target is a pose of 6 numbers
    """

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
        self.inertial = nn.Conv1d(6, width, 8, stride=8)
        layer = nn.TransformerEncoderLayer(width, shapes.heads, 4 * width, dropout=0.0, batch_first=True)
        self.fused = nn.TransformerEncoder(layer, shapes.layers, enable_nested_tensor=False)
        self.pose = nn.Linear(width, 6)

    def forward(self, camera: Tensor, lidar: Tensor, inertial: Tensor) -> Tensor:
        """Return the pose of each sample, [batch, 6]."""
        tokens = (
            self.camera(camera.float() / 255).flatten(2).transpose(1, 2),
            self.lidar(lidar).unflatten(1, (-1, 64)).amax(2),
            self.inertial(inertial).transpose(1, 2),
        )
        return self.pose(self.fused(torch.cat(tokens, 1)).mean(1))


def fusion(rank: TeamRank[RankTeam], size: int, exchange: bool) -> Workload:
    """Return training steps of the network. The readings lie in host memory; each step copies them to the device."""
    shapes = FusionShapes(pixels=32, points=256, readings=64, width=64, layers=1, heads=2)
    if rank.device.type == "cuda":
        shapes = FusionShapes(pixels=96, points=2048, readings=200, width=384, layers=6, heads=6)
    torch.manual_seed(0)
    model: nn.Module = FusionNet(shapes).to(rank.device)
    if exchange:
        model = DistributedDataParallel(model)
    batch = (
        torch.randint(0, 256, (size, 3, shapes.pixels, shapes.pixels), dtype=torch.uint8),
        torch.randn(size, shapes.points, 4),
        torch.randn(size, 6, shapes.readings),
        torch.randn(size, 6),
    )
    in_host = [pinned(readings, rank.device) for readings in batch]

    def passes() -> None:
        *readings, poses = [values.to(rank.device, non_blocking=True) for values in in_host]
        nn.functional.mse_loss(model(*readings), poses).backward()

    return Workload(size, trained(model, passes))


class PipelineShapes(NamedTuple):
    """The shapes of the model and of one sample."""

    layers: int
    width: int
    heads: int
    tokens: int


def stage(shapes: PipelineShapes, number: int, stages: int) -> nn.Module:
    """Return one of the stages: an equal share of the layers; with one stage, the whole model."""
    first, last = shapes.layers * number // stages, shapes.layers * (number + 1) // stages
    layers = [
        nn.TransformerEncoderLayer(shapes.width, shapes.heads, 4 * shapes.width, dropout=0.0, batch_first=True)
        for _ in range(first, last)
    ]
    return nn.Sequential(*layers)


def pipeline(rank: TeamRank[RankTeam], size: int, exchange: bool) -> Workload:
    """Return a rank of a model that is split over the GPUs: each has a stage, and micro-batches pass through them.

    Shapes: 16 transformer layers of width 1,024 over sequences of 128 tokens, 202 million weights; on a CPU 8 layers of
    width 64 over 16 tokens. `size` is the whole batch of a step. One GPU trains the whole model on the whole batch at
    once. The schedule is GPipe's (Huang et al., 2019), as `torch.distributed.pipelining` implements it.

    Without `exchange`, each rank trains its stage on micro-batches of its own, without waiting for the others.
    """
    shapes = PipelineShapes(layers=8, width=64, heads=4, tokens=16)
    if rank.device.type == "cuda":
        shapes = PipelineShapes(layers=16, width=1024, heads=16, tokens=128)
    torch.manual_seed(rank.number)
    stages = len(rank.team.devices)
    module = stage(shapes, rank.number, stages).to(rank.device)
    batch = torch.randn(size, shapes.tokens, shapes.width, device=rank.device)
    passes = _through_stages(rank, module, batch) if exchange else _alone(module, batch, stages)
    return Workload(size // stages, trained(module, passes))


def _alone(module: nn.Module, batch: Tensor, stages: int) -> Callable[[], object]:
    """Return what passes each micro-batch forward and backward through a stage that trains alone."""

    def passes() -> None:
        for part in batch.chunk(MICRO_BATCHES if stages > 1 else 1):
            nn.functional.mse_loss(module(part), part).backward()

    return passes


def _through_stages(rank: TeamRank[RankTeam], module: nn.Module, batch: Tensor) -> Callable[[], object]:
    """Return what passes all micro-batches through the pipeline and back, from the stage before to the stage after."""
    stages = len(rank.team.devices)
    part = PipelineStage(module, rank.number, stages, rank.device)
    schedule = ScheduleGPipe(part, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    inputs = (batch,) if rank.number == 0 else ()
    return lambda: schedule.step(*inputs, target=batch if rank.number == stages - 1 else None)


BUILDS: Mapping[str, Build] = {"fusion": fusion, "pipeline": pipeline, "allreduce": allreduce}


def run(rank: TeamRank[RankTeam], request: dict[str, Any], stopped: Callable[[], bool]) -> None:
    """Run a workload until its iterations are over or it is `stopped`; report each iteration to the tuner."""
    are_several = len(rank.team.devices) > 1
    size, exchange = request["config"]["size"], request["config"]["exchange"] and are_several
    torch.set_float32_matmul_precision("high")
    workload = BUILDS[request["workload"]](rank, size, exchange)
    step = _with_meeting(workload.step, rank) if are_several and not exchange else workload.step
    steps = _agreed_steps(rank, step)
    meter = busy_meter(rank.device)
    for iteration in range(request["iterations"]):
        with meter.working():
            for _ in range(steps):
                step()
        busy_s = meter.settle()
        report(iteration=iteration, samples=(iteration + 1) * steps * workload.samples, rank=rank.number, busy_s=busy_s)
        if stopped():
            break


def _with_meeting(step: Callable[[], object], rank: TeamRank[RankTeam]) -> Callable[[], object]:
    """Return a step after which ranks that exchange nothing of use still wait for each other.

    On a GPU, the stream of the device waits, not the host.
    """
    word = torch.zeros(1, device=rank.device)

    def step_and_meet() -> None:
        step()
        distributed.all_reduce(word)

    return step_and_meet


def _agreed_steps(rank: TeamRank[RankTeam], step: Callable[[], object]) -> int:
    """Return the steps of an iteration, the same on every rank: as many as the slowest rank makes in 0.2 s.

    Its report then costs nothing beside its work. In the first three steps libraries choose kernels and connect; three
    more are timed.
    """
    for _ in range(3):
        step()
    _finish(rank)
    start_s = time.monotonic()
    for _ in range(3):
        step()
    _finish(rank)
    step_s = torch.tensor((time.monotonic() - start_s) / 3, device=rank.device)
    distributed.all_reduce(step_s, distributed.ReduceOp.MAX)
    return min(20_000, math.ceil(0.2 / step_s.item()))


def _finish(rank: TeamRank[RankTeam]) -> None:
    if rank.device.type == "cuda":
        torch.cuda.synchronize(rank.device)
