"""The batch size that fits a card: which small sizes are probed, and which size follows from their memory. Pure.

Memory grows about linearly with the batch. So two small sizes show the memory of a sample, and with it the largest
batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

SAFETY = 0.7
"""The share of the free memory that a batch may take. The rest is for what other configs and longer runs need more."""
MOST = 65_536
"""The largest batch size that is chosen, in samples of one rank."""
FIRST = 48
"""The batch size of the first probe, unless the samples of an iteration are known: see `first_size`.

Probed sizes are three times a power of two, and the chosen size is a power of two. So no probe that only shows memory
is a config of the search.
"""
UPDATES = 64
"""The most batches of an iteration in the first probe. With many small updates an iteration would take too long."""
REASON = "it only shows how much memory a batch takes"
"""Why the config of such a probe is never the best."""
MEASURABLE_MIB = 256.0
"""The growth of memory from which the memory per sample is known well enough.

torch's allocator takes memory from a card in pieces of 2 and 20 MiB (`kSmallBuffer`, `kLargeBuffer` in
c10/cuda/CUDACachingAllocator.h), several at a time. A growth of some pieces says little.
"""


class Tried(NamedTuple):
    """What the probe of one batch size has shown."""

    size: int
    """The batch size in samples of one rank."""
    used_mib: float | None = None
    """The memory in use at its peak, on the device with the least memory free; None where it is unknown."""
    fits: bool | None = True
    """False if the probe ran out of memory; None if it failed for another reason, for example because it was slow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchFit:
    """A batch size, and what it was worked out from."""

    size: int
    """The batch size in samples of one rank, a power of two."""
    per_sample_mib: float | None
    """The measured memory of one sample of a batch; None where it is unknown."""
    is_bound: bool
    """Whether `per_sample_mib` is only an upper bound, because memory grew by less than can be measured."""
    free_mib: float | None
    """The memory that a batch of no samples would leave free; None where it is unknown."""
    samples: int | None
    """The samples at hand, from which a rank draws its batches; None where they are unknown."""
    most: int
    """The largest batch size allowed."""

    @property
    def by_memory(self) -> int | None:
        """The batch size that the free memory allows; None where memory sets no limit."""
        return _size_by_memory(self.free_mib, self.per_sample_mib)

    def __str__(self) -> str:
        """Return the batch size and how it follows, in words."""
        if self.by_memory is None:
            memory = "memory unknown"
        else:
            most = "at most " if self.is_bound else ""
            memory = f"{SAFETY} * {self.free_mib:.0f} MiB free / {most}{self.per_sample_mib:.4g} MiB per sample"
            memory = f"{memory} = {self.by_memory}"
        at_hand = "samples at hand unknown" if self.samples is None else f"{self.samples} samples at hand"
        return f"{self.size}, the largest power of two within {memory}; {at_hand}; at most {self.most}"


def limit(samples: int | None, most: int) -> int:
    """Return the largest batch size that is useful: `most`, or the `samples` at hand if they are fewer; at least 1."""
    return max(most if samples is None else min(samples, most), 1)


def probed_sizes(most: int) -> tuple[int, ...]:
    """Return the batch sizes up to `most` that may be probed: 3, 6, 12 and so on; only 1 where `most` is below 3."""
    sizes = tuple(3 << power for power in range(most.bit_length()) if 3 << power <= most)
    return sizes or (1,)


def first_size(per_iteration: int | None) -> int:
    """Return the batch size of the first probe: the smallest that splits an iteration into at most `UPDATES` batches.

    `per_iteration` is the number of samples of a rank in an iteration. Where it is None, for unknown, the size is
    `FIRST`.
    """
    if per_iteration is None:
        return FIRST
    return next((size for size in probed_sizes(per_iteration) if size * UPDATES >= per_iteration), FIRST)


