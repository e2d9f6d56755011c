"""What was counted of a training, in its probe's result and in the record of it."""

from dataclasses import dataclass
from math import prod

from tuner.count.signature import Signature


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Which share of the time since the first steps the leading rank spent on what, from 0 to 1."""

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
    micro_batches: float | None = None
    """Batches of a loader per optimizer step and rank, or else forward passes of the module."""
    ranks: int = 1
    """The processes that train together."""
    flops_per_sample: float | None = None
    """The floating-point operations of a step on all ranks, for each sample; None where they are not counted."""
    data_ranks: int = 1
    """How many of them train on samples of their own."""
    passes: int | None = None
    """The passes over the data that are over."""
    steps_per_pass: float | None = None
    """The optimizer steps of a pass over the data; None where no loader with a length feeds the training."""
    skipped: int = 0
    """The steps that a gradient scaler has skipped."""
    compiled: bool = False
    """Whether a part of the trained module is compiled."""
    reserved_mib: float | None = None
    """The allocator's peak on the card where it is largest; None without a card."""
    torch: str = ""
    """The version of torch; empty where it is unknown."""
    alloc_retries: int | None = None
    """How often the allocators of all ranks freed their cache to try again; None without a card."""

    @property
    def tokens_per_sample(self) -> int | None:
        """The tokens of a sample, where its inputs are whole numbers and all have one length; None elsewhere."""
        shape, _, kind = self.signature.sample.partition(" ")
        sizes = shape.split("x")
        if not kind.startswith(("int", "uint")) or not all(size.isdigit() for size in sizes):
            return None
        return prod(map(int, sizes))
