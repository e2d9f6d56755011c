"""The keys that study files of older versions had: each is ignored, with a warning that says what holds. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

RETIRED = {
    "probe.target_error_pct": "a probe is precise enough at 1 point of utilisation, or 1 % of samples/s",
    "probe.idle_seconds": "a probe waits at most 30 s for idle cards",
    "probe.grace_seconds": "a probe ends 5 s after the death of a rank",
    "search.certainty": "`search.training_hours` says when a search ends",
    "search.confirm_alone": "a confirmation always waits until no other probe runs on its machine",
    "pruner.margin_pct": "`hyperband_patient` stops only a probe that stays 15 % below the best",
}
"""Path of a key → what holds instead."""


def retired_keys(part: str) -> frozenset[str]:
    """Return the keys that a part of the study file had in older versions."""
    return frozenset(path.removeprefix(f"{part}.") for path in RETIRED if path.startswith(f"{part}."))


def ignored(raw: Mapping[str, Any]) -> list[str]:
    """Return the retired keys that a study file names, those of its overrides included, without repetition."""
    return list(dict.fromkeys(path for part in _parts(raw) for path in RETIRED if _has(part, path)))


def _parts(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield raw
    overrides = raw.get("overrides")
    yield from (one for one in overrides if isinstance(one, dict)) if isinstance(overrides, list) else ()


def _has(part: Mapping[str, Any], path: str) -> bool:
    above, _, key = path.partition(".")
    keys = part.get(above)
    return isinstance(keys, dict) and key in keys
