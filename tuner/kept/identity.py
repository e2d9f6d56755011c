"""The identity of a case's study: the settings that must not change while the study goes on."""

from collections.abc import Mapping
from typing import Any

from tuner.study.retired import retired_keys
from tuner.study.secrets import masked_trainer

RECORDED = "recorded"
"""Key in a replayed trainer's fingerprint: when the table of the case was recorded. Each case has its own table."""
_COMPARED = ("objective", "constraints", "source", "devices")
"""The settings, beside the trainer, that two cases must share so that one can learn from the other."""
_RETIRED = retired_keys("pruner")


def comparable(identity: Mapping[str, Any]) -> list[Any]:
    """Return the part of an identity that two cases must share so that one can learn from the other."""
    trainer = {name: fact for name, fact in _part(identity, "trainer").items() if name != RECORDED}
    return [trainer, *(identity.get(part) for part in _COMPARED)]


def as_of_now(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity of an older version without the settings that nothing reads any more.

    These are the settings of the pruner called `none`, and the pruner's retired keys.
    """
    pruner = _part(identity, "pruner")
    read = {} if pruner.get("name") == "none" else {key: one for key, one in pruner.items() if key not in _RETIRED}
    others = {name: setting for name, setting in identity.items() if name != "pruner"}
    return {**others, **({"pruner": read} if read else {})}


def masked(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity, or the record of a case, without literal keys: older versions stored them."""
    return (
        {**identity, "trainer": masked_trainer(_part(identity, "trainer"))} if "trainer" in identity else {**identity}
    )


def _part(identity: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = identity.get(name)
    return part if isinstance(part, dict) else {}
