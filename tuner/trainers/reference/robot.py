"""The robot: 22 hinge joints in four limbs, as many as pi_plus has, and the features of a pose."""

import torch
from torch import Tensor

LIMBS = (6, 6, 5, 5)
"""Joints of the left leg, the right leg, the left arm and the right arm."""

JOINTS = sum(LIMBS)

FEATURES = 3 * JOINTS

CONTROL_HZ = 30

VELOCITY_SCALE = 0.1
"""This factor scales joint velocities of about 10 rad/s to the size of sines and cosines."""


def features(angles: Tensor, velocities: Tensor) -> Tensor:
    """Describe poses: sine, cosine and scaled velocity of each joint, […, JOINTS] (rad, rad/s) → […, FEATURES]."""
    return torch.cat((angles.sin(), angles.cos(), VELOCITY_SCALE * velocities), dim=-1)


def inertia() -> Tensor:
    """Return the joint-space inertia, [JOINTS, JOINTS] in kg·m²: neighbours along a limb move each other."""
    own, coupling = 0.05, 0.015
    limb = [
        own * torch.eye(count) + coupling * (torch.ones(count - 1).diag(1) + torch.ones(count - 1).diag(-1))
        for count in LIMBS
    ]
    return torch.block_diag(*limb)
