"""The identity of a case's study: the settings that must not change while the study goes on."""

from collections.abc import Mapping
from typing import Any

from tuner.study.secrets import masked_trainer

RECORDED = "recorded"
"""Key in a replayed trainer's fingerprint: when the table of the case was recorded. Each case has its own table."""
_COMPARED = ("objective", "constraints", "source", "devices")
"""The settings, beside the trainer, that two cases must share so that one can learn from the other."""


def comparable(identity: Mapping[str, Any]) -> list[Any]:
    """Return the part of an identity that two cases must share so that one can learn from the other."""
    trainer = {name: fact for name, fact in _part(identity, "trainer").items() if name != RECORDED}
    return [trainer, *(identity.get(part) for part in _COMPARED)]


def without_idle_pruner(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity without the pruner called `none`: older versions kept its settings, which nothing reads."""
    is_idle = _part(identity, "pruner").get("name") == "none"
    return {name: setting for name, setting in identity.items() if not (is_idle and name == "pruner")}


def masked(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity, or the record of a case, without literal keys: older versions stored them."""
    return (
        {**identity, "trainer": masked_trainer(_part(identity, "trainer"))} if "trainer" in identity else {**identity}
    )


def _part(identity: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = identity.get(name)
    return part if isinstance(part, dict) else {}
