"""What was counted of a training: what identifies it, how two of them differ, and where its time goes. Pure."""

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean, stdev
from typing import NamedTuple

PARTS = {
    "batch": "samples per optimizer step",
    "sample": "shape of a sample",
    "model": "trained parameters",
    "optimizer": "optimizer",
    "precision": "precision",
    "loss": "loss of the first steps",
}
"""The parts of a training that a config may change → what differs."""
DIVERGES = "a loss of the first steps is infinite, or not a number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """What identifies a training. Configs with equal signatures learn the same, as far as first steps show."""

    samples_per_step: float | None
    """Samples of one optimizer step on all data-parallel ranks together; None where they are not known."""
    samples_error: float = 0.0
    """The standard error of `samples_per_step` where steps have different numbers of samples; otherwise 0."""
    sample: str
    """The shape and the type of a sample, as in `3x224x224 float32`; `?` for a size that differs between batches."""
    parameters: int
    """The trained parameters, of all ranks that hold a part of one model."""
    shapes: str
    """A digest of the shapes of the trained parameters of the first rank."""
    is_split: bool
    """Whether several ranks hold parts of one model."""
    optimizer: str
    learning_rate: float | None
    weight_decays: tuple[float, ...]
    precision: str
    """The types of parameters and of autocast, and whether matrices are multiplied in TF32."""
    normed: float | None = None
    """Over how many samples a batch norm takes its means; None where the model has none, or nobody knows."""
    losses: tuple[float, ...] = ()
    """The loss of each of the first steps, the mean over ranks, up to one that is not finite; empty where it cannot be
    read."""
    added_losses: float | None = None
    """How many losses a rank adds up in a step; None where it is not known."""
    copies: int | None = None
    """How many workers of the loader give the same samples, so that a pass has each sample as often; None where it is
    not known, or not yet."""
    seed: int | None = None
    """The seed of torch's random numbers, such as initial weights: a random one where the script sets none."""
    labels: tuple[int | None, ...] = ()
    """The label that all samples of a batch have in common, for each of the first batches; None for one without it."""
    elements_per_step: float | None = None
    """The numbers in the inputs of a step, such as tokens; None where the samples of a step tell its size."""
    elements_error: float = 0.0
    """The standard error of `elements_per_step`."""
    diverges: bool = False
    """Whether a loss of the first steps is infinite, or not a number."""

    @property
    def samples_in_words(self) -> str:
        """The samples of a step: `64`, or `about 16.4` where they vary; empty where they are not known."""
        if not self.samples_per_step:
            return ""
        return f"about {self.samples_per_step:.3g}" if self.samples_error else f"{self.samples_per_step:.6g}"


class Difference(NamedTuple):
    """A part of a training that a config changes."""

    part: str
    """One of `PARTS`."""
    baseline: str
    """How it is in the person's own training."""
    changed: str
    """How it is with the config."""
    what: str = ""
    """What differs, where that is not the part itself."""

    def __str__(self) -> str:
        """Return the difference as a person reads it."""
        return f"{self.what or PARTS[self.part]}: {self.baseline} → {self.changed}"


def differences(baseline: Signature, changed: Signature, free: Collection[str] = ()) -> tuple[Difference, ...]:
    """Return how a config changes the person's own training, without the differences in parts that may change.

    Losses are compared only where all else is equal: another batch, model or precision has other losses anyway. But
    a config that diverges, where the person's own training does not, always differs.

    If the batch may change and has changed, a difference in learning rate and weight decay is left out, too: scripts
    scale them with the batch.

    Args:
        baseline: The person's own training.
        changed: The training with the config.
        free: The parts, out of `PARTS`, that may change.
    """
    known = list(_differences_but_loss(baseline, changed))
    if changed.diverges and not baseline.diverges:
        known.append(Difference(part="loss", baseline="finite", changed="infinite, or not a number"))
    elif not known and (loss_difference := _loss_difference(baseline, changed)):
        known.append(loss_difference)
    has_other_batch = _batch_difference(baseline, changed) is not None
    scales_settings = "batch" in free and has_other_batch and baseline.optimizer == changed.optimizer
    free_parts = {*free, "optimizer"} if scales_settings else free
    return tuple(difference for difference in known if difference.part not in free_parts)


