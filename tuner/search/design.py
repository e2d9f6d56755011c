"""How far configs are apart; which of them a recording measures, and in which order. Pure.

A recording measures many configs of a case, so that later searches can be replayed without devices.
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from tuner.search.frontier import DEVICE_MEMORY
from tuner.study import LADDER, Config, Parameter, Space, Value, grouped


def space_filling(space: Space, count: int, seed: int = 0) -> list[Config]:
    """Choose `count` configs that fill the space: a sample that shows all of it. A larger `count` only adds to the end.

    The next config is always the config with the most values that no config before it has, so all values occur early.
    Among equals, it is the config farthest from all before it: a maximin design (Johnson, Moore and Ylvisaker, 1990),
    built greedily. Distances between numbers are distances between their ranks.

    `seed`: decides between equals.
    """
    pool = list(space.configs())
    random.Random(seed).shuffle(pool)  # noqa: S311 - decides between equals only
    distances = [math.inf] * len(pool)  # of each config of the pool to the nearest chosen config
    covered: set[tuple[str, Value]] = set()  # parameter and value, of all chosen configs
    chosen: list[Config] = []
    while pool and len(chosen) < count:
        best = max(range(len(pool)), key=lambda place: (len(pool[place].items() - covered), distances[place]))
        distances.pop(best)
        newest = pool.pop(best)
        chosen.append(newest)
        covered |= newest.items()
        distances = [min(least, distance(space, config, newest)) for config, least in zip(pool, distances, strict=True)]
    return chosen


def ordered_by_session(
    configs: Sequence[Config], session_key: Callable[[Config], str | None], ladder: str | None = LADDER
) -> list[Config]:
    """Return the order in which to probe configs, so that each session starts once.

    A session is a started trainer, which can serve the probes of several configs one after another. The configs of a
    session follow each other, and those without a session come last. What needs little device memory comes first, both
    among sessions and inside each. So the first config that runs out of memory comes late. The caller can then leave
    out the configs that need more.

    Args:
        configs: The configs, all of one space.
        session_key: Returns what is equal for configs that may share a session; None for a config without a session.
        ladder: The parameter that decides how much memory a config needs.
    """
    memory = partial(_memory, names=DEVICE_MEMORY.growing_parameters(ladder))
    by_session = grouped(configs, session_key)
    alone = by_session.pop(None, [])
    rising = [sorted(session, key=memory) for session in by_session.values()]
    rising.sort(key=lambda session: memory(session[0]))
    return [*chain.from_iterable(rising), *alone]


def _memory(config: Config, names: Sequence[str]) -> tuple[float, ...]:
    """Return a key that sorts configs by their need for device memory: the values of these parameters in turn.

    0 stands for a text, and for a parameter that the config does not use.
    """
    values = (config.get(name, 0) for name in names)
    return tuple(value if isinstance(value, int | float) else 0 for value in values)


def distance(space: Space, config: Config, second: Config) -> float:
    """Return how far two configs are apart: the sum of the distances of their values, each at most 1."""
    return sum(
        _value_distance(parameter, config.get(parameter.name), second.get(parameter.name))
        for parameter in space.parameters
    )


def _value_distance(parameter: Parameter, value: Value | None, second: Value | None) -> float:
    """Return the distance between two values of a parameter, from 0 to 1.

    It is 0 for equal values, 1 for different words, and for numbers the share of the ranks that lie between them. None
    stands for a config that does not use the parameter, which has the distance 1 to any value.
    """
    if value == second:
        return 0.0
    if value is None or second is None or any(isinstance(number, str) for number in parameter.values):
        return 1.0
    numbers = sorted(parameter.values)  # pyright: ignore[reportArgumentType] - at least two, as two of them differ
    return abs(numbers.index(value) - numbers.index(second)) / (len(numbers) - 1)
