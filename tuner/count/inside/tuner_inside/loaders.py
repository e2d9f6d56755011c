"""Counts what torch's loaders give to the training: batches, samples, the time spent waiting for them, and passes."""

import functools
import sys
import weakref
from math import inf
from time import perf_counter

from tuner_inside.imports import when_imported
from tuner_inside.inputs import first_tensor, key_of_samples, samples
from tuner_inside.notes import Pace, note, work_through
from tuner_inside.tell import guarded, tell_pause

FEED, LEARNS = 0, 3
"""The places in a batch of its feed, and of whether it was fetched where gradients are computed."""


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
        """The batches since the last step that may have trained: feed, samples, seconds of waiting, whether gradients
        are computed where it was fetched, unlike in most evaluations, and whether it is the last of its pass."""
        self._given = []
        """Those that the module has not been called after."""
        self.trains = self._evaluates = False
        """Whether the module has been called in this way since the last batch."""
        self._training = set()
        self._before = set()
        """The data sets that train, and those that gave something before the last step."""
        self._numbered = set()

    def number(self, dataset):
        """Return the number of a data set, which is forgotten with it: another one may get it."""
        if id(dataset) not in self._numbered:
            try:
                weakref.finalize(dataset, self._forget, id(dataset)).atexit = False
                self._numbered.add(id(dataset))
            except TypeError:  # a list cannot tell of its end
                pass
        return id(dataset)

    def evaluates(self):
        """Note that the trained module is called to evaluate."""
        self._evaluates = True
        self._given = [batch for batch in self._given if batch[LEARNS]]

    def gave(self, feed, rows, wait_s, learns, is_last):
        """Take a batch into account, and what those before were for."""
        if self.trains or self._evaluates:
            self._held += self._given if self.trains else ()
            self._given = []
            self.trains = self._evaluates = False
        feed.is_over = False
        self._given.append((feed, feed.each if feed.is_by_sampler else rows, wait_s, learns, is_last))

    def after_step(self):
        """Note that the optimizer has made a step with the batches before it."""
        held = self._held + self._given
        self.trains = self._evaluates = False
        if not held:
            return
        self._held, self._given = [], []
        held = [batch for batch in held if batch[LEARNS]] or held
        datasets = {batch[FEED].dataset for batch in held}
        self._training |= datasets & self._before | {held[-1][FEED].dataset}
        self._before = datasets
        self.feeds += 1
        for feed, rows, wait_s, _, is_last in held:
            if feed.dataset in self._training:
                self.passes += self._is_over
                self.batches += 1
                self.rows += rows
                self.wait_s += wait_s
                self.size, self.each = feed.size, feed.each
                self._is_over = is_last and not feed.is_over
                feed.trains = True
        if self._is_over:
            tell_pause()  # its workers end now, and those of an evaluation begin

    def ended(self, feed):
        """Note that a pass is over, where it was one of the training."""
        feed.left, feed.is_over = feed.batches, True
        if feed.trains or (self._given and self._given[-1][FEED] is feed):
            self.passes += 1
            self._is_over = False
            tell_pause()

    def _forget(self, number):
        for numbers in (self._training, self._before, self._numbered):
            numbers.discard(number)


class Feed:
    """What is known of an iterator of a loader. It is asked once, because a step must stay fast."""

    def __init__(self, iterator, batch):
        sampler = getattr(iterator, "_index_sampler", None)
        each = getattr(sampler, "batch_size", None)
        self.dataset = loaders.number(getattr(iterator, "_dataset", None))
        self.each = each if isinstance(each, int) and not isinstance(each, bool) and each > 0 else None
        try:
            self.batches = len(sampler)
        except Exception:  # a sampler without a length
            self.batches = inf
        self.size = None if self.batches == inf else self.batches * (self.each or 1)
        """The samples of a pass; None where nobody knows."""
        self.left = self.batches
        """The batches that are left of this pass."""
        self.is_over = False
        self.trains = False
        self.key = key_of_samples(batch)
        """Where batches have the tensor whose leading dimension is that of the samples; None where it must be looked
        for in each batch."""
        self.is_by_sampler = self._is_other_form(batch)
        """Whether the sampler tells the samples of a batch, because batches have another shape. A collate function may
        join the samples of a batch into one sequence, or put the sequence's dimension first."""

    def _is_other_form(self, batch):
        """Return whether the leading dimension of the first batch is not that of its samples.

        A batch of fewer samples than the sampler's is one rank's part of it.
        """
        rows = samples(batch)
        if self.each is None or self.each == 1 or rows == self.each or not rows or self.batches == 1:
            return False
        tensor = first_tensor(batch)
        is_second = tensor is not None and tensor.dim() > 1 and int(tensor.shape[1]) == self.each
        return is_second or rows == 1 or rows > self.each


loaders = Loaders()


@guarded("loaders")
def _look(iterator, batch, wait_s):
    """Take a batch into account: the first or the last one, or one of another form."""
    feed = getattr(iterator, "_tuner_feed", None)
    if feed is None:
        feed = iterator._tuner_feed = Feed(iterator, batch)
    feed.left -= 1
    is_last = feed.left == 0
    note((loaders.gave, feed, samples(batch), wait_s, sys.modules["torch"].is_grad_enabled(), is_last))
    if is_last:
        feed.left, Pace.due_s = feed.batches, 0.0


@guarded("loaders")
def _ended(iterator):
    work_through()
    feed = getattr(iterator, "_tuner_feed", None)
    if feed is not None:
        loaders.ended(feed)


def _wrap(module):
    """Wrap the step of a loader's iterator: it notes the usual batch of a known form, and looks at every other one."""
    base = module._BaseDataLoaderIter
    given, gave, torch = base.__next__, loaders.gave, sys.modules["torch"]

    @functools.wraps(given)
    def counted(self):
        begin_s = perf_counter()
        try:
            batch = given(self)
        except StopIteration:
            _ended(self)
            raise
        wait_s = perf_counter() - begin_s
        try:
            feed = self._tuner_feed
            if feed.key is not None and feed.left > 1:
                note((gave, feed, batch[feed.key].shape[0], wait_s, torch.is_grad_enabled(), False))
                feed.left -= 1
                return batch
        except Exception:
            pass
        _look(self, batch, wait_s)
        return batch

    base.__next__ = counted


def install():
    """Count what loaders give, from their import on."""
    when_imported("torch.utils.data.dataloader", guarded("loaders")(_wrap))
