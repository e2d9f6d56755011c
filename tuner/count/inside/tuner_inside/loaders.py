"""Counts what torch's loaders give to the training: batches, samples, the time spent waiting for them, and passes.

A feed is what is known of an iterator of a loader.
"""

import functools
import itertools
import sys
import weakref
from math import inf
from time import monotonic

from tuner_inside.imports import when_imported
from tuner_inside.inputs import common_label, first_tensor, key_of_samples, samples
from tuner_inside.records import errors_switch_off, record_pause
from tuner_inside.steady_steps import steady
from tuner_inside.worker_copies import WorkerCopies

FEED = 0
"""The place of its feed in a batch's tuple."""
LABELLED = 8
"""The common labels of so many first batches are kept (chosen)."""
WITH_GRADIENTS = 3
"""The place in a batch of whether gradients were computed where it was fetched."""


class Loaders:
    """What the loaders of this process have given to the training so far.

    A batch is a plain tuple, because each step makes some: its feed, its samples, the seconds of waiting for it,
    whether gradients were computed where it was fetched, whether it is the last of its pass, and its common label.

    Batches count at the step of the optimizer that follows them. Three kinds do not count: batches that only an
    evaluation has followed, batches that were fetched without gradients, as in most evaluations, and batches of a data
    set that does not train. A data set trains if it gave batches before two steps in a row, or the last one before a
    step. Before the first step calls are not watched; there, it must be the only one.
    """

    def __init__(self):
        """Count the batches of this process's loaders from 0."""
        self.batches = 0
        self.rows = 0
        """The samples of all batches."""
        self.wait_s = 0.0
        self.fed_steps = 0
        """How many optimizer steps came after a batch of their own."""
        self.passes = 0
        self.pass_rows = None
        """The samples of a pass of the last training loader; None where it has no length."""
        self.batch_size = None
        """The samples of a batch of the last training loader by its sampler; None where it makes no batches."""
        self.copies = None
        """How many of its workers give the same samples; None where it is not known, or not yet."""
        self.labels = []
        """The common label of each of the first batches; None for a batch without one."""
        self._pass_is_uncounted = False
        """Whether a pass has given its last batch and is not counted yet. A loop that knows the length of a loader may
        never ask for more, so such a pass counts when the next batch trains."""
        self._maybe_training = []
        """The batches since the last step that a training call of the module came after."""
        self._pending = []
        """The batches since the last step that no call of the module came after yet."""
        self.last_feed = None
        """The feed of the last batch that counts; None if another feed has given one before the same step."""
        self._has_batch_of_next_step = False
        """Whether a batch of the next step is counted already: by steady steps, or at a step of another optimizer."""
        self.trains = False
        """Whether the module has been called to train since the last batch."""
        self._evaluates = False
        """Whether the module has been called to evaluate since the last batch."""
        self._training_datasets = set()
        """The numbers of the data sets that train."""
        self._datasets_of_last_step = set()
        """The numbers of the data sets whose batches came before the last step."""
        self._evaluated_datasets = set()
        """The numbers of the data sets whose batches were evaluated since the last step, while another one waited."""
        self._numbers = {}
        """The id of a data set → its number, which no later data set gets."""
        self._new_numbers = itertools.count()

    def number_of(self, dataset):
        """Return the number of a data set. Its id would not do: once it is gone, a later one may get the same id."""
        if id(dataset) not in self._numbers:
            try:
                weakref.finalize(dataset, self._drop_dataset, id(dataset)).atexit = False
            except TypeError:  # a list has no weak references
                return id(dataset)
            self._numbers[id(dataset)] = next(self._new_numbers)
        return self._numbers[id(dataset)]

    def on_evaluation(self):
        """Drop the batches that an evaluation uses, because the module is now called to evaluate.

        If the last batch is of a data set that does not train, and a batch of a data set that trains is pending, too,
        all batches of data sets that do not train are dropped. Otherwise those that were fetched without gradients are.
        """
        dataset = self._pending[-1][FEED].dataset if self._pending else None
        waiting = [batch for batch in self._pending if batch[FEED].dataset in self._training_datasets]
        if dataset is not None and dataset not in self._training_datasets and (waiting or self._has_batch_of_next_step):
            self._pending = waiting
            self._evaluated_datasets.add(dataset)
            return
        self._evaluates = True
        self._pending = [batch for batch in self._pending if batch[WITH_GRADIENTS]]

    def on_batch(self, feed, rows, wait_s, with_gradients, is_last, label):
        """Take a new batch into account: its iterator, its samples, the wait in seconds, and its common label.

        The calls of the module since the last batch show whether the batches before this one may train.
        """
        if self.trains or self._evaluates:
            if self.trains:
                self._maybe_training += self._pending
            self._pending = []  # after an evaluation alone they do not count
            self.trains = self._evaluates = False
        feed.has_ended = False
        rows = feed.batch_size if feed.is_by_sampler else rows
        self._pending.append((feed, rows, wait_s, with_gradients, is_last, label))
        del self._pending[:-1000]  # a process that makes no steps would keep all (chosen)

    def add_steady(self, feed, sums):
        """Add the batches of steady steps, which a single feed gave, to the counts; `sums` are of `steady_steps`."""
        feed.remaining -= sums.batches
        self.fed_steps += min(sums.steps, sums.batches)
        self.batches += sums.batches
        self.rows += sums.batches * feed.batch_size if feed.is_by_sampler else sums.batch_rows
        self.wait_s += sums.wait_s
        self._has_batch_of_next_step = sums.batches_since_step > 0

    def has_batch_of_other(self):
        """Return whether a batch waits that the main network has not evaluated, as where another network trains."""
        return bool(self._pending) and not self._evaluates

    def after_other_step(self, *, is_in_turn):
        """Count the batches since the last step, which another optimizer than the main one has used.

        Where it does not train in turn with the main one, it may only try out what the main network has learnt. Then
        the batches wait for a step that shows whether they train.
        """
        if is_in_turn:
            self._has_batch_of_next_step = self._count_batches()
        else:
            self.trains = True

    def after_step(self):
        """Count the batches since the last step: the main optimizer has now stepped, so the training has used them."""
        self.fed_steps += self._count_batches()
        self._has_batch_of_next_step = False

    def _count_batches(self):
        """Count the batches since the last step, and return whether the next step of the main optimizer has a batch.

        Batches of an evaluation may be among them. They do not count, because their data set is not one that trains.
        """
        batches, has_module_call = self._maybe_training + self._pending, self.trains
        self.trains = self._evaluates = False
        evaluated_datasets, self._evaluated_datasets = self._evaluated_datasets, set()
        if not batches:
            return self._has_batch_of_next_step
        self._maybe_training, self._pending = [], []
        if len(batches) > 1:
            # where none was fetched with gradients, the script switches these on later: all count
            batches = [batch for batch in batches if batch[WITH_GRADIENTS]] or batches
        datasets = {batch[FEED].dataset for batch in batches} | evaluated_datasets
        if not datasets <= self._training_datasets:  # those before two steps in a row train, and the last before a step
            self._training_datasets |= datasets & self._datasets_of_last_step
            if has_module_call or len(datasets) == 1:  # before the first step, an evaluation may have come last
                self._training_datasets.add(batches[-1][FEED].dataset)
        self._datasets_of_last_step = datasets
        self.last_feed = batches[0][FEED] if len({id(batch[FEED]) for batch in batches}) == 1 else None
        for feed, rows, wait_s, _, is_last, label in batches:
            if feed.dataset in self._training_datasets:
                self.passes += self._pass_is_uncounted  # this batch is of the pass after it
                self.batches += 1
                self.rows += rows
                self.wait_s += wait_s
                self.pass_rows, self.batch_size = feed.pass_rows, feed.batch_size
                self.copies = max(self.copies or 0, feed.copies.workers or 0) or None
                if self.batches <= LABELLED:
                    self.labels.append(label)
                self._pass_is_uncounted = is_last and not feed.has_ended
                feed.trains = True
        if self._pass_is_uncounted:
            record_pause()  # the loader's workers end now, and those of an evaluation begin
        return True

    def on_end(self, feed):
        """Count the pass of an iterator that has ended, if it feeds the training."""
        feed.remaining, feed.has_ended = feed.batches, True  # it may begin anew
        if feed.trains or (self._pending and self._pending[-1][FEED] is feed):
            self.passes += 1
            self._pass_is_uncounted = False
            record_pause()

    def _drop_dataset(self, dataset_id):
        """Drop the number of a data set that is gone."""
        number = self._numbers.pop(dataset_id, None)
        for numbers in (self._training_datasets, self._datasets_of_last_step):
            numbers.discard(number)