def _differences_but_loss(baseline: Signature, changed: Signature) -> Iterator[Difference]:
    """Yield the differences in the parts of `PARTS`, in their order, without the loss."""
    if batch := _batch_difference(baseline, changed):
        yield batch
    # forms such as `3x224x224 float32`, whose size `?` equals any size
    sizes = zip_longest(re.split("[x ]", baseline.sample), re.split("[x ]", changed.sample))
    are_alike = all(first == second or "?" in (first, second) for first, second in sizes)
    if baseline.sample and changed.sample and not are_alike:
        yield Difference(part="sample", baseline=baseline.sample, changed=changed.sample)
    if baseline.copies and changed.copies and baseline.copies != changed.copies:
        what = "workers of the loader that give the same samples"
        yield Difference(part="sample", baseline=f"{baseline.copies}", changed=f"{changed.copies}", what=what)
    if baseline.is_split or changed.is_split:
        # several ranks hold some of the parameters, such as those of norms, and all are added up (3 % is chosen)
        have_same_model = abs(changed.parameters - baseline.parameters) <= 0.03 * baseline.parameters
    else:
        have_same_model = (baseline.parameters, baseline.shapes) == (changed.parameters, changed.shapes)
    if not have_same_model:
        yield Difference(part="model", baseline=f"{baseline.parameters:,}", changed=f"{changed.parameters:,}")
    if _settings(baseline) != _settings(changed):
        yield Difference(part="optimizer", baseline=_settings(baseline), changed=_settings(changed))
    if baseline.precision != changed.precision:
        yield Difference(part="precision", baseline=baseline.precision, changed=changed.precision)


def _batch_difference(baseline: Signature, changed: Signature) -> Difference | None:
    """Return the difference in the size of a step: in its samples, those of a batch norm, or the numbers of its inputs.

    None where all are equal or unknown. If batches vary, as where their tokens are alike, the means must differ by more
    than their errors explain.
    """
    for (what, baseline_size, baseline_error), (_, changed_size, changed_error) in zip(
        _sizes_of_step(baseline), _sizes_of_step(changed), strict=True
    ):
        if not baseline_size or not changed_size:  # not known
            continue
        error = math.hypot(baseline_error, changed_error)
        # chosen: 2 %, because an epoch's last batch may be smaller, or 4 standard errors
        if abs(changed_size - baseline_size) > max(0.02 * baseline_size, 4.0 * error):
            return Difference(part="batch", baseline=f"{baseline_size:g}", changed=f"{changed_size:g}", what=what)
    return None


def _sizes_of_step(training: Signature) -> Iterator[tuple[str, float | None, float]]:
    """Yield what may be compared of the size of a step: what it is, the size, and its standard error."""
    yield "", training.samples_per_step, training.samples_error
    # as uncertain as the samples of a step
    normed_error = training.samples_error / (training.samples_per_step or 1.0) * (training.normed or 0.0)
    yield "samples over which a batch norm takes its means", training.normed, normed_error
    yield "numbers in the inputs of an optimizer step", training.elements_per_step, training.elements_error


def _settings(training: Signature) -> str:
    """Return the optimizer with its settings as a text: `AdamW lr 0.001 weight decay 0.1`."""
    rate = "" if training.learning_rate is None else f" lr {training.learning_rate:g}"
    decays = "/".join(f"{decay:g}" for decay in training.weight_decays if decay)
    return training.optimizer + rate + (f" weight decay {decays}" if decays else "")


