"""What a series of further probes is expected to gain, and when a search has found enough."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.probe import HOUR_S, duration
from tuner.search.resource_model import Floats
from tuner.study import TRAINING_HOURS

Rows = NDArray[np.intp]
"""Rows of configs."""

WITHIN = 0.01
"""Configs whose values differ by no more than this share are equally good: no choice between them is worth a probe."""
LEAST = 0.005
"""The share of the best that is added to both expected and realised gains: see `realised_ratio`."""
_DRAWS = 512
"""The number of random draws that a mean or a quantile is taken over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rivals:
    """The configs that may become the best: a row per config."""

    mean: Floats
    covariance: Floats
    """Mean and covariance of their true values."""
    runs: Floats
    """The probability that each config runs; 1 where the config has run."""
    known: NDArray[np.bool_]
    """Whether each config has been measured and may be the best. At least one has."""
    errors: Floats
    """The standard error of a measurement of each config."""
    freedom: float
    """The degrees of freedom of Student's t, with which the true values lie about their means.

    The sizes of the model are fitted to a few measurements. So a value lies far off more often than a normal variable.
    Measurements of similar cases count where the model uses them.
    """
    ceiling: float
    """A bound that no value exceeds."""
    scale: float
    """The amount of which shares are given: see `Readings.scale`."""

    @property
    def best(self) -> int:
        """The row of the best config that has been measured."""
        return int(np.where(self.known, self.mean, -np.inf).argmax())

    def drawn(self, random: np.random.Generator, root: NDArray[np.floating[Any]]) -> Floats:
        """Return random values of all configs that lie about their means by Student's t, and not above the ceiling.

        Args:
            random: The source of chance.
            root: A matrix whose product with its transpose is the covariance of the values.

        Returns:
            `_DRAWS` values of each config: config by draw.
        """
        # A normal value times the factor of its draw is distributed as Student's t.
        factors = np.sqrt(self.freedom / random.chisquare(self.freedom, _DRAWS))
        differences = root @ (random.standard_normal((root.shape[1], _DRAWS)) * factors)
        return np.minimum(self.mean[:, None] + differences, max(self.ceiling, self.mean[self.best]))


class Series(NamedTuple):
    """Probes that measure several configs, each equally often."""

    members: Rows
    repeats: int


class Prospect(NamedTuple):
    """What the most rewarding series of further probes promises."""

    share: float
    """By how much the best is expected to rise, as a share of its value."""
    gained_s: float
    """The seconds of training that this share is worth."""
    takes_s: float
    """The expected seconds of the probes."""

    @property
    def pays(self) -> bool:
        """Whether the probes take less time than the training gains."""
        return self.gained_s > self.takes_s


def realised_ratio(expected: Floats, realised: Floats, least: float) -> float:
    """Return how far the model's expected gains can be believed: by the newest eight configs, realised / expected gain.

    Args:
        expected: By how much each config was expected to raise the best, from all other measurements. The order is that
            of the first measurements.
        realised: By how much each config did raise it.
        least: An amount that is added to both sums, so that the ratio is near 1 while both are small.

    Returns:
        1 if gains came as expected, and at most 2.
    """
    realised_sum, expected_sum = float(realised[-8:].sum()), float(expected[-8:].sum())
    return min((realised_sum + least) / (expected_sum + least), 2.0)


def most_rewarding(
    rivals: Rivals, order: Rows, training_s: float, takes_s: Callable[[Series], float], ratio: float
) -> Prospect:
    """Return the prospect of the series that saves most training for its seconds, or of the first series that pays.

    Args:
        rivals: The configs that may become the best.
        order: The rows of the configs to measure, the most promising one first.
        training_s: The seconds of the training.
        takes_s: Returns the expected seconds of a series.
        ratio: What gains amount to, as a multiple of what the model expects: see `realised_ratio`.
    """
    best = Prospect(share=0.0, gained_s=0.0, takes_s=1.0)
    for probes in series(order):
        share = ratio * expected_gain(rivals, probes) / rivals.scale
        gained_s = -math.expm1(-share) * training_s  # a speed that is e^share times as large needs e^-share of the time
        prospect = Prospect(share=share, gained_s=gained_s, takes_s=takes_s(probes))
        best = max(best, prospect, key=lambda known: known.gained_s / known.takes_s)
        if best.pays:
            break
    return best


class Shortfall(NamedTuple):
    """How far the best is below the best of all rivals that run, as a share; see `Rivals.scale`."""

    mean: float
    bound: float
    """At least as large as the shortfall in 95 of 100 draws."""

    @property
    def in_words(self) -> str:
        """The two shares in percent, as a person is told."""
        return f"{100 * self.mean:.2g}% may be left, at most {100 * self.bound:.2g}%"


def shortfall(rivals: Rivals) -> Shortfall:
    """Return how far the best is below the best of all rivals; their true values are drawn together."""
    random, best = np.random.default_rng(0), rivals.best
    truths = rivals.drawn(random, np.linalg.cholesky(rivals.covariance))
    runs = random.random(truths.shape) < rivals.runs[:, None]
    runs[best] = True
    true_best = np.where(runs, truths, -np.inf).max(axis=0)
    lost = np.maximum(true_best - truths[best], 0.0) / rivals.scale
    return Shortfall(float(lost.mean()), float(np.quantile(lost, 0.95)))


