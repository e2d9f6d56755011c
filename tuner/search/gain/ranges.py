"""Ranges of numbers that grow while their end is the best, and the ends that a promise names. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.pool import Pool
from tuner.study import Config, Value, written

Ends = Mapping[int, int]
"""Place of a parameter whose range grows → place of its last value so far."""


def ends_so_far(pool: Pool, tried: Collection[int]) -> Ends:
    """Return how far each range has grown: to the largest value that was tried, and at least to where it began.

    Args:
        pool: The configs, with all values that a range may grow to.
        tried: The places of the configs that were measured, that failed or that run.
    """
    ends = {}
    for at, parameter in enumerate(pool.space.parameters):
        if parameter.grown:
            count, codes = len(parameter.values), pool.codes[list(tried), at]
            ends[at] = max([count - len(parameter.grown) - 1, *(int(code) for code in codes if code < count)])
    return ends


def within(pool: Pool, ends: Ends) -> NDArray[np.bool_]:
    """Return whether each config has only values up to the ends; a parameter that it does not use has none."""
    inside = np.ones(len(pool.configs), dtype=bool)
    for at, end in ends.items():
        inside &= (pool.codes[:, at] <= end) | (pool.codes[:, at] == len(pool.space.parameters[at].values))
    return inside


def beyond(pool: Pool, ends: Ends, config: Config) -> Iterator[int]:
    """Yield the places of a config with the next value of each range whose end it has."""
    for at, end in ends.items():
        parameter = pool.space.parameters[at]
        reached, later = parameter.values[: end + 1], parameter.values[end + 1 :]
        if later and config.get(parameter.name) == _largest(reached):
            place = pool.find({**config, parameter.name: later[0]})
            if place is not None:
                yield place


def largest_of(pool: Pool, config: Config) -> list[str]:
    """Return the parameters of which a config has the largest of more than two numbers, as `name=value`."""
    sizes = (parameter for parameter in pool.space.parameters if len(parameter.values) > 2)
    ends = {parameter.name: _largest(parameter.values) for parameter in sizes}
    return [f"{name}={written(config[name])}" for name, end in ends.items() if name in config and config[name] == end]


def _largest(values: Sequence[Value]) -> Value | None:
    """Return the largest of some numbers; None where one of them is none."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(numbers) if len(numbers) == len(values) else None
