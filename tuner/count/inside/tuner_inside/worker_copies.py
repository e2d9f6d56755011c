"""Finds out whether each worker of a loader gives the same samples.

They do where an iterable data set does not share its samples out among the workers: a pass then has each sample several
times. Workers give their batches in turn, so the first batches show it.
"""

import sys
from contextlib import suppress

from tuner_inside.inputs import all_tensors

LEAST_BATCHES = 6
"""So many first batches are compared, or one more than there are workers: labels may be equal by chance (chosen)."""
MOST_BATCHES = 65
"""Later batches are not looked at. The tuner proposes up to 64 workers."""
NUMBERS = 1024
"""So many numbers of each tensor are compared (chosen)."""


class WorkerCopies:
    """Compares the first batches of an iterator of a loader."""

    def __init__(self, iterator):
        """Find out whether a loader's workers give the same batches."""
        is_iterable = isinstance(getattr(iterator, "_dataset", None), sys.modules["torch"].utils.data.IterableDataset)
        self._workers = getattr(iterator, "_num_workers", 0) if is_iterable else 0
        self.workers = None if self._workers > 1 else 1
        """How many workers give the same samples; None where it is not known, or not yet."""
        self._needed = max(self._workers + 1, LEAST_BATCHES)
        self._batches = [] if self._workers > 1 and self._needed <= MOST_BATCHES else None
        """The first numbers of each tensor of each batch so far; None once nothing is compared any more."""

    def is_comparing(self):
        """Return whether more batches are to be compared. Until then, the steps of the training are not steady."""
        return self._batches is not None

    def feed(self, iterator, batch):
        """Take the iterator's next batch into account."""
        if self._batches is None:
            return
        batches, self._batches = self._batches, None  # set again below, where more batches are to be compared
        with suppress(Exception):  # a sparse tensor, or another version of torch: it is not known
            if iterator._rcvd_idx != len(batches) + 1:  # another pass, or a batch was not looked at
                return
            tensors = [tensor for tensor in all_tensors(batch) if tensor.device.type == "cpu"]
            batches.append([tensor.detach().flatten()[:NUMBERS].clone() for tensor in tensors])
            if len(batches) < self._needed:
                self._batches = batches
            else:  # the parts: one tensor in all batches
                self.workers = self._workers if any(self._is_copied(parts) for parts in zip(*batches)) else 1

    def _is_copied(self, tensors):
        """Return whether batches of one turn of the workers have the same tensor, and those of other turns do not.

        A tensor of equal numbers, such as a mask, shows nothing.
        """
        equal = sys.modules["torch"].equal
        turns = [tensors[start : start + self._workers] for start in range(0, len(tensors), self._workers)]
        firsts = [turn[0] for turn in turns]
        if any(len(first) < 2 or bool((first == first[0]).all()) for first in firsts):
            return False
        are_copies = all(equal(turn[0], tensor) for turn in turns for tensor in turn[1:])
        return are_copies and not any(equal(first, firsts[0]) for first in firsts[1:])
