"""Where memory or time ends: the configs that need at least as much as one that ran out. Pure."""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from tuner.probe import MIB_PER_GIB, Failure
from tuner.study import LADDER, PATIENCE, Config, Parameter, Space, Value

MEMORYLESS = frozenset({"update_epochs", "num_workers", "prefetch_factor", PATIENCE})
"""Parameters that do not change the need for device memory.

The effect of any other parameter, such as a command's own, is unknown. Only configs that agree in it are compared.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """The parameters on which the need for memory or time depends.

    Only configs that agree in all parameters outside `growing` and `ignored` are compared.
    """

    growing: tuple[str, ...] = (LADDER, "batch_size")
    """A larger value of these parameters never lowers the need: environments, and environments per minibatch."""
    ignored: frozenset[str] = MEMORYLESS
    """These parameters do not change the need."""
    grows_by_rung: bool = True
    """Whether a larger rung never lowers the need, whichever parameter has the ladder."""
    sizes_only: bool = False
    """Whether every number is growing, and no choice changes the need."""

    def product(self, config: Config) -> float:
        """Return the product of all growing sizes of a config; 0 where one is 0, as with a loader without workers."""
        return math.prod(value for name in self.on(None, config) if is_number(value := config[name]))

    def on(self, ladder: str | None, config: Config | None = None) -> tuple[str, ...]:
        """Return the parameters of which a larger value never lowers the need of a config with this ladder."""
        if self.sizes_only and config:
            return tuple(name for name, value in config.items() if is_number(value) and name not in self.ignored)
        more = (ladder,) if ladder is not None and self.grows_by_rung else ()
        return tuple(dict.fromkeys((*more, *self.growing)))


DEVICE_MEMORY = Need()
HOST_MEMORY = Need(ignored=frozenset({"update_epochs", PATIENCE}), sizes_only=True)


class OutOfMemory(NamedTuple):
    """A config that ran out of device memory, or out of the memory or time that `need` describes."""

    config: Config
    violation: float
    """The missing memory, in GiB; always above 0."""
    need: Need = DEVICE_MEMORY


def out_of_memory(config: Config, failure: Failure) -> OutOfMemory:
    """Return a config that ran out of memory, with the missing memory that the failure's message names, else 1 GiB."""
    overshoot_gib = (failure.overshoot_mib or 0.0) / MIB_PER_GIB
    return OutOfMemory(config, overshoot_gib or 1.0)


class Frontier:
    """Knows which configs must run out of memory: those that need at least as much as a config that did."""

    def __init__(self, known: Iterable[OutOfMemory] = (), *, ladder: str | None = LADDER) -> None:
        """`ladder`: the parameter whose values are the rungs."""
        self._ladder = ladder
        self._known: dict[Need, dict[frozenset[object], list[OutOfMemory]]] = {}
        for failure in known:
            alike = self._known.setdefault(failure.need, {})
            alike.setdefault(self._others(failure.config, failure.need), []).append(failure)

    def beyond(self, config: Mapping[str, Value]) -> OutOfMemory | None:
        """Return the known failure that says that `config` cannot run; None if no failure does.

        The missing memory of a failure is scaled to the rung of `config`. Of several failures, the largest counts.
        """
        scaled = (
            OutOfMemory(failure.config, failure.violation * self._times(config, failure.config))
            for need, alike in self._known.items()
            for failure in alike.get(self._others(config, need), ())
            if all(
                _ratio(config.get(name), failure.config.get(name)) >= 1.0
                for name in need.on(self._ladder, failure.config)
            )
        )
        return max(scaled, key=lambda failure: failure.violation, default=None)

    def by_value(self, space: Space) -> Iterator[list[list[bool]]]:
        """Yield, for each known failure, which values of each parameter of a space need at least as much.

        A config whose values all do is beyond the failure. The last value of a parameter stands for its absence.
        """
        for need, alike in self._known.items():
            for failure in itertools.chain.from_iterable(alike.values()):
                growing = need.on(self._ladder, failure.config)
                yield [self._no_less(need, growing, parameter, failure.config) for parameter in space.parameters]

    def _no_less(self, need: Need, growing: Collection[str], of: Parameter, base: Config) -> list[bool]:
        values, mine = (*of.values, None), base.get(of.name)
        if of.name in growing:
            return [_ratio(value, mine) >= 1.0 for value in values]
        if need.sizes_only or of.name in need.ignored:
            return [True] * len(values)
        return [value == mine for value in values]

    def _times(self, config: Mapping[str, Value], base: Mapping[str, Value]) -> float:
        return 1.0 if self._ladder is None else _ratio(config.get(self._ladder), base.get(self._ladder))

    def _others(self, config: Mapping[str, Value], need: Need) -> frozenset[object]:
        """Return what must be the same in two configs, so that their needs can be compared."""
        if need.sizes_only:
            return frozenset()
        incomparable = need.ignored.union(need.on(self._ladder))
        return frozenset(item for item in config.items() if item[0] not in incomparable)


def _ratio(value: Value | None, base: Value | None) -> float:
    """Return value / base; 1 where both are equal or missing, 0 where they cannot be compared."""
    if value == base:
        return 1.0
    if not is_number(value) or not is_number(base) or base <= 0:
        return 0.0
    return value / base


def is_number(value: Value | None) -> TypeGuard[int | float]:
    """Return whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