def _loss_difference(baseline: Signature, changed: Signature) -> Difference | None:
    """Return how the mean losses of the first steps differ; None if they hardly do, or if less than three are known.

    None, too, where the batches have common labels, and other ones: files with a class each, read in another order.
    With another seed, the initial weights are others, and only a loss of the same sign may be another one. Where a step
    adds up twice as many losses, the script must divide them, so that their sum is closer to the same than to twice it.
    """
    steps = min(len(baseline.losses), len(changed.losses))
    pairs = zip(baseline.labels, changed.labels, strict=False)
    # where one class is frequent, a batch may have no other by chance: no label shows nothing
    have_other_labels = any(None not in pair and pair[0] != pair[1] for pair in pairs)
    if steps < 3 or have_other_labels:
        return None
    baseline_losses, changed_losses = baseline.losses[:steps], changed.losses[:steps]
    standard_error = math.hypot(stdev(baseline_losses), stdev(changed_losses)) / math.sqrt(steps)  # of the difference
    baseline_mean, changed_mean = fmean(baseline_losses), fmean(changed_losses)
    has_other_seed = None not in (baseline.seed, changed.seed) and baseline.seed != changed.seed
    # chosen: 5 % for precision and order of sums, or three times as large a loss of other weights; or 4 standard errors
    added_losses = sorted((baseline.added_losses or 1.0, changed.added_losses or 1.0))
    times_as_many = added_losses[1] / added_losses[0]
    most_times = min(3.0, math.sqrt(times_as_many)) if times_as_many >= 1.5 else 3.0  # less is a varying number
    of_other_weights = (1 - 1 / most_times) * max(abs(baseline_mean), abs(changed_mean))
    tolerance = of_other_weights if has_other_seed else 0.05 * abs(baseline_mean)
    have_other_signs = has_other_seed and baseline_mean * changed_mean <= 0.0
    if have_other_signs or abs(changed_mean - baseline_mean) <= max(tolerance, 4.0 * standard_error):
        return None
    return Difference(part="loss", baseline=f"{baseline_mean:.4g}", changed=f"{changed_mean:.4g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """The shares of its time since the first steps that the leading rank spent beside training, from 0 to 1."""

    data: float
    """Waiting for the next batch of a loader."""
    evaluation: float
    """Between the first forward pass without gradients and the next one with gradients."""
    saves: float
    """Inside `torch.save`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCounts:
    """What was counted inside a training."""

    signature: Signature
    witness: str
    """What counted the samples, such as `loader and module`."""
    shares: Shares | None = None
    is_early: bool = False
    """Whether some of the first steps are not made yet, so that the signature may still change."""
    micro_batches: float | None = None
    """Batches of a loader per optimizer step and rank, or else forward passes of the module.

    None where nobody knows, or where a second optimizer trains another network in turn.
    """
    ranks: int = 1
    """The processes that train together."""
    flops_per_sample: float | None = None
    """The floating-point operations of a step on all ranks, for each sample; None where they are not counted."""
    data_ranks: int = 1
    """How many groups of ranks train on samples of their own."""
    passes: int | None = None
    """The passes over the data that are over."""
    skipped: int = 0
    """The steps that a gradient scaler has skipped."""
    compiled: bool = False
    """Whether a part of the trained module is compiled."""
    reserved_mib: float | None = None
    """The allocator's peak on the card where it is largest; None without a card."""
    torch: str = ""
    """The version of torch; empty where it is unknown."""
    saves_to: tuple[str, ...] = ()
    """The folders into which `torch.save` has saved."""
    alloc_retries: int | None = None
    """How often the allocators of all ranks freed their cache to try again; None without a card."""

    @property
    def tokens_per_sample(self) -> int | None:
        """The tokens of a sample, where its inputs are whole numbers and all have one length; None elsewhere."""
        shape, _, kind = self.signature.sample.partition(" ")
        sizes = shape.split("x")
        if not kind.startswith(("int", "uint")) or not all(size.isdigit() for size in sizes):
            return None
        return math.prod(map(int, sizes))