def series(order: Rows) -> list[Series]:
    """Return series of 1 to 64 configs: the first rows of `order`, each measured once or four times."""
    sizes = sorted({min(1 << power, len(order)) for power in range(7)} - {0})
    return [Series(members=order[:size], repeats=repeats) for size in sizes for repeats in (1, 4)]


def expected_gain(rivals: Rivals, probes: Series) -> float:
    """Return by how much the expected value of the best config will rise on average once a series has been measured.

    The unit is that of the values.

    This is the knowledge gradient for several measurements at once (Wu and Frazier, "The Parallel Knowledge Gradient
    Method for Batch Bayesian Optimization", 2016, equation 4.3), with Student's t in place of the normal distribution.
    A config that does not run cannot become the best. The means of the others are drawn as if it had run. A measured
    config other than the best gains only the part of its lead that is above `WITHIN`: so ties are not measured until
    one of them leads.
    """
    members, best = probes.members, rivals.best
    random = np.random.default_rng(0)

    # The mean of each config after the series: config by draw.
    covariance = rivals.covariance[:, members]  # of all configs with those that are measured
    root = np.linalg.cholesky(covariance[members] + np.diag(rivals.errors[members] ** 2 / probes.repeats))
    later_means = rivals.drawn(random, np.linalg.solve(root, covariance.T).T)

    # Whether each config has then been measured. A member has where it runs.
    is_measured = np.repeat(rivals.known[:, None], _DRAWS, axis=1)
    is_measured[members] = random.random((len(members), _DRAWS)) < rivals.runs[members][:, None]

    # How far each mean is then above that of the config that is the best now.
    lead = later_means - later_means[best]
    lead[rivals.known] -= WITHIN * rivals.scale
    lead[best] = 0.0
    return float(np.where(is_measured, lead, -np.inf).max(axis=0).mean())


_erf = np.vectorize(math.erf, otypes=[float])


def below(limit: float, mean: Floats, deviation: Floats) -> Floats:
    """Return the probability that a normal variable stays below `limit`."""
    return 0.5 + 0.5 * _erf((limit - mean) / (math.sqrt(2.0) * deviation))


def expected_improvement(mean: Floats, deviation: Floats) -> Floats:
    """Return the mean of max(x, 0) for a normal variable x: Jones, Schonlau and Welch (1998, equation 15)."""
    density = np.exp(-0.5 * (mean / deviation) ** 2) / math.sqrt(2.0 * math.pi)
    return deviation * density + mean * below(0.0, -mean, deviation)


def knowledge_gradient(
    mean: Floats,
    deviation: Floats,
    error: Floats | float,
    eligible: list[int],
    *,
    ceiling: float = math.inf,
    tie: float = 0.0,
) -> Floats:
    """Return by how much one more measurement of each config raises, on average, the highest eligible mean.

    This is the knowledge gradient of Frazier, Powell and Dayanik (2008, equation 10), with independent configs. Another
    measurement of the best itself gains something if the best then falls behind the second.

    Args:
        mean: The expected value of each config.
        deviation: The standard deviation of each value.
        error: The standard error of one measurement of each config.
        eligible: The places of the configs that may be the best. Without any, gains are over the lowest mean.
        ceiling: A bound that no value exceeds.
        tie: A config gains nothing over the best by no more than this: see `expected_gain`.
    """
    shift = deviation**2 / np.hypot(deviation, error)  # the standard deviation by which a measurement moves a mean
    if not eligible:
        return expected_improvement(mean - mean.min(), shift)
    best, *behind = sorted(eligible, key=lambda place: -mean[place])
    lead = mean - mean[best]
    lead[behind] -= tie
    gain = expected_improvement(lead, shift)
    if math.isfinite(ceiling):  # what would lie above the ceiling is no gain
        gain = np.maximum(gain - expected_improvement(mean - max(ceiling, mean[best]), shift), 0.0)
    gain[best] = expected_improvement(lead[behind[0]], shift[best]) if behind else 0.0
    return gain


def probes_left(threats: Floats, for_rare_values: int) -> float:
    """Return how many more probes a search usually makes; the three numbers were fitted to searches of invented tables.

    Args:
        threats: The probabilities that configs clearly beat the best. The search must learn about so many of them that
            the others together have a probability of at most 0.02. One probe often settles many.
        for_rare_values: The probes that would show each value of a parameter with few values twice.
    """
    to_learn_about = int(np.count_nonzero(np.cumsum(np.sort(threats)) > 0.02))
    return 3.0 + 1.4 * for_rare_values + 0.8 * math.log2(1 + to_learn_about)


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """How well a search must know the best config."""

    training_hours: float = TRAINING_HOURS
    """The length of the training that will use the best config.

    The search ends when more probes are expected to take more time than this training would gain.
    """
    ceiling: float = float("inf")
    """A bound that no value of the objective exceeds: 100 for an objective in percent."""

    @property
    def training_s(self) -> float:
        """The seconds of the training."""
        return self.training_hours * HOUR_S

    def in_words(self, prospect: Prospect, shortfall: Shortfall) -> str:
        """Return in words what the search leaves unfound, and why.

        `prospect`: of further probes. `shortfall`: of the best, below the true best.
        """
        training = f"a {self.training_hours:g}-hour training"
        if prospect.gained_s > 0.05:  # less would be printed as 0.0 s
            saved, takes = duration(prospect.gained_s), duration(prospect.takes_s)
            why = f"further probes would save about {saved} of {training}, and take {takes}"
        else:
            why = f"further probes would save less than a second of {training}"
        return f"{shortfall.in_words}: {why}"
