"""The robot, its reference motions, and the environments that simulate it."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

LIMBS = (6, 6, 5, 5)
"""Joints of the left leg, the right leg, the left arm and the right arm."""

JOINTS = sum(LIMBS)

FEATURES = 3 * JOINTS

CONTROL_HZ = 30


def features(angles: Tensor, velocities: Tensor) -> Tensor:
    """Return sine, cosine and scaled velocity of each joint, […, JOINTS] (rad, rad/s) → […, FEATURES].

    Joint velocities of about 10 rad/s are scaled to the size of sines and cosines.
    """
    return torch.cat((angles.sin(), angles.cos(), 0.1 * velocities), dim=-1)


def inertia() -> Tensor:
    """Return the joint-space inertia, [JOINTS, JOINTS] in kg·m²: neighbours along a limb move each other."""
    diagonal, coupling = 0.05, 0.015
    limbs: list[Tensor] = []
    for count in LIMBS:
        neighbours = torch.ones(count - 1).diag(1) + torch.ones(count - 1).diag(-1)
        limbs.append(diagonal * torch.eye(count) + coupling * neighbours)
    return torch.block_diag(*limbs)


LOOKAHEAD = 3
"""How many future reference frames an observation holds."""

OBSERVATION = (1 + LOOKAHEAD) * FEATURES


def frames_needed(steps: int) -> int:
    """Return the number of reference frames that `steps` control steps read."""
    return steps + 1 + LOOKAHEAD


class ControlStep(NamedTuple):
    """What one control step did, before failed environments were put back onto their reference."""

    before: Tensor
    """Features of the pose, [num_envs, FEATURES], as in the next three fields."""
    after: Tensor
    reference_before: Tensor
    reference_after: Tensor
    tracking_reward: Tensor
    """The reward for tracking, from 0 to 1, [num_envs]."""
    failed: Tensor
    """Whether the environment has lost the pose, [num_envs]."""


class TrackingEnv:
    """Joints with coupled inertia; each iteration's clips begin a new episode in every environment."""

    substeps = 4
    """The steps of the simulation in a control step."""
    stiffness_nm_per_rad = 20.0
    damping_nms_per_rad = 1.5
    torque_limit_nm = 20.0
    gravity_nm = 1.0
    fall_rad = 0.7
    """An environment in which any joint is this far from its reference has failed."""

    def __init__(self, device: torch.device, held_mib: int = 0) -> None:
        """Hold `held_mib` of memory for all environments together, as a simulator's contacts and meshes do."""
        self._held = torch.empty(held_mib << 20, dtype=torch.uint8, device=device)
        self._mobility = torch.linalg.inv(inertia()).to(device)

    def follow(self, clips: Tensor) -> None:
        """Put every environment onto the first frame of its clip, [num_envs, frames, 2 · JOINTS]."""
        frames = clips.transpose(0, 1).contiguous()
        self._reference_angles, self._reference_velocities = frames.split(JOINTS, dim=-1)
        self._reference_features = features(self._reference_angles, self._reference_velocities)
        self._frame = 0
        self._angle, self._velocity = self._reference_angles[0], self._reference_velocities[0]

    def observe(self) -> Tensor:
        """Return the pose and the reference frames ahead, [num_envs, OBSERVATION]."""
        ahead = self._reference_features[self._frame + 1 : self._frame + 1 + LOOKAHEAD]
        return torch.cat((features(self._angle, self._velocity), *ahead), dim=-1)

    def step(self, target: Tensor) -> ControlStep:
        """Drive the joints towards `target` (rad, [num_envs, JOINTS]) for a control step, and return what it did."""
        before, reference_before = features(self._angle, self._velocity), self._reference_features[self._frame]
        self._simulate(target)
        self._frame += 1
        after, reference_after = features(self._angle, self._velocity), self._reference_features[self._frame]
        angle_error = self._angle - self._reference_angles[self._frame]
        velocity_error = self._velocity - self._reference_velocities[self._frame]
        failed = angle_error.abs().amax(dim=-1) > self.fall_rad
        lost = failed[:, None]  # these environments are put back onto their reference
        self._angle = torch.where(lost, self._reference_angles[self._frame], self._angle)
        self._velocity = torch.where(lost, self._reference_velocities[self._frame], self._velocity)
        return ControlStep(
            before=before,
            after=after,
            reference_before=reference_before,
            reference_after=reference_after,
            tracking_reward=tracking_reward(angle_error, velocity_error),
            failed=failed,
        )

    def _simulate(self, target: Tensor) -> None:
        """Advance angles and velocities by a control step, with semi-implicit Euler."""
        substep_s = 1 / (CONTROL_HZ * self.substeps)
        for _ in range(self.substeps):
            drive = self.stiffness_nm_per_rad * (target - self._angle) - self.damping_nms_per_rad * self._velocity
            torque = drive.clamp(-self.torque_limit_nm, self.torque_limit_nm) - self.gravity_nm * self._angle.sin()
            self._velocity = self._velocity + substep_s * (torque @ self._mobility)
            self._angle = self._angle + substep_s * self._velocity