def next_size(
    tried: Sequence[Tried], *, first: int = FIRST, samples: int | None = None, most: int = MOST
) -> int | None:
    """Return the batch size to probe next; None once the memory per sample is known, or no probe can show it.

    Sizes grow eightfold from `first` until two have run and their memory differs by `MEASURABLE_MIB`. After a probe
    that ran out of memory, or at the largest size, sizes shrink until two have run. A probe that failed for another
    reason says nothing about memory, so sizes still grow. `samples` and `most`: see `limit`.
    """
    sizes = probed_sizes(limit(samples, most))
    if not tried:
        return min(first, sizes[-1])
    ran = sum(probe.fits is True for probe in tried)
    too_large = min((probe.size for probe in tried if probe.fits is False), default=math.inf)
    # Upwards, until the growth of memory can be measured.
    largest = max(probe.size for probe in tried)
    is_unknown = ran < 2 or _growth_mib(tried) < MEASURABLE_MIB
    if is_unknown and too_large == math.inf and largest < sizes[-1]:
        return min(8 * largest, sizes[-1])
    # Downwards, until two have run. A second failure for another reason ends this.
    failures_of_other_kinds = sum(probe.fits is None for probe in tried)
    if ran >= 2 or failures_of_other_kinds > 1:
        return None
    tried_sizes = {probe.size for probe in tried}
    smaller = [size for size in sizes if size < too_large and size not in tried_sizes]
    return max(smaller, default=None)


def fit(
    tried: Sequence[Tried], *, total_mib: float | None, samples: int | None = None, most: int = MOST
) -> BatchFit | None:
    """Return the largest batch size that should fit, by the probes that were made.

    The memory per sample is the slope between the smallest and the largest size that ran. If memory grew by less than
    `MEASURABLE_MIB`, it counts as grown by that much. The size is the largest power of two within `SAFETY` times the
    free memory over the memory per sample, the samples at hand, and `most`. It is below each size that ran out of
    memory.

    Returns None where fewer than two sizes ran, unless only a single size may be probed.
    """
    ran = sorted((probe for probe in tried if probe.fits), key=lambda probe: probe.size)
    needed = min(2, len(probed_sizes(limit(samples, most))))
    if len(ran) < needed:
        return None
    low, high = ran[0], ran[-1]
    # memory as a straight line over the batch size: the slope is the memory per sample, the value at size 0 is the rest
    growth_mib = _growth_mib(tried)
    per_sample_mib = free_mib = None
    if high.used_mib is not None and low.used_mib is not None and high.size > low.size:
        per_sample_mib = max(growth_mib, MEASURABLE_MIB) / (high.size - low.size)
        if total_mib is not None:
            used_without_batch_mib = high.used_mib - growth_mib / (high.size - low.size) * high.size
            free_mib = max(total_mib - used_without_batch_mib, 0.0)
    # the largest size that all bounds allow
    bounds: list[float] = [limit(samples, most)]
    by_memory = _size_by_memory(free_mib, per_sample_mib)
    if by_memory is not None:
        bounds.append(by_memory)
    elif free_mib is None and high.used_mib is not None and total_mib is not None:
        bounds.append(high.size)  # the slope is unknown, so nothing says that a larger batch fits
    bounds += [probe.size - 1 for probe in tried if probe.fits is False]
    within = int(max(min(bounds), low.size))
    return BatchFit(
        size=1 << within.bit_length() - 1,  # rounded down to a power of two
        per_sample_mib=per_sample_mib,
        is_bound=growth_mib < MEASURABLE_MIB,
        free_mib=free_mib,
        samples=samples,
        most=most,
    )


def _size_by_memory(free_mib: float | None, per_sample_mib: float | None) -> int | None:
    """Return the batch size that the free memory allows; None where memory sets no limit."""
    if free_mib is None or not per_sample_mib:
        return None
    return math.floor(SAFETY * free_mib / per_sample_mib)


def _growth_mib(tried: Sequence[Tried]) -> float:
    """Return how much more memory the largest size that ran needs than the smallest, in MiB; 0 where unknown."""
    by_size = sorted(tried, key=lambda probe: probe.size)
    used_mib = [probe.used_mib for probe in by_size if probe.fits and probe.used_mib is not None]
    return max(used_mib[-1] - used_mib[0], 0.0) if used_mib else 0.0
