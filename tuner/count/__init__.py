"""Counting inside a training: what begins it, the records of its processes, and which training they run."""

import os
from collections.abc import Mapping
from pathlib import Path

from tuner.count.merging import Merger
from tuner.count.process_counts import Flag, ProcessCounts, as_parameter
from tuner.count.signature import DIVERGES, PARTS, Signature, TrainingCounts, differences
from tuner.count.witness import ENVIRONMENTS

INSIDE = Path(__file__).parent / "inside"
"""The folder that comes first on the trainer's PYTHONPATH. Python imports its `sitecustomize` at the start."""


def has_started(folder: Path) -> bool:
    """Return whether the Python of a trainer's process counts into a folder, even if it has imported nothing yet."""
    return (folder / "started").exists()


def counting(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that let each Python process of a trainer count.

    Args:
        folder: where the processes write what they count.
        environment: all other variables of the trainer; its PYTHONPATH stays, behind ours.

    Returns:
        `PYTHONPATH` and `TUNER_COUNT`.
    """
    return {"PYTHONPATH": path_inside(environment), "TUNER_COUNT": str(folder)}


def path_inside(environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH with which each Python process of a trainer begins with our `sitecustomize`."""
    return os.pathsep.join(filter(None, [str(INSIDE), environment.get("PYTHONPATH")]))
