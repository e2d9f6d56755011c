"""The environment: joints under PD control that should follow a reference motion, all environments in one tensor."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.trainers.reference.robot import CONTROL_HZ, FEATURES, JOINTS, features, inertia

SUBSTEPS = 4
LOOKAHEAD = 3
"""How many future reference frames an observation holds."""

OBSERVATION = (1 + LOOKAHEAD) * FEATURES

STIFFNESS_NM_PER_RAD = 20.0
DAMPING_NMS_PER_RAD = 1.5
TORQUE_LIMIT_NM = 20.0
GRAVITY_NM = 1.0
FALL_RAD = 0.7
"""An environment in which any joint is this far from its reference has failed."""


def frames_needed(steps: int) -> int:
    """Count the reference frames that `steps` control steps read."""
    return steps + 1 + LOOKAHEAD


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
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

    def __init__(self, device: torch.device) -> None:
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

    def step(self, target: Tensor) -> Step:
        """Drive the joints towards `target` (rad, [num_envs, JOINTS]) for one control step."""
        before, reference_before = features(self._angle, self._velocity), self._reference_features[self._frame]
        self._simulate(target)
        self._frame += 1
        after, reference_after = features(self._angle, self._velocity), self._reference_features[self._frame]
        angle_error = self._angle - self._reference_angles[self._frame]
        velocity_error = self._velocity - self._reference_velocities[self._frame]
        failed = angle_error.abs().amax(dim=-1) > FALL_RAD
        self._put_back(failed)
        return Step(
            before=before,
            after=after,
            reference_before=reference_before,
            reference_after=reference_after,
            tracking_reward=tracking_reward(angle_error, velocity_error),
            failed=failed,
        )

    def _simulate(self, target: Tensor) -> None:
        """Integrate by semi-implicit Euler."""
        substep_s = 1 / (CONTROL_HZ * SUBSTEPS)
        for _ in range(SUBSTEPS):
            drive = STIFFNESS_NM_PER_RAD * (target - self._angle) - DAMPING_NMS_PER_RAD * self._velocity
            torque = drive.clamp(-TORQUE_LIMIT_NM, TORQUE_LIMIT_NM) - GRAVITY_NM * self._angle.sin()
            self._velocity = self._velocity + substep_s * (torque @ self._mobility)
            self._angle = self._angle + substep_s * self._velocity

    def _put_back(self, failed: Tensor) -> None:
        lost = failed[:, None]
        self._angle = torch.where(lost, self._reference_angles[self._frame], self._angle)
        self._velocity = torch.where(lost, self._reference_velocities[self._frame], self._velocity)


def tracking_reward(angle_error: Tensor, velocity_error: Tensor) -> Tensor:
    """Return 1 for perfect tracking, falling towards 0, [num_envs].

    The form is DeepMimic's (Peng et al. 2018, section 5): weighted exponentials of summed squared errors.
    """
    pose = torch.exp(-angle_error.square().sum(dim=-1))
    velocity = torch.exp(-0.01 * velocity_error.square().sum(dim=-1))
    return 0.8 * pose + 0.2 * velocity
