"""Chooses the measurements that a model of bounded size learns from. Pure."""

import numpy as np
from numpy.typing import NDArray

from tuner.search.arrays import Floats

BEST_SHARE = 0.5
"""The share of the chosen measurements that are simply the highest: the search compares configs with the best."""


def informative(covariance: Floats, values: Floats, errors: Floats, most: int) -> NDArray[np.intp]:
    """Return the places of at most `most` measurements: the highest ones, and those that tell most beside them.

    `covariance` is that of the true values, before anything is measured. The next measurement is always the one whose
    variance, given all chosen ones, is the largest in units of its error. It reduces the entropy most, as in the
    informative vector machine (Lawrence, Seeger and Herbrich, Advances in Neural Information Processing Systems 15,
    2003).
    """
    if len(values) <= most:
        return np.arange(len(values))
    highest = np.argsort(-values, kind="stable")[: round(BEST_SHARE * most)]
    chosen: list[int] = []
    variance, learnt = covariance.diagonal().copy(), np.zeros((most, len(values)))
    for step in range(most):
        told = np.where(np.isin(np.arange(len(values)), chosen), -1.0, variance / errors**2)
        place = int(highest[step] if step < len(highest) else told.argmax())
        left = covariance[place] - learnt[:step, place] @ learnt[:step]
        learnt[step] = left / np.sqrt(variance[place] + errors[place] ** 2)
        variance = variance - learnt[step] ** 2
        chosen.append(place)
    return np.sort(chosen)
