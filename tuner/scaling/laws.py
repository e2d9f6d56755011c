"""The laws of scaling fitted to measured rates, and where the time of a step is lost. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and its standard error; None where the error is unknown."""

    value: float
    error: float | None = None

    def times(self, factor: float) -> "Quantity":
        """Return the product with an exact number."""
        return Quantity(self.value * factor, None if self.error is None else self.error * abs(factor))


@dataclass(frozen=True, kw_only=True, slots=True)
class SerialPart:
    """The fitted serial part of a workload: the share of its time that more GPUs do not shorten."""

    share: float
    error: float | None
    """The standard error of the share; None where the errors of the rates are unknown."""
    misfit: float | None
    """The root of the reduced chi-square. Above 2, the law does not describe the measurements; None from one point."""


def ratio(above: Quantity, below: Quantity) -> Quantity:
    """Return a quotient; the errors of both numbers are independent."""
    value = above.value / below.value
    return _with_errors(value, above.times(value / above.value), below.times(value / below.value))


def difference(one: Quantity, other: Quantity) -> Quantity:
    """Return a difference; the errors of both numbers are independent."""
    return _with_errors(one.value - other.value, one, other)


def total(parts: Sequence[Quantity]) -> Quantity:
    """Return a sum; the errors of its parts are independent."""
    return _with_errors(sum(one.value for one in parts), *parts)


def _with_errors(value: float, *parts: Quantity) -> Quantity:
    """Return a number with the independent errors of its parts; its error is unknown where one of these is."""
    errors = [one.error for one in parts if one.error is not None]
    return Quantity(value, math.hypot(*errors) if len(errors) == len(parts) else None)


def serial_part(
    scaling: Literal["weak", "strong"], single: Quantity, several: Sequence[tuple[int, Quantity]]
) -> SerialPart:
    """Fit the law of a scaling to rates on one GPU and on several.

    - `strong`: the whole batch stays the same, and the time on n GPUs is T(n) = T(1) (s + (1 - s) / n) (Amdahl, 1967).
      From one number of GPUs, s is the metric of Karp and Flatt (Communications of the ACM 33, 1990).
    - `weak`: the batch per GPU stays the same, and the scaled speed-up of n GPUs is S(n) = n - s (n - 1) (Gustafson,
      Communications of the ACM 31, 1988).
    """
    points: list[_Point] = []
    for count, rate in several:
        gain, gain_error = rate.value / single.value, rate.error and rate.error / single.value
        if scaling == "strong":
            points.append(
                _Point(1 - 1 / count, 1 / gain - 1 / count, gain_error and gain_error / gain**2, 1 / rate.value)
            )
        else:
            points.append(_Point(count - 1.0, count - gain, gain_error, gain / single.value))
    return _fitted(points, single.error)


class _Point(NamedTuple):
    """A point of a line y = s x through the origin."""

    x: float
    y: float
    own: float | None
    """The standard error of y that no other point shares."""
    common: float
    """The change of y with the rate of the single GPU, whose error all points share."""


def _fitted(points: Sequence[_Point], single_error: float | None) -> SerialPart:
    """Fit s by weighted least squares.

    Where the points scatter more than their errors say, the error is enlarged by the root of the reduced chi-square, as
    the Particle Data Group does ("Unconstrained averaging", introduction of the Review of Particle Physics, 2024).
    """
    errors = [point.own for point in points if point.own]
    known = len(errors) == len(points) and single_error is not None
    weights = [1 / error**2 for error in errors] if known else [1.0] * len(points)
    weighted = list(zip(weights, points, strict=True))
    norm = sum(weight * point.x**2 for weight, point in weighted)
    share = sum(weight * point.x * point.y for weight, point in weighted) / norm
    if not known:
        return SerialPart(share=share, error=None, misfit=None)
    squares = sum(weight * (point.y - share * point.x) ** 2 for weight, point in weighted)
    misfit = math.sqrt(squares / (len(points) - 1)) if len(points) > 1 else None
    slope = sum(weight * point.x * point.common for weight, point in weighted) / norm
    own = max(1.0, misfit or 1.0) / math.sqrt(norm)
    return SerialPart(share=share, error=math.hypot(own, slope * (single_error or 0.0)), misfit=misfit)


SERIAL, CONTENTION, IMBALANCE = "serial", "contention", "imbalance"
SYNCHRONISATION, STAGES, BUBBLE, COMMUNICATION = "synchronisation", "stages", "bubble", "communication"
WAITING = "communication and synchronisation"
"""Both in one number, where a trainer cannot run without exchanging anything."""
LOSSES = (SERIAL, CONTENTION, IMBALANCE, SYNCHRONISATION, STAGES, BUBBLE, COMMUNICATION, WAITING)
"""All losses, in the order in which they add up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LostTime:
    """One part of a step's time beyond the ideal."""

    name: str
    ms: float
    error_ms: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The measured times of a step, in ms; None where a time was not measured."""

    joined: Quantity
    """Of all ranks together, exchanging results."""
    ideal: Quantity
    """That n GPUs would need without any loss."""
    same_batch: Quantity
    """Of one GPU, alone on the machine, with the work that each rank has."""
    beside: tuple[Quantity, ...] = ()
    """Of each GPU with that work, all at the same time in programs of their own."""
    apart: Quantity | None = None
    """Of all ranks together, waiting for each other and exchanging nothing."""
    fill: float = 0.0
    """The share of the `apart` step in which a pipeline fills and drains."""


def losses(steps: Steps) -> tuple[LostTime, ...]:
    """Return the losses of a step. They add up to the step's time minus the ideal.

    A loss may be negative within its error. Neighbouring losses share a measurement, so their errors are correlated.
    """
    found = [_loss(SERIAL, steps.same_batch, steps.ideal)] if steps.same_batch != steps.ideal else []
    before = steps.same_batch
    if steps.beside:
        mean, slowest = total(steps.beside).times(1 / len(steps.beside)), max(steps.beside, key=lambda one: one.value)
        found += [_loss(CONTENTION, mean, before), _loss(IMBALANCE, slowest, mean)]
        before = slowest
    if steps.apart is None:
        return (*found, _loss(WAITING, steps.joined, before))
    found.append(_loss(STAGES if steps.fill else SYNCHRONISATION, steps.apart, before))
    filled = Quantity(steps.apart.value * (1 + steps.fill), steps.apart.error)
    if steps.fill:
        found.append(LostTime(name=BUBBLE, ms=filled.value - steps.apart.value))
    return (*found, _loss(COMMUNICATION, steps.joined, filled))


def fill_share(stages: int, micro_batches: int) -> float:
    """Return the time in which a pipeline fills and drains, as a share of its busy time.

    Of m + n - 1 turns of n stages, n - 1 are idle (GPipe: Huang et al., 2019, section 2.3).
    """
    return (stages - 1) / micro_batches


def _loss(name: str, longer: Quantity, shorter: Quantity) -> LostTime:
    between = difference(longer, shorter)
    return LostTime(name=name, ms=between.value, error_ms=between.error)
