"""The environment variables that begin the counting in a trainer's processes."""

import os
from collections.abc import Mapping
from pathlib import Path

INSIDE = Path(__file__).parent / "inside"
"""The folder that comes first on the trainer's PYTHONPATH. Python imports its `sitecustomize` at the start."""


def counting(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let each Python process of a trainer count.

    Args:
        folder: where the processes write what they count.
        environment: all other variables of the trainer; its PYTHONPATH stays, behind ours.

    Returns:
        `PYTHONPATH` and `TUNER_COUNT`.
    """
    known = environment.get("PYTHONPATH")
    path = os.pathsep.join([str(INSIDE), *([known] if known else [])])
    return {"PYTHONPATH": path, "TUNER_COUNT": str(folder)}
