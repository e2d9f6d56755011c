"""Where the time of a step goes on several GPUs: each loss is a difference of two measured step times. Pure.

The parts of a step on n GPUs, in the order in which they add up:

- ideal: the step of one GPU, or its n-th part where n GPUs share the work of the step
- serial: the work that a smaller batch does not shorten; one GPU shows this work with the n-th part of the batch
- contention: GPUs that work side by side without a word slow each other down, over the host, its memory or its power
- imbalance: the slowest GPU against the mean of all, or unequal stages of a model
- synchronisation: the wait for whichever rank is last in this step
- stages: where a model is split, in place of synchronisation: smaller batches, unequal stages and waiting
- bubble: the time in which a pipeline fills and drains, computed from the number of micro-batches
- communication: what the exchange of gradients, grids or activations adds
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.scaling.laws import Measure, difference

SERIAL, CONTENTION, IMBALANCE = "serial", "contention", "imbalance"
SYNCHRONISATION, STAGES, BUBBLE, COMMUNICATION = "synchronisation", "stages", "bubble", "communication"
WAITING = "communication and synchronisation"
"""Both in one number, where a trainer cannot run without exchanging anything."""
LOSSES = (SERIAL, CONTENTION, IMBALANCE, SYNCHRONISATION, STAGES, BUBBLE, COMMUNICATION, WAITING)
"""All losses, in the order in which they add up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """One part of a step's time beyond the ideal."""

    name: str
    ms: float
    error_ms: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The measured times of a step, in ms; None where a time was not measured."""

    joined: Measure
    """Of all ranks together, exchanging results."""
    ideal: Measure
    """That n GPUs would need without any loss."""
    same_batch: Measure
    """Of one GPU, alone on the machine, with the work that each rank has."""
    beside: tuple[Measure, ...] = ()
    """Of each GPU with that work, all at the same time in programs of their own."""
    apart: Measure | None = None
    """Of all ranks together, waiting for each other and exchanging nothing."""
    fill: float = 0.0
    """The share of the `apart` step in which a pipeline fills and drains."""


def losses(steps: Steps) -> tuple[Loss, ...]:
    """Return the losses of a step. They add up to the step's time minus the ideal.

    A loss may be negative within its error. Neighbouring losses share a measurement, so their errors are correlated.
    """
    found = [_loss(SERIAL, steps.same_batch, steps.ideal)] if steps.same_batch != steps.ideal else []
    before = steps.same_batch
    if steps.beside:
        mean, slowest = _mean(steps.beside), max(steps.beside, key=lambda one: one.value)
        found += [_loss(CONTENTION, mean, before), _loss(IMBALANCE, slowest, mean)]
        before = slowest
    if steps.apart is None:
        return (*found, _loss(WAITING, steps.joined, before))
    found.append(_loss(STAGES if steps.fill else SYNCHRONISATION, steps.apart, before))
    filled = Measure(steps.apart.value * (1 + steps.fill), steps.apart.error)
    if steps.fill:
        found.append(Loss(name=BUBBLE, ms=filled.value - steps.apart.value))
    return (*found, _loss(COMMUNICATION, steps.joined, filled))


def fill_share(stages: int, micro_batches: int) -> float:
    """Return the time in which a pipeline fills and drains, as a share of its busy time.

    Of m + n - 1 turns of n stages, n - 1 are idle (GPipe: Huang et al., 2019, section 2.3).
    """
    return (stages - 1) / micro_batches


def _loss(name: str, longer: Measure, shorter: Measure) -> Loss:
    between = difference(longer, shorter)
    return Loss(name=name, ms=between.value, error_ms=between.error)


def _mean(times: Sequence[Measure]) -> Measure:
    errors = [one.error for one in times if one.error is not None]
    known = len(errors) == len(times)
    error = sum(one**2 for one in errors) ** 0.5 / len(times) if known else None
    return Measure(fmean(one.value for one in times), error)
