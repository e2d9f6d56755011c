"""The laws of scaling fitted to measured rates, and where the time of a step is lost. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and its standard error; None where the error is unknown."""

    value: float
    error: float | None = None

    def times(self, factor: float) -> "Quantity":
        """Return the product with an exact number."""
        return Quantity(self.value * factor, None if self.error is None else self.error * abs(factor))


class SerialPart(NamedTuple):
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


def difference(quantity: Quantity, less: Quantity) -> Quantity:
    """Return a difference; the errors of both numbers are independent."""
    return _with_errors(quantity.value - less.value, quantity, less)


def total(parts: Sequence[Quantity]) -> Quantity:
    """Return a sum; the errors of its parts are independent."""
    return _with_errors(sum(part.value for part in parts), *parts)


def _with_errors(value: float, *parts: Quantity) -> Quantity:
    """Return a number with the independent errors of its parts; its error is unknown where that of a part is."""
    errors = [part.error for part in parts if part.error is not None]
    return Quantity(value, math.hypot(*errors) if len(errors) == len(parts) else None)


def serial_part(
    scaling: Literal["weak", "strong"], single: Quantity, several: Sequence[tuple[int, Quantity]]
) -> SerialPart:
    """Fit the law of a scaling to rates on one GPU and on several.

    - `strong`: the whole batch stays the same, and the time on n GPUs is T(n) = T(1) (s + (1 - s) / n) (Amdahl, 1967).
      From one number of GPUs, s is the metric of Karp and Flatt (Communications of the ACM 33, 1990).
    - `weak`: the batch per GPU stays the same, and the scaled speed-up of n GPUs is S(n) = n - s (n - 1) (Gustafson,
      Communications of the ACM 31, 1988).

    Both are lines y = s x. A weighted least squares fit gives s. The error of the single GPU's rate moves all points.
    Where the points scatter more than their errors say, the error is enlarged by the root of the reduced chi-square, as
    the Particle Data Group does ("Unconstrained averaging", introduction of the Review of Particle Physics, 2024).
    """
    import numpy as np  # noqa: PLC0415 - a tenth of a second, which most commands do not need

    counts = np.array([count for count, _ in several], dtype=float)
    gains = np.array([rate.value for _, rate in several]) / single.value
    errors = np.array([rate.error or 0.0 for _, rate in several]) / single.value
    if scaling == "strong":
        x, y, errors, slopes = 1 - 1 / counts, 1 / gains - 1 / counts, errors / gains**2, 1 / (gains * single.value)
    else:
        x, y, slopes = counts - 1, counts - gains, gains / single.value
    known = single.error is not None and errors.all()
    weights = errors**-2 if known else np.ones_like(x)
    norm = float(weights @ x**2)
    share = float(weights @ (x * y)) / norm
    if not known:
        return SerialPart(share=share, error=None, misfit=None)
    misfit = math.sqrt(float(weights @ (y - share * x) ** 2) / (len(x) - 1)) if len(x) > 1 else None
    own = max(1.0, misfit or 1.0) / math.sqrt(norm)
    of_single = float(weights @ (x * slopes)) / norm * (single.error or 0.0)
    return SerialPart(share=share, error=math.hypot(own, of_single), misfit=misfit)


class Loss(StrEnum):
    """The names of all losses of a step, in the order in which they add up."""

    SERIAL = "serial"
    CONTENTION = "contention"
    IMBALANCE = "imbalance"
    SYNCHRONISATION = "synchronisation"
    STAGES = "stages"
    BUBBLE = "bubble"
    COMMUNICATION = "communication"
    WAITING = "communication and synchronisation"
    """Both in one number, where a trainer cannot run without exchanging anything."""


def losses(
    *,
    joined: Quantity,
    ideal: Quantity,
    same_batch: Quantity,
    beside: Sequence[Quantity] = (),
    apart: Quantity | None = None,
    fill: float = 0.0,
) -> dict[str, Quantity]:
    """Return the losses of a step from measured times of a step. They add up to the step's time minus the ideal.

    - `joined`: of all ranks together, exchanging results
    - `ideal`: that n GPUs would need without any loss
    - `same_batch`: of one GPU, alone on the machine, with the work that each rank has
    - `beside`: of each GPU with that work, all at the same time in programs of their own
    - `apart`: of all ranks together, waiting for each other and exchanging nothing; None where it was not measured
    - `fill`: the share of the `apart` step in which a pipeline fills and drains

    A loss may be negative within its error. Neighbouring losses share a measurement, so their errors are correlated.
    """
    parts = {Loss.SERIAL: difference(same_batch, ideal)} if same_batch != ideal else {}
    before = same_batch
    if beside:
        mean, slowest = total(beside).times(1 / len(beside)), max(beside, key=lambda step: step.value)
        parts |= {Loss.CONTENTION: difference(mean, before), Loss.IMBALANCE: difference(slowest, mean)}
        before = slowest
    if apart is None:
        return {**parts, Loss.WAITING: difference(joined, before)}
    parts[Loss.STAGES if fill else Loss.SYNCHRONISATION] = difference(apart, before)
    filled = Quantity(apart.value * (1 + fill), apart.error)
    if fill:
        parts[Loss.BUBBLE] = Quantity(filled.value - apart.value)
    return {**parts, Loss.COMMUNICATION: difference(joined, filled)}


def fill_share(stages: int, micro_batches: int) -> float:
    """Return the time in which a pipeline fills and drains, as a share of its busy time.

    Of m + n - 1 turns of n stages, n - 1 are idle (GPipe: Huang et al., 2019, section 2.3).
    """
    return (stages - 1) / micro_batches