class Feed:
    """What is known of an iterator of a loader. It is asked once, because a step must stay fast."""

    __slots__ = "batch_size batches copies dataset has_ended is_by_sampler key pass_rows remaining trains".split()

    def __init__(self, iterator, batch):
        """Describe a loader's iterator by its sampler and its first batch."""
        sampler = getattr(iterator, "_index_sampler", None)
        batch_size = getattr(sampler, "batch_size", None)
        has_size = isinstance(batch_size, int) and not isinstance(batch_size, bool) and batch_size > 0
        self.dataset = loaders.number_of(getattr(iterator, "_dataset", None))
        self.batch_size = batch_size if has_size else None
        """The samples of a batch by the sampler; None where it makes no batches."""
        try:
            self.batches = len(sampler)
        except Exception:  # a sampler without a length
            self.batches = inf
        self.pass_rows = None if self.batches == inf else self.batches * (self.batch_size or 1)
        """The samples of a pass; None where nobody knows."""
        self.remaining = self.batches
        """The batches that are left of this pass."""
        self.has_ended = False
        """Whether the iterator has ended its pass, and given no batch since."""
        self.trains = False
        """Whether a batch of it has counted."""
        self.key = key_of_samples(batch)
        """The key or index of the tensor in a batch whose leading dimension is the samples; None where it must be
        looked for in each batch."""
        self.copies = WorkerCopies(iterator)
        self.is_by_sampler = self._is_other_form(batch)
        """Whether the sampler's batch size counts, because the shape of a batch does not show it. A collate function
        may join the samples of a batch into one sequence, or put the sequence's dimension first."""

    def _is_other_form(self, batch):
        """Return whether a batch's leading dimension is not that of its samples, by the batch size of the sampler.

        It is not in three cases: one of the tensor's first two dimensions has the sampler's size, there is a single
        row, into which all samples were joined, or there are more rows than the sampler gives. Fewer rows are a part of
        a batch.
        """
        rows = samples(batch)
        cannot_compare = self.batch_size in (None, 1) or not rows
        if cannot_compare or rows == self.batch_size or self.batches == 1:  # the only batch of a pass may be shorter
            return False
        tensor = first_tensor(batch)
        return rows == 1 or rows > self.batch_size or (tensor is not None and self.batch_size in tensor.shape[:2])


