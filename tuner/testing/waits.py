"""Limits of a probe with shorter waits: a scripted trainer works in milliseconds, a real one in seconds."""

from typing import Any

from tuner.study.spec import ProbeSpec


def with_waits(
    limits: ProbeSpec, *, grace_s: float = ProbeSpec.grace_seconds, idle_s: float = ProbeSpec.idle_seconds
) -> ProbeSpec:
    """Return limits with other waits after the death of a rank, and for idle cards; a study file cannot set these."""
    waits = {"grace_seconds": grace_s, "idle_seconds": idle_s, "__module__": __name__}
    metaclass: Any = type(ProbeSpec)
    kind = metaclass("Waits", (ProbeSpec,), waits)
    return kind.model_validate(limits.model_dump())
