"""Counts what torch's loaders give: batches, samples, the time spent waiting for them, and new passes over the data."""

import functools
import sys
import time

from tuner_inside.imports import when_imported
from tuner_inside.inputs import first_tensor, samples
from tuner_inside.tell import guarded

MOST_SETS = 64
"""Data sets beyond so many are not told apart."""


class Data:
    """What one data set has given so far, through all of its loaders, either for training or for an evaluation."""

    def __init__(self, size):
        self.size = size
        """The samples of the data set that this process sees in a pass; None where it has no length."""
        self.batches = 0
        self.rows = 0
        self.passes = 0
        self.is_over = False
        """Whether its pass's last batch was given. Who knows the length of a loader may never ask for more."""
        self.wait_s = 0.0
        self.feeds = 0
        """How many optimizer steps came right after one of its batches."""
        self.workers = None


class Loaders:
    """All data sets of this process, and the last one that gave a batch."""

    def __init__(self):
        self.data = {}
        self.last = None

    def of(self, loader_iterator):
        """Return the record of the data set of a loader's iterator.

        Batches that are fetched where no gradients are computed are those of an evaluation, which may take a part of
        the same data set. They have a record of their own.
        """
        known = id(getattr(loader_iterator, "_dataset", None)), sys.modules["torch"].is_grad_enabled()
        found = self.data.get(known)
        if found is None:
            if len(self.data) >= MOST_SETS:
                self.data.clear()
            found = self.data[known] = Data(_length(loader_iterator))
        return found

    def after_step(self):
        """Note that the optimizer has made a step with the last batch."""
        if self.last is not None:
            self.last.feeds += 1
            self.last = None

    @property
    def training(self):
        """The data set whose batches the optimizer steps follow; None where none feeds them."""
        fed = [data for data in self.data.values() if data.feeds]
        return max(fed, key=lambda data: data.feeds) if fed else None


loaders = Loaders()


def _length(loader_iterator):
    """Return the samples of a pass; None where nobody knows."""
    batches = _batches(loader_iterator)
    return None if batches is None else batches * (_batch_size(loader_iterator) or 1)


def _batch_size(loader_iterator):
    size = getattr(getattr(loader_iterator, "_index_sampler", None), "batch_size", None)
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


@guarded("loaders")
def _gave(loader_iterator, batch, wait_s):
    data = loaders.of(loader_iterator)
    data.passes += data.is_over
    data.batches += 1
    data.wait_s += wait_s
    data.workers = getattr(loader_iterator, "_num_workers", None)
    data.rows += _rows(loader_iterator, batch)
    loaders.last = data
    given = loader_iterator._tuner_given = getattr(loader_iterator, "_tuner_given", 0) + 1
    data.is_over = given == _batches(loader_iterator)
    if data.is_over:
        loader_iterator._tuner_given = 0


def _rows(loader_iterator, batch):
    """Return the samples of a batch: by its shape, or by the sampler where the first whole batch has another shape.

    A collate function may join the samples of a batch into one sequence, or put the sequence's dimension first.
    """
    own, size = samples(batch), _batch_size(loader_iterator)
    by_sampler = getattr(loader_iterator, "_tuner_by_sampler", None)
    if by_sampler is None:
        by_sampler = loader_iterator._tuner_by_sampler = size is not None and _is_other_form(
            loader_iterator, batch, own, size
        )
    return size if by_sampler and size else own


def _is_other_form(loader_iterator, batch, own, size):
    """Return whether the leading dimension of a loader's first batch is not that of its samples."""
    if own == size or _batches(loader_iterator) == 1:
        return False
    tensor = first_tensor(batch)
    is_second = tensor is not None and tensor.dim() > 1 and int(tensor.shape[1]) == size
    return is_second or own % size != 0


def _batches(loader_iterator):
    """Return the batches of a pass; None where nobody knows."""
    try:
        return len(loader_iterator._index_sampler)
    except Exception:  # a sampler without a length
        return None


@guarded("loaders")
def _ended(loader_iterator):
    data = loaders.of(loader_iterator)
    data.passes += 1
    data.is_over = False
    loader_iterator._tuner_given = 0


def _wrap(module):
    base = module._BaseDataLoaderIter
    given = base.__next__

    @functools.wraps(given)
    def counted(self):
        begin_s = time.monotonic()
        try:
            batch = given(self)
        except StopIteration:
            _ended(self)
            raise
        _gave(self, batch, time.monotonic() - begin_s)
        return batch

    base.__next__ = counted


def install():
    """Count what loaders give, from their import on."""
    when_imported("torch.utils.data.dataloader", guarded("loaders")(_wrap))
