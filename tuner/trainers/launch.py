"""What the command lines of all trainers have in common."""

import os
from collections.abc import Sequence
from pathlib import Path

from tuner.probe.plan import Device, Slot

SPARE_ITERATIONS = 2
"""Beyond what a probe measures: the tuner ends it itself, a command run by hand ends by this count."""


def device_names(devices: Sequence[Device]) -> tuple[str, ...]:
    """Name the devices as torch does inside the probe, one per rank.

    CUDA_VISIBLE_DEVICES shows a trainer no GPUs but its own, so they count from `cuda:0`; CPU shares are all `cpu`.
    """
    return tuple(f"cuda:{rank}" if device.is_gpu else "cpu" for rank, device in enumerate(devices))


def iterations(slot: Slot) -> int:
    """Give how many iterations a trainer is told to run at most."""
    return slot.limits.most_iterations + SPARE_ITERATIONS


def interpreter(python: str) -> str:
    """Make a path to a Python absolute without following links, which would leave a venv; a bare name is PATH's."""
    return str(Path(python).expanduser().absolute()) if os.sep in python else python
