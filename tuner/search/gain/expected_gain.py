"""What a series of further probes is expected to gain, and when a search has found enough.

The gain of a measurement is by how much it raises the expected value of the best config.
"""

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

EQUAL_WITHIN = 0.01
"""Configs whose values differ by no more than this share are equally good: no choice between them is worth a probe."""
RATIO_OFFSET = 0.005
"""The share of the best that is added to both expected and realised gains: see `realised_ratio`."""
_DRAWS = 512
"""The number of random draws that a mean or a quantile is taken over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The configs that may become the best: a row per config."""

    mean: Floats
    covariance: Floats
    """Mean and covariance of their true values."""
    chance_to_run: Floats
    """The probability that a probe of each config succeeds; 1 where one has."""
    is_measured: NDArray[np.bool_]
    """Whether each config has been measured and may be the best. At least one has."""
    errors: Floats
    """The standard error of a measurement of each config."""
    degrees_of_freedom: float
    """Those of Student's t, with which the true values lie about their means.

    The hyperparameters of the model are fitted to a few measurements. So a value lies far off more often than a normal
    variable. Measurements of similar cases count where the model uses them.
    """
    ceiling: float
    """A bound that no value exceeds."""
    scale: float
    """What a difference of values is divided by to become a share: usually the best's value; 1 for logarithms."""

    @property
    def best(self) -> int:
        """The row of the best config that has been measured."""
        return int(np.where(self.is_measured, self.mean, -np.inf).argmax())

    def draw_values(self, random: np.random.Generator, root: NDArray[np.floating[Any]]) -> Floats:
        """Return random values of all configs that lie about their means by Student's t, and not above the ceiling.

        Args:
            random: The source of random numbers.
            root: A matrix whose product with its transpose is the covariance of the values.

        Returns:
            `_DRAWS` values of each config: config by draw.
        """
        # A normal variable times such a factor is distributed as Student's t.
        factors = np.sqrt(self.degrees_of_freedom / random.chisquare(self.degrees_of_freedom, _DRAWS))
        departures = root @ (random.standard_normal((root.shape[1], _DRAWS)) * factors)
        return np.minimum(self.mean[:, None] + departures, max(self.ceiling, self.mean[self.best]))


class Series(NamedTuple):
    """Probes that measure several configs, each equally often."""

    members: Rows
    """The rows of the configs among the candidates."""
    probes_each: int


class Prospect(NamedTuple):
    """What the most rewarding series of further probes promises."""

    gained_s: float
    """The seconds of training that are expected to be saved."""
    takes_s: float
    """The expected seconds of the probes."""

    @property
    def pays(self) -> bool:
        """Whether the probes take less time than the training saves."""
        return self.gained_s > self.takes_s


def realised_ratio(expected: Floats, realised: Floats, offset: float) -> float:
    """Return realised gain / expected gain of the newest eight configs: how far expected gains can be believed.

    Args:
        expected: By how much each config was expected to raise the best, from all other measurements. The order is that
            of the first measurements.
        realised: By how much each config did raise it.
        offset: An amount that is added to both sums, so that the ratio is near 1 while both are small.

    Returns:
        1 if gains came as expected, and at most 2.
    """
    realised_sum, expected_sum = float(realised[-8:].sum()), float(expected[-8:].sum())
    return min((realised_sum + offset) / (expected_sum + offset), 2.0)


def most_rewarding(
    candidates: Candidates, order: Rows, training_s: float, takes_s: Callable[[Series], float], ratio: float
) -> Prospect:
    """Return the prospect of the series that saves most training for its seconds, or of the first series that pays.

    The series measure the first 1, 2, 4, … 64 configs of `order`, each once or four times.

    Args:
        candidates: The configs that may become the best.
        order: The rows of the configs to measure, the most promising one first.
        training_s: The seconds of the training.
        takes_s: Returns the expected seconds of a series.
        ratio: The factor by which expected gains are corrected: see `realised_ratio`.
    """
    best = Prospect(gained_s=0.0, takes_s=1.0)
    sizes = sorted({min(1 << power, len(order)) for power in range(7)} - {0})
    for probes in (Series(members=order[:size], probes_each=count) for size in sizes for count in (1, 4)):
        share = ratio * expected_gain(candidates, probes) / candidates.scale
        saved_s = -math.expm1(-share) * training_s  # a speed that is e^share times as large needs e^-share of the time
        prospect = Prospect(gained_s=saved_s, takes_s=takes_s(probes))
        best = max(best, prospect, key=lambda known: known.gained_s / known.takes_s)
        if best.pays:
            break
    return best


class Shortfall(NamedTuple):
    """How far the best so far is below the best of all candidates, as a share: see `Candidates.scale`."""

    mean: float
    bound: float
    """At least as large as the shortfall in 95 of 100 draws."""

    @property
    def in_words(self) -> str:
        """The two shares in percent, to print."""
        return f"{100 * self.mean:.2g}% may be left, at most {100 * self.bound:.2g}%"


def draw_shortfall(candidates: Candidates) -> Shortfall:
    """Return how far the best so far is below the best of all candidates that run, by random draws of their values."""
    random, best = np.random.default_rng(0), candidates.best
    truths = candidates.draw_values(random, root=np.linalg.cholesky(candidates.covariance))
    runs = random.random(truths.shape) < candidates.chance_to_run[:, None]
    runs[best] = True
    true_best = np.where(runs, truths, -np.inf).max(axis=0)
    lost = np.maximum(true_best - truths[best], 0.0) / candidates.scale
    return Shortfall(float(lost.mean()), float(np.quantile(lost, 0.95)))


