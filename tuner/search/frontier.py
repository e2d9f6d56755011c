"""Where memory ends, as far as the failures of a case show. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.probe.result import Failure
from tuner.probe.units import MIB_PER_GIB
from tuner.study.space import LADDER, PATIENCE, Config, Value

GROWING = (LADDER, "batch_size")
"""Larger values of these parameters need more device memory: environments, and environments per minibatch.

So do larger rungs, whichever parameter has the ladder.
"""
MEMORYLESS = frozenset({"update_epochs", "num_workers", "prefetch_factor", PATIENCE})
"""Parameters that do not change the need for device memory.

The effect of any other parameter, such as a command's own, is unknown. Only configs that agree in it are compared.
"""
UNKNOWN_OVERSHOOT_GIB = 1.0
"""The missing memory that is assumed when an out-of-memory failure names no size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """The parameters on which the need for memory or time depends.

    Only configs that agree in all parameters outside `growing` and `ignored` are compared.
    """

    growing: tuple[str, ...] = GROWING
    """A larger value of these parameters never lowers the need."""
    ignored: frozenset[str] = MEMORYLESS
    """These parameters do not change the need."""
    grows_by_rung: bool = True
    """Whether a larger rung never lowers the need, whichever parameter has the ladder."""

    def on(self, ladder: str | None) -> tuple[str, ...]:
        """Return the parameters of which a larger value never lowers the need, for configs with this ladder."""
        more = (ladder,) if ladder is not None and self.grows_by_rung else ()
        return tuple(dict.fromkeys((*more, *self.growing)))


DEVICE_MEMORY = Need()


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A config that ran out of device memory, or out of the memory or time that `need` describes."""

    config: Config
    violation: float
    """The missing memory, in GiB; always above 0."""
    need: Need = DEVICE_MEMORY


def out_of_memory(config: Config, failure: Failure) -> OutOfMemory:
    """Return a config that ran out of memory, with the missing memory that the failure's message names."""
    overshoot_gib = (failure.overshoot_mib or 0.0) / MIB_PER_GIB
    return OutOfMemory(config, overshoot_gib or UNKNOWN_OVERSHOOT_GIB)


class Frontier:
    """Knows which configs must run out of memory: those that need at least as much as a config that did."""

    def __init__(self, known: Iterable[OutOfMemory] = (), *, ladder: str | None = LADDER) -> None:
        """`ladder`: the parameter whose values are the rungs."""
        self._ladder = ladder
        self._known: dict[Need, dict[frozenset[object], list[OutOfMemory]]] = {}
        for one in known:
            alike = self._known.setdefault(one.need, {})
            alike.setdefault(self._others(one.config, one.need), []).append(one)

    def beyond(self, config: Mapping[str, Value]) -> OutOfMemory | None:
        """Return the known failure that says that `config` cannot run; None if no failure does.

        The missing memory of a failure is scaled to the rung of `config`. Of several failures, the largest counts.
        """
        scaled = (
            OutOfMemory(one.config, one.violation * self._times(config, one.config))
            for need, alike in self._known.items()
            for one in alike.get(self._others(config, need), ())
            if all(_ratio(config.get(name), one.config.get(name)) >= 1.0 for name in need.on(self._ladder))
        )
        return max(scaled, key=lambda one: one.violation, default=None)

    def _times(self, config: Mapping[str, Value], other: Mapping[str, Value]) -> float:
        return 1.0 if self._ladder is None else _ratio(config.get(self._ladder), other.get(self._ladder))

    def _others(self, config: Mapping[str, Value], need: Need) -> frozenset[object]:
        """Return what must be the same in two configs, so that their needs can be compared."""
        incomparable = need.ignored.union(need.on(self._ladder))
        return frozenset(one for one in config.items() if one[0] not in incomparable)


def _ratio(value: Value | None, other: Value | None) -> float:
    """Return value / other; 1 where both are equal or missing, 0 where they cannot be compared."""
    if value == other:
        return 1.0
    if not isinstance(value, int | float) or not isinstance(other, int | float) or other <= 0:
        return 0.0
    return value / other
