"""What has changed between two probes beside their configs. Pure."""

from collections.abc import Mapping

FACTS = {
    "gpus": "cards",
    "devices": "devices",
    "driver": "driver",
    "cuda": "newest CUDA of the driver",
    "torch": "torch",
    "cpu": "processor",
    "cores": "cores",
    "system": "kernel",
    "trainer": "the trainer's commit",
    "script": "script",
}
"""The facts of a probe that may change its speed → what a person calls them."""


FOLDER = "folder"
"""The fact that tells in which folder a trainer runs."""


def is_of_another(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether a study was measured with another script in another folder, such as a colleague's."""
    names = (FOLDER, "script")
    return all(name in before and name in now and before[name] != now[name] for name in names)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return each fact that is known of both and that has changed, such as `driver 550.54 → 570.86`."""
    both = (name for name in FACTS if name in before and name in now)
    return tuple(f"{FACTS[name]} {before[name]} → {now[name]}" for name in both if before[name] != now[name])
