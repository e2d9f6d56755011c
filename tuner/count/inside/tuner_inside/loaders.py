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
        held = [batch for batch in held if batch.learns] or held
        names = {batch.feed.dataset for batch in held}
        self._training.add(held[-1].feed.dataset)
        self._training |= names & self._before
        self._before = names
        self.feeds += 1
        for batch in held:
            if batch.feed.dataset in self._training:
                self._count(batch)
        if self._is_over:
            tell_pause()  # its workers end now, and those of an evaluation begin

    def ended(self, feed):
        """Note that a pass is over, where it was one of the training."""
        if feed.trains or (self._given and self._given[-1].feed is feed):
            self.passes += 1
            self._is_over = False
            tell_pause()

    def forget(self, dataset):
        """Forget a data set that is no more: another one may get its number."""
        self._training.discard(dataset)
        self._before.discard(dataset)

    def _count(self, batch):
        feed = batch.feed
        self.passes += self._is_over
        self.batches += 1
        self.rows += batch.rows
        self.wait_s += batch.wait_s
        self.size, self.each = feed.size, feed.each
        self._is_over = batch.is_last and not feed.is_over
        feed.trains = True


class Feed:
    """What is known of an iterator of a loader. It is asked once, because a step must stay fast."""

    def __init__(self, iterator):
        sampler = getattr(iterator, "_index_sampler", None)
        each = getattr(sampler, "batch_size", None)
        self.dataset = _number(getattr(iterator, "_dataset", None))
        self.each = each if isinstance(each, int) and not isinstance(each, bool) and each > 0 else None
        try:
            self.batches = len(sampler)
        except Exception:  # a sampler without a length
            self.batches = None
        self.size = None if self.batches is None else self.batches * (self.each or 1)
        """The samples of a pass; None where nobody knows."""
        self.given = 0
        """The batches of this pass so far."""
        self.is_over = False
        self.trains = False
        self._by_sampler = None

    def rows(self, batch):
        """Return the samples of a batch: by its shape, or by the sampler where the first batch has another shape.

        A collate function may join the samples of a batch into one sequence, or put the sequence's dimension first.
        """
        own = samples(batch)
        if self._by_sampler is None:
            self._by_sampler = self._is_other_form(batch, own)
        return self.each if self._by_sampler else own

    def _is_other_form(self, batch, own):
        """Return whether the leading dimension of the first batch is not that of its samples.

        A batch of fewer samples than the sampler's is one rank's part of it.
        """
        if self.each is None or self.each == 1 or own == self.each or not own or self.batches == 1:
            return False
        tensor = first_tensor(batch)
        is_second = tensor is not None and tensor.dim() > 1 and int(tensor.shape[1]) == self.each
        return is_second or own == 1 or own > self.each


class Batch:
    """What a loader has given."""

    __slots__ = ("feed", "is_last", "learns", "rows", "wait_s")

    def __init__(self, feed, rows, wait_s, is_last):
        self.feed = feed
        self.rows = rows
        self.wait_s = wait_s
        self.is_last = is_last
        """Whether it is the last one of its pass."""
        self.learns = sys.modules["torch"].is_grad_enabled()
        """Whether it was fetched where gradients are computed, as the batches of an evaluation usually are not."""


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


def _feed(iterator):
    feed = getattr(iterator, "_tuner_feed", None)
    if feed is None:
        feed = iterator._tuner_feed = Feed(iterator)
    return feed


@guarded("loaders")
def _gave(iterator, batch, wait_s):
    feed = _feed(iterator)
    feed.given += 1
    feed.is_over = False
    is_last = feed.given == feed.batches
    if is_last:
        feed.given = 0
    loaders.gave(Batch(feed, feed.rows(batch), wait_s, is_last))


@guarded("loaders")
def _ended(iterator):
    feed = _feed(iterator)
    feed.given, feed.is_over = 0, True
    loaders.ended(feed)


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
