"""Counts steps that are alike by a few additions each.

The first steps of a training are looked at one by one. Once several in a row have grown all counts alike, the training
is steady: whatever it calls adds to the numbers here. `Steady.end` moves these into the counts, at each record and
before anything unusual. A step or two are looked at again after each record, so that a change is seen.
"""

SLOTS = ("module_id", "optimizer_id", "feed", "mode", "key", "dimension", "dimensions", "due_s")
SLOTS += ("calls_a_step", "calls_left", "last_rows")
SUMS = ("steps", "forwards", "rows", "batches", "batch_rows", "wait_s")
"""What is added up: the optimizer's steps, the module's calls and their samples, the loader's batches, their samples,
and the seconds of waiting for them. Each is added to in one place, without a call in between, and so by whole numbers
even where several threads add."""


class Steady:
    """What is usual in a step, and what the steady steps have added up since they began."""

    __slots__ = (*SLOTS, *SUMS, "_settle")  # a step looks at them, and finds them in one place

    def __init__(self):
        self.due_s = 0.0
        """The time of `time.monotonic` from which on a step of the main optimizer is told."""
        self._settle = None
        """Takes the sums; None while the training is not steady."""
        self.module_id = self.optimizer_id = self.feed = None  # nothing is equal to them
        self.calls_a_step = self.calls_left = 0
        for name in SUMS:
            setattr(self, name, 0)

    def begin(self, optimizer, module, mode, reading, calls_a_step, feed, settle):
        """Only add up from now on what is usual.

        Args:
            optimizer: the main optimizer, whose steps count.
            module: the module whose calls count.
            mode: its training mode.
            reading: the name of the argument whose shape tells the samples, None for the first positional one; which
                of its dimensions is theirs; and how many it has.
            calls_a_step: how often the module is called in a step. A further call is unusual.
            feed: what is known of the loader's iterator that gives the batches; None without a loader.
            settle: is called when the steady steps end: with the sums in the order of `SUMS`, and with the samples of
                the last call if one more call than usual comes; else None. No backward pass has followed the calls
                since the last step then: they evaluate.
        """
        self.key, self.dimension, self.dimensions = reading
        self.mode, self.feed, self._settle = mode, feed, settle
        self.calls_a_step = self.calls_left = calls_a_step
        self.module_id, self.optimizer_id = id(module), id(optimizer)

    def end(self, _gone=None, is_called=False):
        """Look at each step, call and batch again, and move the sums into the counts. It may be called at any time.

        `is_called`: whether the module is called.
        """
        settle, self._settle = self._settle, None
        if settle is not None:
            self.module_id = self.optimizer_id = self.feed = None
            sums = [getattr(self, name) for name in SUMS]
            for name, value in zip(SUMS, sums):  # another thread may have added since
                setattr(self, name, getattr(self, name) - value)
            settle(*sums, self.last_rows if is_called and not self.calls_left else None)


steady = Steady()
