"""How much one more measurement may gain. Pure."""

import math

import numpy as np

from tuner.search.arrays import Floats

SMALL_DOUBT, AT_LEAST, PER_RIVAL = 0.02, 1.5, 0.2
"""Fitted to searches on two recorded tables (`benchmarks/results/left.md`)."""

_erf = np.vectorize(math.erf, otypes=[float])


def below(limit: float, mean: Floats, deviation: Floats) -> Floats:
    """Return the probability that a normal variable stays below `limit`."""
    return 0.5 + 0.5 * _erf((limit - mean) / (math.sqrt(2.0) * deviation))


def expected_improvement(mean: Floats, deviation: Floats) -> Floats:
    """Return the mean of max(x, 0) for a normal variable x: Jones, Schonlau and Welch (1998, equation 15)."""
    density = np.exp(-0.5 * (mean / deviation) ** 2) / math.sqrt(2.0 * math.pi)
    return deviation * density + mean * below(0.0, -mean, deviation)


def knowledge_gradient(
    mean: Floats, deviation: Floats, error: Floats | float, rivals: list[int], ceiling: float = math.inf
) -> Floats:
    """Return by how much one more measurement of each config raises, on average, the highest mean among the `rivals`.

    `rivals`: the places of the configs that may be the best. `error`: the standard error of a measurement of each.
    `ceiling`: no value is higher. Another measurement of the best itself gains something if the best then falls behind
    the second.
    This is the knowledge gradient of Frazier, Powell and Dayanik (2008, equation 10), with independent configs.
    """
    moves = deviation**2 / np.hypot(deviation, error)
    if not rivals:
        return expected_improvement(mean - mean.min(), moves)
    best, *others = sorted(rivals, key=lambda rival: -mean[rival])
    ahead = mean - mean[best]
    gain = expected_improvement(ahead, moves)
    if math.isfinite(ceiling):
        gain -= expected_improvement(mean - max(ceiling, mean[best]), moves)
    gain[best] = expected_improvement(ahead[others[0]], moves[best]) if others else 0.0
    return gain


def probes_left(threats: Floats) -> float:
    """Return how many more probes a search usually makes.

    `threats` are the probabilities that each config is clearly better than the best. The search must learn about so
    many of these configs that the others together leave a doubt of at most `SMALL_DOUBT`. One probe often settles
    several configs, and the last doubts take some more probes. So the estimate is `AT_LEAST`, and `PER_RIVAL` for each
    config to learn about.
    """
    return AT_LEAST + PER_RIVAL * int(np.count_nonzero(np.cumsum(np.sort(threats)) > SMALL_DOUBT))
