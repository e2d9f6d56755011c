"""Which configs must run out of memory or time: those that need at least as much as a config that did. Pure.

The ladder is the parameter that decides how much memory a config needs, and its values are the rungs.
"""

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
    """Whether the need grows with every number, and depends on nothing else; `growing` is then not used."""

    def product(self, config: Config) -> float:
        """Return the product of all growing sizes of a config; 0 where a size is 0, such as that of no workers."""
        sizes = (config[name] for name in self.growing_parameters(None, config))
        return math.prod(filter(is_number, sizes))

    def growing_parameters(self, ladder: str | None, config: Config | None = None) -> tuple[str, ...]:
        """Return the names of the parameters of which a larger value never lowers the need.

        `ladder`: the parameter with the rungs, if there is one. `config`: decides where `sizes_only` holds.
        """
        if self.sizes_only and config:
            return tuple(name for name, value in config.items() if is_number(value) and name not in self.ignored)
        rungs = (ladder,) if ladder is not None and self.grows_by_rung else ()
        return tuple(dict.fromkeys((*rungs, *self.growing)))


DEVICE_MEMORY = Need()
HOST_MEMORY = Need(ignored=frozenset({"update_epochs", PATIENCE}), sizes_only=True)
"""Workers and prefetched batches lie in the memory of the host, so every size may raise this need."""


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

    def __init__(self, failures: Iterable[OutOfMemory] = (), *, ladder: str | None = LADDER) -> None:
        """Group failures by need and comparison key. `ladder`: the parameter whose values are the rungs."""
        self._ladder = ladder
        self._failures: dict[Need, dict[frozenset[object], list[OutOfMemory]]] = {}
        """Need → comparison key, equal for configs that can be compared → the failures with it."""
        for failure in failures:
            by_key = self._failures.setdefault(failure.need, {})
            by_key.setdefault(self._comparison_key(failure.config, failure.need), []).append(failure)

    def exceeded_failure(self, config: Mapping[str, Value]) -> OutOfMemory | None:
        """Return a config that failed although it needs at most as much as `config`, which must then fail, too.

        None where there is no such failure. The missing memory is scaled to the rung of `config`; of several failures,
        the one that misses most is returned.
        """
        exceeded: list[OutOfMemory] = []
        for need, by_key in self._failures.items():
            for failure in by_key.get(self._comparison_key(config, need), ()):
                growing = need.growing_parameters(self._ladder, failure.config)
                if all(_ratio(config.get(name), failure.config.get(name)) >= 1.0 for name in growing):
                    rung, failed_rung = config.get(self._ladder or ""), failure.config.get(self._ladder or "")
                    exceeded.append(OutOfMemory(failure.config, failure.violation * _ratio(rung, failed_rung)))
        return max(exceeded, key=lambda failure: failure.violation, default=None)

    def values_beyond_failures(self, space: Space) -> Iterator[list[list[bool]]]:
        """Yield, for each known failure, which values of a space need at least as much as those of the failed config.

        So a search can check many configs at once: a config must fail if all its values need as much.

        Yields:
            A list for each parameter, which says of each value whether it needs as much. The last entry is for configs
            that do not use the parameter.
        """
        for need, by_key in self._failures.items():
            for failure in itertools.chain.from_iterable(by_key.values()):
                growing = need.growing_parameters(self._ladder, failure.config)
                yield [_values_beyond(need, growing, parameter, failure.config) for parameter in space.parameters]

    def _comparison_key(self, config: Mapping[str, Value], need: Need) -> frozenset[object]:
        """Return the (parameter, value) pairs of a config that another config must share to be compared with it."""
        if need.sizes_only:  # any two configs can be compared
            return frozenset()
        may_differ = need.ignored.union(need.growing_parameters(self._ladder))
        return frozenset(item for item in config.items() if item[0] not in may_differ)


def _values_beyond(need: Need, growing: Collection[str], parameter: Parameter, failed: Config) -> list[bool]:
    """Return, for each value of a parameter, whether it needs at least as much as the value of a failed config.

    The last answer is for a config that does not use the parameter. `growing`: the parameters of which a larger value
    never lowers the need.
    """
    values, failed_value = (*parameter.values, None), failed.get(parameter.name)
    if parameter.name in growing:
        return [_ratio(value, failed_value) >= 1.0 for value in values]
    if need.sizes_only or parameter.name in need.ignored:  # no value changes the need
        return [True] * len(values)
    return [value == failed_value for value in values]  # configs with another value are not compared


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
