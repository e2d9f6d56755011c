"""Bounds of a speed by the parts of a step: the wait for the next batch, and the rest. Pure."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.pool import Pool
from tuner.search.resource_model import Floats
from tuner.study import grouped

LOADER = re.compile(r"(?:.*[._])?(?:workers|prefetch_factor|persistent_workers)|j")
"""The parameters that change how long a batch takes to load, by their names. All others change the rest of a step."""
SLACK = 1.25
"""The longest wait for data, as a multiple of the counted one (chosen)."""
LEAST_WAIT = 0.1
"""The share of a step from which on a wait tells how long a batch takes to load (chosen)."""
POWERS = (1.0, 2.0, 4.0, 8.0)
"""How load and rest may overlap: at 1 not at all, at 8 the larger nearly hides the other; see `_by_load`."""


class Parts(NamedTuple):
    """What the probes of a config say of its speed, and of the time in which it waits for data."""

    place: int
    """The place of the config in the pool."""
    speed: float
    """The logarithm of the mean speed."""
    error: float
    """The standard error of `speed`."""
    waited: float | None
    """The share of its steps in which the training waits for its next batch; None where it is not counted."""


def bounds(pool: Pool, known: Sequence[Parts]) -> Floats:
    """Return the logarithm of a speed that each config does not exceed; infinite where no part tells.

    Configs that differ in settings of the loader alone are no faster than the rest of their steps. Configs that differ
    in none of these settings are no faster than their batches are loaded. Both hold only for those values of a
    parameter that were measured, unless two of them were: a cache in memory may save loading, and more workers may take
    the training's cores. Where a measured config is faster than its bound by more than twice its error, parts are
    wrong: the largest such excess is added to all bounds.
    """
    most = np.full(len(pool.configs), math.inf)
    counted = [parts for parts in known if parts.waited is not None]
    of_loader = np.array([LOADER.fullmatch(name) is not None for name in pool.space.names], dtype=bool)
    has = [codes == np.arange(codes.max() + 1)[:, None] for codes in pool.codes.T] if counted else []
    """For each parameter, whether each config has a value: value by config."""
    for columns, bound in ((~of_loader, _by_rest), (of_loader, _by_load)):
        for alike in () if columns.all() else _groups(pool, counted, columns):
            codes = pool.codes[[parts.place for parts in alike]]
            # what has only one value here may act on what is bounded, whatever its name
            shared = columns | (codes == codes[0]).all(axis=0)
            same = np.logical_and.reduce([has[at][codes[0, at]] for at in np.flatnonzero(shared)], axis=0)
            _, speeds, errors, waits = map(np.array, zip(*alike, strict=True))
            most[same] = np.minimum(most[same], bound(speeds, errors, waits))
    excess = [parts.speed - most[parts.place] - 2.0 * parts.error for parts in known]
    return most + max([0.0, *excess])


def _groups(pool: Pool, known: Sequence[Parts], columns: NDArray[np.bool_]) -> Iterable[Sequence[Parts]]:
    """Return the groups of configs that have equal values of some parameters."""
    return grouped(known, lambda parts: pool.codes[parts.place, columns].tobytes()).values()


def _by_rest(speeds: Floats, errors: Floats, waits: Floats) -> float:
    """Return the logarithm of the speed without any wait."""
    limits = speeds - np.log(1.0 - np.minimum(SLACK * waits, 0.999))
    return float(np.average(limits, weights=errors**-2) + (errors**-2).sum() ** -0.5)


def _by_load(speeds: Floats, errors: Floats, waits: Floats) -> float:
    """Return the logarithm of the speed at which batches are loaded; infinite where the wait does not tell.

    The time of a step, to a power, is the sum of load and rest to this power. These configs load equally fast: so the
    power is the lowest one at which their speeds of loading agree. A single config does not tell it, and 1 is safe.
    """
    tells = waits > LEAST_WAIT
    if not tells.any():
        return math.inf
    speeds, waits, weights = speeds[tells], np.minimum(waits[tells], 0.999), errors[tells] ** -2
    found = list[tuple[float, float]]()
    for power in POWERS if len(speeds) > 1 else POWERS[:1]:
        limits = speeds - np.log(1.0 - (1.0 - waits) ** power) / power
        mean = float(np.average(limits, weights=weights))
        found.append((math.sqrt(np.average(np.square(limits - mean), weights=weights)), mean))
    most = max(1.3 * min(spread for spread, _ in found), 0.5 * float(np.median(weights)) ** -0.5)
    spread, mean = next(each for each in found if each[0] <= most)
    return mean + max(spread / math.sqrt(len(speeds)), weights.sum() ** -0.5)