def expected_gain(candidates: Candidates, probes: Series) -> float:
    """Return by how much the expected value of the best config will rise on average once a series has been measured.

    The unit is that of the values.

    This is the knowledge gradient for several measurements at once (Wu and Frazier, "The Parallel Knowledge Gradient
    Method for Batch Bayesian Optimization", 2016, equation 4.3), with Student's t in place of the normal distribution.
    The means after the series are drawn as if every member had run. A member that does not run cannot become the best.
    A measured config other than the best gains only by the part of its lead that is above `EQUAL_WITHIN`. So configs
    that are equally good are not measured again and again.
    """
    members, best = probes.members, candidates.best
    random = np.random.default_rng(0)

    # The mean of each config after the series: config by draw.
    covariance = candidates.covariance[:, members]  # of all configs with those that are measured
    root = np.linalg.cholesky(covariance[members] + np.diag(candidates.errors[members] ** 2 / probes.probes_each))
    later_means = candidates.draw_values(random, root=np.linalg.solve(root, covariance.T).T)

    # Whether each config has then been measured. A member has where it runs.
    is_measured = np.repeat(candidates.is_measured[:, None], _DRAWS, axis=1)
    is_measured[members] = random.random((len(members), _DRAWS)) < candidates.chance_to_run[members][:, None]

    # How far each mean is then above that of the config that is the best now.
    lead = later_means - later_means[best]
    lead[candidates.is_measured] -= EQUAL_WITHIN * candidates.scale
    lead[best] = 0.0
    return float(np.where(is_measured, lead, -np.inf).max(axis=0).mean())


_erf = np.vectorize(math.erf, otypes=[float])


def chance_below(limit: float, mean: Floats, deviation: Floats) -> Floats:
    """Return the probability that a normal variable is below `limit`: the normal distribution function."""
    return 0.5 + 0.5 * _erf((limit - mean) / (math.sqrt(2.0) * deviation))


def expected_improvement(mean: Floats, deviation: Floats) -> Floats:
    """Return the mean of max(x, 0) for a normal variable x: Jones, Schonlau and Welch (1998, equation 15)."""
    density = np.exp(-0.5 * (mean / deviation) ** 2) / math.sqrt(2.0 * math.pi)
    return deviation * density + mean * chance_below(0.0, -mean, deviation)


def knowledge_gradient(
    mean: Floats,
    deviation: Floats,
    error: Floats | float,
    eligible: list[int],
    *,
    ceiling: float = math.inf,
    margin: float = 0.0,
) -> Floats:
    """Return by how much one more measurement of each config raises, on average, the highest eligible mean.

    This is the knowledge gradient of Frazier, Powell and Dayanik (2008, equation 10), with independent configs. Another
    measurement of the best itself gains something if the best then falls behind the second.

    Args:
        mean: The expected value of each config.
        deviation: The standard deviation of each value.
        error: The standard error of one measurement of each config.
        eligible: The positions of the configs that may be the best. Without any, gains are over the lowest mean.
        ceiling: A bound that no value exceeds.
        margin: The lead over the best that counts as none: only what lies above it is a gain.
    """
    shift = deviation**2 / np.hypot(deviation, error)  # the standard deviation by which a measurement moves a mean
    if not eligible:
        return expected_improvement(mean - mean.min(), shift)
    best, *behind = sorted(eligible, key=lambda place: -mean[place])
    lead = mean - mean[best]
    lead[behind] -= margin
    gain = expected_improvement(lead, shift)
    if math.isfinite(ceiling):  # what would lie above the ceiling is no gain
        gain = np.maximum(gain - expected_improvement(mean - max(ceiling, mean[best]), shift), 0.0)
    gain[best] = expected_improvement(lead[behind[0]], shift[best]) if behind else 0.0
    return gain


def probes_left(chances_to_beat_best: Floats, for_rare_values: int) -> float:
    """Return how many more probes a search usually makes, to show while it runs.

    The search must learn about each config that may clearly beat the best. The least probable ones, whose probabilities
    together sum to 0.02 at most, are left out. One probe often shows enough about many configs, so their number counts
    by its logarithm. The numbers 3.0, 1.4 and 0.8 were fitted to searches of invented tables.

    Args:
        chances_to_beat_best: The probability of each config that it clearly beats the best.
        for_rare_values: The probes that would show each value of a parameter with few values twice.
    """
    to_learn_about = int(np.count_nonzero(np.cumsum(np.sort(chances_to_beat_best)) > 0.02))
    return 3.0 + 1.4 * for_rare_values + 0.8 * math.log2(1 + to_learn_about)


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """How well a search must know the best config."""

    training_hours: float = TRAINING_HOURS
    """The length of the training that will use the best config.

    The search ends when more probes are expected to take more time than this training would gain.
    """
    ceiling: float = math.inf
    """A bound that no value of the objective exceeds: 100 for an objective in percent."""

    @property
    def training_s(self) -> float:
        """The seconds of the training."""
        return self.training_hours * HOUR_S

    def reason_to_end(self, prospect: Prospect, shortfall: Shortfall) -> str:
        """Return in words why the search ends: how much may be left to find, and that further probes do not pay.

        `prospect`: of further probes. `shortfall`: how far the best is below the true best.
        """
        training = f"a {self.training_hours:g}-hour training"
        if prospect.gained_s > 0.05:  # less would be printed as 0.0 s
            saved, takes = duration(prospect.gained_s), duration(prospect.takes_s)
            why = f"further probes would save about {saved} of {training}, and take {takes}"
        else:
            why = f"further probes would save less than a second of {training}"
        return f"{shortfall.in_words}: {why}"