loaders = Loaders()


@errors_switch_off("loaders")
def _look(iterator, batch, wait_s):
    """Look at a batch that a steady training does not count by itself, such as the first one and the last one."""
    steady.end()
    feed = getattr(iterator, "_tuner_feed", None)
    if feed is None:
        feed = iterator._tuner_feed = Feed(iterator, batch)
    feed.copies.feed(iterator, batch)
    feed.remaining -= 1
    is_last = feed.remaining == 0
    try:
        rows = samples(batch) if feed.key is None else batch[feed.key].shape[0]
    except Exception:  # another form than that of the first batch
        rows = samples(batch)
    label = common_label(batch) if loaders.batches < LABELLED else None
    loaders.on_batch(feed, rows, wait_s, sys.modules["torch"].is_grad_enabled(), is_last, label)
    if is_last:  # the iterator may begin anew
        feed.remaining = feed.batches


@errors_switch_off("loaders")
def _on_end(iterator):
    """Take the end of a pass into account."""
    steady.end()
    feed = getattr(iterator, "_tuner_feed", None)
    if feed is not None:
        loaders.on_end(feed)


def _wrap(module):
    """Wrap the step of a loader's iterator, so that its batches count; in steady steps, they are only added up."""
    base, usual, is_grad_enabled = module._BaseDataLoaderIter, steady, sys.modules["torch"].is_grad_enabled
    own_next = base.__next__

    @functools.wraps(own_next)
    def counted(self):
        """Return the loader's next batch, and count its samples and the seconds that it took."""
        begin_s = monotonic()
        try:
            batch = own_next(self)
        except StopIteration:
            _on_end(self)
            raise
        wait_s = monotonic() - begin_s
        try:
            feed = self._tuner_feed
            if feed is usual.feed and usual.batches < usual.most_batches and is_grad_enabled():
                rows = batch[feed.key].shape[0]
                usual.batch_rows += rows
                usual.batches += 1
                usual.wait_s += wait_s
                return batch
        except Exception:  # the first batch, or one of another form
            pass
        _look(self, batch, wait_s)
        return batch

    base.__next__ = counted


def install():
    """Count what loaders give, from their import on."""
    when_imported("torch.utils.data.dataloader", errors_switch_off("loaders")(_wrap))
