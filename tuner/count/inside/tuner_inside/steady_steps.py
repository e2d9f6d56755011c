"""Counts steps that are equal by a few additions each, because all other counting would slow each step down.

The first steps of a training count in full, one by one. Once several in a row have made all counts larger by the same,
the training is steady: calls of modules, loaders and optimizers only add to the sums here. `Steady.end` moves the sums
into the counts, at each record and before any other call. After five records a few steps count in full again, so that
a change is noticed.
"""

from collections import namedtuple

USUAL_NAMES = ("mode", "key", "dimension", "dimensions", "feed", "module_id", "optimizer_id")
"""The module's training mode; the argument that shows the samples, by name or None for the first one; which of its
dimensions is theirs, of how many; the loader's iterator; the module; and its optimizer."""
SUM_NAMES = ("steps", "forwards", "backwards", "rows", "batches", "batch_rows", "wait_s")
"""The optimizer's steps, the module's calls, the backward passes and their samples, the loader's batches and their
samples, and the seconds of waiting for them. No function is called while one is added to, so that Python lets no other
thread add at the same time, if it has a lock of its own (GIL) and is 3.10 or newer."""
Sums = namedtuple("Sums", (*SUM_NAMES, "forwards_since_step", "batches_since_step", "unlearned_rows"))
"""What steady steps have added up: `SUM_NAMES`, how many calls and batches came after the last step, and the samples of
a call that no backward pass has followed, or None."""


class Steady:
    """What every step of a steady training has in common, and the sums of the steady steps since they began.

    While the training is not steady, `module_id`, `optimizer_id` and `feed` are None: they are equal to nothing.
    """

    __slots__ = (*USUAL_NAMES, *SUM_NAMES, "forwards_at_step", "batches_at_step", "unlearned_rows", "due_s", "_settle")

    def __init__(self):
        """Begin before the training is steady."""
        for name in (*USUAL_NAMES, "_settle"):  # nothing is equal to None
            setattr(self, name, None)
        for name in SUM_NAMES:
            setattr(self, name, 0)
        self.due_s = 0.0
        """The time of `time.monotonic` from which on a step of the main optimizer writes a record."""
        self.forwards_at_step = self.batches_at_step = 0
        """The module's calls and the loader's batches up to the last step. Those since then belong to the next step."""
        self.unlearned_rows = None
        """The samples of a call that no backward pass has followed yet."""

    def begin(self, settle, *usual):
        """Begin to be steady: from now on, steps with the `usual` values, ordered as `USUAL_NAMES`, add to the sums.

        `settle` is called with the `Sums` once steps are no longer steady; it moves them into the counts.
        """
        self._settle = settle
        for name, value in zip(USUAL_NAMES, usual):
            setattr(self, name, value)
        self.forwards_at_step = self.batches_at_step = 0

    def end(self, _gone=None):
        """End to be steady: move the sums into the counts. Return whether the training was steady.

        Steps count in full again until `begin`. Calls and batches after the last step belong to the next step.
        `_gone` is the weak reference that calls this when a module or optimizer is gone.
        """
        settle, self._settle = self._settle, None
        if settle is not None:
            self.module_id = self.optimizer_id = self.feed = None
            forwards = self.forwards - self.forwards_at_step
            batches = self.batches - self.batches_at_step
            unlearned_rows, self.unlearned_rows = self.unlearned_rows, None
            sums = [getattr(self, name) for name in SUM_NAMES]
            for name, value in zip(SUM_NAMES, sums):  # another thread may have added since
                setattr(self, name, getattr(self, name) - value)
            settle(Sums(*sums, forwards, batches, unlearned_rows))
        return settle is not None


steady = Steady()
