"""What workloads there are, their sizes, and the settings of a run. This file does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass

SIZE, EXCHANGE = "size", "exchange"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadRun:
    """What one run of a workload is."""

    workload: str
    size: int
    exchange: bool
    """Whether the ranks exchange gradients or other results. Where not, they only wait for each other."""
    iterations: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One workload."""

    text: str
    """What the workload does, in a few words."""
    unit: str
    """What a size counts."""
    gpu_sizes: tuple[int, ...]
    """The sizes that are measured on GPUs."""
    cpu_sizes: tuple[int, ...]
    splits_model: bool = False
    """Whether the ranks share one model and one batch. Elsewhere each rank has the whole model and its own batch."""

    def sizes(self, *, gpu: bool) -> tuple[int, ...]:
        """Return the sizes that are measured by default."""
        return self.gpu_sizes if gpu else self.cpu_sizes


CATALOGUE: Mapping[str, Entry] = {
    "fusion": Entry(
        text="trains a network that fuses camera, lidar and inertial readings",
        unit="samples per GPU and step",
        gpu_sizes=(128, 512, 1024),
        cpu_sizes=(8, 16, 32),
    ),
    "voxelize": Entry(
        text="sums point clouds into one grid of voxels that all ranks share",
        unit="points per GPU and step",
        gpu_sizes=(1 << 18, 1 << 21, 1 << 22),
        cpu_sizes=(1 << 14, 1 << 16, 1 << 17),
    ),
    "pipeline": Entry(
        text="trains one transformer, split into a stage per GPU",
        unit="samples per step of all GPUs",
        gpu_sizes=(64, 128),
        cpu_sizes=(8, 16),
        splits_model=True,
    ),
    "allreduce": Entry(
        text="sums a buffer over all ranks, to measure the links",
        unit="bytes",
        gpu_sizes=(1 << 12, 1 << 18, 1 << 22, 1 << 25, 1 << 28),
        cpu_sizes=(1 << 12, 1 << 18, 1 << 22),
    ),
}
"""Name → workload. The shapes stand in the workload's own module."""

MICRO_BATCHES = 8
"""The parts into which `pipeline` cuts a batch, so that its stages work at the same time."""
