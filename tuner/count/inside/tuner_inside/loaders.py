"""Counts what torch's loaders give to the training: batches, samples, the time spent waiting for them, and passes."""

import functools
import sys
import time
import weakref

from tuner_inside.imports import when_imported
from tuner_inside.inputs import first_tensor, samples
from tuner_inside.tell import guarded, tell_pause


class Loaders:
    """What the loaders of this process have given to the training so far.

    Batches count at the step of the optimizer that follows them. Those do not count that only an evaluation has
    followed or that were fetched without gradients, nor those of a data set that gives nothing right before a step, nor
    before two steps in a row.
    """

    def __init__(self):
        self.batches = 0
        self.rows = 0
        self.wait_s = 0.0
        self.feeds = 0
        """How many optimizer steps came after a batch of their own."""
        self.passes = 0
        self.size = None
        """The samples of a pass of the last training loader; None where it has no length."""
        self.each = None
        """The samples of a batch of the last training loader by its sampler; None where it makes no batches."""
        self._is_over = False
        """Whether a pass's last batch was given. Who knows the length of a loader may never ask for more."""
        self._held = []
        """The batches since the last step that may have trained."""
        self._given = []
        """The batches that the module has not been called after."""
        self._trains = self._evaluates = False
        """Whether the module has been called in this way since the last batch."""
        self._training = set()
        self._before = set()
        """The data sets that train, and those that gave something before the last step."""

    def forward(self, trains):
        """Note that the trained module is called, to train or to evaluate."""
        if trains:
            self._trains = True
        else:
            self._evaluates = True
            self._given = [batch for batch in self._given if batch.learns]

    def gave(self, batch):
        """Take a batch into account, and what those before were for."""
        if self._trains:
            self._held += self._given
        if self._trains or self._evaluates:
            self._given = []
        self._trains = self._evaluates = False
        self._given.append(batch)

    def after_step(self):
        """Note that the optimizer has made a step with the batches before it."""
        held = self._held + self._given
        self._held, self._given = [], []
        self._trains = self._evaluates = False
        if not held:
            return
        if any(batch.learns for batch in held):
            held = [batch for batch in held if batch.learns]
        names = {batch.dataset for batch in held}
        self._training.add(held[-1].dataset)
        self._training |= names & self._before
        self._before = names
        self.feeds += 1
        for batch in held:
            if batch.dataset in self._training:
                self._count(batch)
        if self._is_over:
            tell_pause()  # its workers end now, and those of an evaluation begin

    def ended(self, iterator):
        """Note that a pass is over, where it was one of the training."""
        if getattr(iterator, "_tuner_trains", False) or (self._given and self._given[-1].iterator() is iterator):
            self.passes += 1
            self._is_over = False
            tell_pause()

    def forget(self, dataset):
        """Forget a data set that is no more: another one may get its number."""
        self._training.discard(dataset)
        self._before.discard(dataset)

    def _count(self, batch):
        self.passes += self._is_over
        self.batches += 1
        self.rows += batch.rows
        self.wait_s += batch.wait_s
        self.size, self.each = batch.size, batch.each
        iterator = batch.iterator()
        self._is_over = batch.is_last and not getattr(iterator, "_tuner_ended", False)
        if iterator is not None:
            iterator._tuner_trains = True


class Batch:
    """What a loader has given."""

    def __init__(self, iterator, rows, wait_s, is_last):
        self.iterator = weakref.ref(iterator)
        self.rows = rows
        self.is_last = is_last
        """Whether it is the last one of its pass."""
        self.wait_s = wait_s
        self.learns = sys.modules["torch"].is_grad_enabled()
        """Whether it was fetched where gradients are computed, as the batches of an evaluation usually are not."""
        self.size = _length(iterator)
        self.each = _batch_size(iterator)
        self.dataset = _number(getattr(iterator, "_dataset", None))


_datasets = {}
"""The number of a data set → what tells of its end."""


def _number(dataset):
    """Return the number of a data set, which is forgotten with it."""
    number = id(dataset)
    if number not in _datasets:
        try:
            _datasets[number] = weakref.ref(dataset, functools.partial(_gone, number))
        except TypeError:  # a list cannot tell
            pass
    return number


def _gone(number, _reference):
    _datasets.pop(number, None)
    loaders.forget(number)


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
    given = getattr(loader_iterator, "_tuner_given", 0) + 1
    is_last = given == _batches(loader_iterator)
    loader_iterator._tuner_given = 0 if is_last else given
    loader_iterator._tuner_ended = False
    loaders.gave(Batch(loader_iterator, _rows(loader_iterator, batch), wait_s, is_last))


def _rows(loader_iterator, batch):
    """Return the samples of a batch: by its shape, or by the sampler where the first whole batch has another shape.

    A collate function may join the samples of a batch into one sequence, or put the sequence's dimension first.
    """
    own, size = samples(batch), _batch_size(loader_iterator)
    by_sampler = getattr(loader_iterator, "_tuner_by_sampler", None)
    if by_sampler is None:
        by_sampler = loader_iterator._tuner_by_sampler = _is_other_form(loader_iterator, batch, own, size)
    return size if by_sampler else own


def _is_other_form(loader_iterator, batch, own, size):
    """Return whether the leading dimension of a loader's first batch is not that of its samples.

    A batch of fewer samples than the sampler's is one rank's part of it.
    """
    if size is None or size == 1 or own == size or not own or _batches(loader_iterator) == 1:
        return False
    tensor = first_tensor(batch)
    is_second = tensor is not None and tensor.dim() > 1 and int(tensor.shape[1]) == size
    return is_second or own == 1 or own > size


def _batches(loader_iterator):
    """Return the batches of a pass; None where nobody knows."""
    if not hasattr(loader_iterator, "_tuner_batches"):
        try:
            loader_iterator._tuner_batches = len(loader_iterator._index_sampler)
        except Exception:  # a sampler without a length
            loader_iterator._tuner_batches = None
    return loader_iterator._tuner_batches


@guarded("loaders")
def _ended(loader_iterator):
    loader_iterator._tuner_given, loader_iterator._tuner_ended = 0, True
    loaders.ended(loader_iterator)


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
