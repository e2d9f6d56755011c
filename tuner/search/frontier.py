"""Where memory ends, as far as a case's own failures tell. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.probe.result import Failure
from tuner.study.space import LADDER, Config, Value
from tuner.units import MIB_PER_GIB

GROWING = (LADDER, "batch_size")
"""Parameters of which more needs more device memory: environments, and environments per minibatch."""
MEMORYLESS = frozenset({"update_epochs", "num_workers", "prefetch_factor", "pruner_patience"})
"""Parameters that device memory does not hang on. How it hangs on any other, a command's own above all, is not known:
only configs that agree in those are compared."""
UNKNOWN_OVERSHOOT_GIB = 1.0
"""Taken for an out-of-memory failure that names no size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What the need for something hangs on; only configs that agree in all other parameters are compared."""

    growing: tuple[str, ...] = GROWING
    """More of these needs no less."""
    ignored: frozenset[str] = MEMORYLESS
    """It does not hang on these."""


DEVICE_MEMORY = Need()


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A config known to run out of device memory, or of what else `need` tells, and by how much."""

    config: Config
    violation: float
    """Memory missing, in GiB; always above 0."""
    need: Need = DEVICE_MEMORY


def out_of_memory(config: Config, failure: Failure) -> OutOfMemory:
    """Size a measured out-of-memory failure by what its message names."""
    overshoot_gib = (failure.overshoot_mib or 0.0) / MIB_PER_GIB
    return OutOfMemory(config, overshoot_gib or UNKNOWN_OVERSHOOT_GIB)


class Frontier:
    """Tells which configs must run out of memory because they need no less than one that did."""

    def __init__(self, known: Iterable[OutOfMemory] = ()) -> None:
        self._known = tuple(known)

    def beyond(self, config: Mapping[str, Value]) -> OutOfMemory | None:
        """Give the known failure that `config` dominates, with the violation scaled to this config; None if none."""
        scaled = (
            OutOfMemory(one.config, one.violation * _ratio(config.get(LADDER), one.config.get(LADDER)))
            for one in self._known
            if _needs_no_less(config, one.config, one.need)
        )
        return max(scaled, key=lambda one: one.violation, default=None)


def _needs_no_less(config: Mapping[str, Value], than: Mapping[str, Value], need: Need) -> bool:
    others = (config.keys() | than.keys()) - need.ignored.union(need.growing)
    return all(config.get(name) == than.get(name) for name in others) and all(
        _ratio(config.get(name), than.get(name)) >= 1.0 for name in need.growing
    )


def _ratio(value: Value | None, other: Value | None) -> float:
    """Give value / other; 1 where they are equal or neither is set, 0 where they cannot be compared."""
    if value == other:
        return 1.0
    if not isinstance(value, int | float) or not isinstance(other, int | float) or other <= 0:
        return 0.0
    return value / other
