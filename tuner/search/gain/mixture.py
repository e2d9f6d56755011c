"""Predicts values by two models, each with the weight of its evidence. Pure."""

import math

import numpy as np

from tuner.search.gain.pool import Codes
from tuner.search.gain.surrogate import Surrogate
from tuner.search.needs import Floats

_SURE = 50.0
"""The difference of two logarithms of evidence from which on the less plausible model counts for nothing."""


class Mixture:
    """The average of two models of the same measurements, one with what similar cases measured and one without.

    Where the two models disagree, the true value is less certain. The law of total covariance gives mean and covariance
    (Hoeting, Madigan, Raftery and Volinsky, "Bayesian Model Averaging: A Tutorial", 1999).
    """

    def __init__(self, alone: Surrogate, lent: Surrogate) -> None:
        self._alone, self._lent = alone, lent
        doubt = min(max(alone.evidence - lent.evidence, -_SURE), _SURE)
        self._share = 1.0 / (1.0 + math.exp(doubt))

    @property
    def measured(self) -> float:
        """The number of measurements that the sizes are fitted to, averaged over both models."""
        return (1.0 - self._share) * self._alone.measured + self._share * self._lent.measured

    def believe(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the true value of each config."""
        (alone, its_doubt), (lent, doubt) = self._alone.believe(codes), self._lent.believe(codes)
        variance = self._mean(its_doubt**2, doubt**2) + self._between * (lent - alone) ** 2
        return self._mean(alone, lent), np.sqrt(variance)

    def together(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return mean and covariance of the true values of the configs."""
        (alone, its_doubt), (lent, doubt) = self._alone.together(codes), self._lent.together(codes)
        apart = np.outer(lent - alone, lent - alone)
        return self._mean(alone, lent), self._mean(its_doubt, doubt) + self._between * apart

    def _mean(self, alone: Floats, lent: Floats) -> Floats:
        return (1.0 - self._share) * alone + self._share * lent

    @property
    def _between(self) -> float:
        return self._share * (1.0 - self._share)
