"""Which configs a recording measures, and in which order. Pure."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import chain

from tuner.search.frontier import GROWING
from tuner.study.space import Config, Parameter, Space, Value


def spread(space: Space, count: int, seed: int = 0) -> list[Config]:
    """Choose `count` configs that fill the space; fewer than that begin the list that more would give.

    Each brings as many values as it can that none before it has, so that `count` rungs or choices occur as soon as
    they can, and lies, among those that bring equally many, farthest from all before it: a maximin design (Johnson,
    Moore and Ylvisaker, 1990), built greedily over values that are scaled by their rank.
    """
    pool = list(space.configs())
    random.Random(seed).shuffle(pool)  # noqa: S311 - decides between equals only
    distances = [math.inf] * len(pool)
    seen: set[tuple[str, Value]] = set()
    chosen: list[Config] = []
    while pool and len(chosen) < count:
        best = max(range(len(pool)), key=lambda place: (len(pool[place].items() - seen), distances[place]))
        distances.pop(best)
        chosen.append(pool.pop(best))
        seen |= chosen[-1].items()
        distances = [
            min(known, _distance(space, config, chosen[-1])) for config, known in zip(pool, distances, strict=True)
        ]
    return chosen


def in_sessions(configs: Sequence[Config], session_key: Callable[[Config], str | None]) -> list[Config]:
    """Order configs so that those which can share a session follow each other; those without one keep their order.

    Sessions come from the smallest rung upwards, and in each the smallest minibatch first: memory ends late, and what
    needs no less than a config that ran out of it need not be probed.
    """
    sessions: dict[str, list[Config]] = {}
    alone: list[Config] = []
    for config in configs:
        key = session_key(config)
        (alone if key is None else sessions.setdefault(key, [])).append(config)
    grown: list[list[Config]] = [sorted(session, key=_memory) for session in sessions.values()]
    grown.sort(key=lambda session: _memory(session[0]))
    return [*chain.from_iterable(grown), *alone]


def _memory(config: Config) -> tuple[float, ...]:
    """Give what a config's need of device memory grows with, the most important first."""
    values = (config.get(name, 0) for name in GROWING)
    return tuple(value if isinstance(value, int | float) else 0 for value in values)


def _distance(space: Space, config: Config, other: Config) -> float:
    return sum(
        _apart(parameter, config.get(parameter.name), other.get(parameter.name)) for parameter in space.parameters
    )


def _apart(parameter: Parameter, value: Value | None, other: Value | None) -> float:
    """Give 0 for equal values, 1 for different words; for numbers how far apart their ranks are, at most 1."""
    if value == other:
        return 0.0
    if value is None or other is None or any(isinstance(one, str) for one in parameter.values):
        return 1.0
    ranks = sorted(parameter.values)  # pyright: ignore[reportArgumentType] - numbers all
    return abs(ranks.index(value) - ranks.index(other)) / (len(ranks) - 1)
