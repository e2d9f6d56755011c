"""What the command lines of all trainers have in common."""

import os
from collections.abc import Sequence
from pathlib import Path

from tuner.probe.plan import Device, Slot

SPARE_ITERATIONS = 2
"""A trainer may run this many iterations beyond those that a probe measures.

The tuner ends a probe itself. A command that is run by hand ends at this limit.
"""


def device_names(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the names by which torch knows the devices inside the probe, one per rank.

    CUDA_VISIBLE_DEVICES shows a trainer only its own GPUs, so they are `cuda:0`, `cuda:1`, …. CPU ranks are all `cpu`.
    """
    return tuple(f"cuda:{rank}" if device.is_gpu else "cpu" for rank, device in enumerate(devices))


def iterations(slot: Slot) -> int:
    """Return the most iterations that a trainer is asked to run."""
    return slot.limits.most_iterations + SPARE_ITERATIONS


def interpreter(python: str) -> str:
    """Return the absolute path of a Python; a name without a folder is looked up in PATH.

    Links are not followed: the Python of a venv is a link that leads out of the venv.
    """
    return str(Path(python).expanduser().absolute()) if os.sep in python else python


def programs(python: str | None) -> Path | None:
    """Return the folder of a Python that a study file names with its folder; None for any other."""
    return Path(interpreter(python)).parent if python and os.sep in python else None