def tracking_reward(angle_error: Tensor, velocity_error: Tensor) -> Tensor:
    """Return 1 for perfect tracking, falling towards 0, [num_envs].

    The form is DeepMimic's (Peng et al. 2018, section 5): weighted exponentials of summed squared errors.
    """
    pose = torch.exp(-angle_error.square().sum(dim=-1))
    velocity = torch.exp(-0.01 * velocity_error.square().sum(dim=-1))
    return 0.8 * pose + 0.2 * velocity


Motion = NDArray[np.floating]
"""Joint angles in rad, [frames, JOINTS]."""

RECORDED_HZ = 120
RECORDED_S = 10
CLIPS_PER_BATCH = 256
"""Two ranks with four workers and a prefetch of four then stay below 64 MiB of shared memory."""


class MotionClips(Dataset[Tensor]):
    """Endless clips: each is a stretch of a recorded gait, faster or slower; the same index gives the same clip."""

    def __init__(self, *, frames: int, seed: int = 0) -> None:
        self._frames = frames
        self._seed = seed
        random = np.random.default_rng(seed)
        self._gaits = [_record_gait(random) for _ in range(8)]

    def __getitem__(self, index: int) -> Tensor:
        """Return clip `index`: angles (rad) and velocities (rad/s) at CONTROL_HZ, [frames, 2 · JOINTS]."""
        random = np.random.default_rng((self._seed, index))
        gait = self._gaits[random.integers(len(self._gaits))]
        stride = random.uniform(0.5, 1.5) * RECORDED_HZ / CONTROL_HZ
        start = random.uniform(0, len(gait))
        # with a frame more at each end, because a velocity is the difference of the frames before and after
        angles = _resample(gait, start + stride * np.arange(-1, self._frames + 1))
        velocities = (angles[2:] - angles[:-2]) * (CONTROL_HZ / 2)
        return torch.from_numpy(np.concatenate((angles[1:-1], velocities), axis=1).astype(np.float32))


def _record_gait(random: np.random.Generator) -> Motion:
    """Return the joint angles of RECORDED_S seconds of a random gait: three harmonics, left and right in antiphase."""
    time_s = np.arange(RECORDED_S * RECORDED_HZ)[:, None] / RECORDED_HZ
    mirrored = np.repeat(np.tile([0.0, np.pi], len(LIMBS) // 2), LIMBS)  # for each joint: 0 on the left, π on the right
    cadence_hz = random.integers(5, 15) / RECORDED_S  # whole periods, so that the recording can begin anew
    angles = np.zeros((len(time_s), JOINTS))
    for harmonic in range(1, 4):
        amplitude = random.uniform(0, 0.7 / harmonic**2, JOINTS)
        phase = random.uniform(0, np.pi / 2, JOINTS) + harmonic * mirrored
        angles += amplitude * np.sin(2 * np.pi * harmonic * cadence_hz * time_s + phase)
    return angles


def _resample(recording: Motion, positions: NDArray[np.floating]) -> Motion:
    """Return a periodic recording at fractional frames, interpolated linearly between two neighbours."""
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
        """Start the workers of a loader, which prepare the clips of a rank for its `num_envs` environments."""
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
                multiprocessing_context="fork" if num_workers else None,  # a forked worker need not import torch
            )
        )

    def take(self) -> Tensor:
        """Return the next clips on the device, after waiting for them, [num_envs, frames, 2 · JOINTS]."""
        batches = itertools.islice(self._batches, self._batches_per_iteration)
        return torch.cat([batch.to(self._device, non_blocking=True) for batch in batches])

    def close(self) -> None:
        """End the workers."""
        del self._batches


def _indices(num_envs: int, *, rank: int, ranks: int) -> Iterator[list[int]]:
    """Yield the clip numbers of a rank in batches; those of an iteration add up to `num_envs`.

    No rank and no iteration gets a clip twice: of two ranks with 100 environments, the first gets 0 to 99, and then
    200 to 299.
    """
    for first in itertools.count(rank * num_envs, ranks * num_envs):
        end = first + num_envs
        for start in range(first, end, CLIPS_PER_BATCH):
            yield list(range(start, min(start + CLIPS_PER_BATCH, end)))
