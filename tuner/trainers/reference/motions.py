"""Reference motions: smooth synthetic recordings, resampled into clips by the workers of a DataLoader."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tuner.trainers.reference.robot import CONTROL_HZ, JOINTS, LIMBS

Motion = NDArray[np.floating]
"""Joint angles in rad, [frames, JOINTS]."""

RECORDED_HZ = 120
RECORDED_S = 10
GAITS = 8
HARMONICS = 3

CLIPS_PER_BATCH = 256
"""Two ranks with four workers and a prefetch of four then stay below 64 MiB of shared memory."""


class MotionClips(Dataset[Tensor]):
    """Endless clips: each is a stretch of a recorded gait, faster or slower; the same index gives the same clip."""

    def __init__(self, *, frames: int, seed: int = 0) -> None:
        self._frames = frames
        self._seed = seed
        random = np.random.default_rng(seed)
        self._gaits = [_record_gait(random) for _ in range(GAITS)]

    def __getitem__(self, index: int) -> Tensor:
        """Return clip `index`: angles (rad) and velocities (rad/s) at CONTROL_HZ, [frames, 2 · JOINTS]."""
        random = np.random.default_rng((self._seed, index))
        gait = self._gaits[random.integers(GAITS)]
        stride = random.uniform(0.5, 1.5) * RECORDED_HZ / CONTROL_HZ
        start = random.uniform(0, len(gait))
        angles = _resample(gait, start + stride * np.arange(-1, self._frames + 1))
        velocities = (angles[2:] - angles[:-2]) * (CONTROL_HZ / 2)
        return torch.from_numpy(np.concatenate((angles[1:-1], velocities), axis=1).astype(np.float32))


def _record_gait(random: np.random.Generator) -> Motion:
    """Make RECORDED_S of a periodic motion, left and right in antiphase."""
    time_s = np.arange(RECORDED_S * RECORDED_HZ)[:, None] / RECORDED_HZ
    mirrored = np.repeat(np.tile([0.0, np.pi], len(LIMBS) // 2), LIMBS)
    cadence_hz = random.integers(5, 15) / RECORDED_S
    angles = np.zeros((len(time_s), JOINTS))
    for harmonic in range(1, HARMONICS + 1):
        amplitude = random.uniform(0, 0.7 / harmonic**2, JOINTS)
        phase = random.uniform(0, np.pi / 2, JOINTS) + harmonic * mirrored
        angles += amplitude * np.sin(2 * np.pi * harmonic * cadence_hz * time_s + phase)
    return angles


def _resample(recording: Motion, positions: NDArray[np.floating]) -> Motion:
    """Read a periodic recording at fractional frames, linearly between neighbours."""
    before = np.floor(positions).astype(np.int64)
    weight = (positions - before)[:, None]
    count = len(recording)
    return recording[before % count] * (1 - weight) + recording[(before + 1) % count] * weight


class ClipStream:
    """Fresh clips for all environments of one rank, iteration after iteration; its workers start at once."""

    def __init__(
        self,
        clips: MotionClips,
        *,
        num_envs: int,
        rank: int,
        ranks: int,
        device: torch.device,
        num_workers: int,
        prefetch_factor: int | None,
    ) -> None:
        self._device = device
        self._batches_per_iteration = math.ceil(num_envs / CLIPS_PER_BATCH)
        self._batches = iter(
            DataLoader(
                clips,
                batch_sampler=_indices(num_envs, rank=rank, ranks=ranks),
                num_workers=num_workers,
                prefetch_factor=prefetch_factor,
                persistent_workers=num_workers > 0,
                pin_memory=device.type == "cuda",
                multiprocessing_context="fork" if num_workers else None,
            )
        )

    def take(self) -> Tensor:
        """Wait for the next clips and bring them to the device, [num_envs, frames, 2 · JOINTS]."""
        batches = itertools.islice(self._batches, self._batches_per_iteration)
        return torch.cat([batch.to(self._device, non_blocking=True) for batch in batches])

    def close(self) -> None:
        """End the workers."""
        del self._batches


def _indices(num_envs: int, *, rank: int, ranks: int) -> Iterator[list[int]]:
    """Yield clip numbers in batches that add up to `num_envs`, so that no rank and no iteration gets a clip twice."""
    for first in itertools.count(rank * num_envs, ranks * num_envs):
        for start in range(first, first + num_envs, CLIPS_PER_BATCH):
            yield list(range(start, min(start + CLIPS_PER_BATCH, first + num_envs)))
