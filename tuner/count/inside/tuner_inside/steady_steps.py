"""Counts steps that are equal by a few additions each, because all other counting would slow each step down.

The first steps of a training count in full, one by one. Once several in a row have made all counts larger by the same,
the training is steady: calls of modules, loaders and optimizers only add to the sums here. `Steady.end` moves the sums
into the counts, at each record and before any other call. After five records a few steps count in full again, so that
a change is noticed.
"""

import weakref
from collections import namedtuple

USUAL_NAMES = ("mode", "key", "dimension", "dimensions", "feed", "optimizer_id")
"""The module's training mode; the argument that shows the samples, by name or None for the first one; which of its
dimensions is theirs, of how many; what is known of the loader's iterator; and the optimizer."""
SUM_NAMES = ("steps", "backwards", "rows", "batches", "batch_rows", "wait_s")
"""The optimizer's steps, the backward passes and their samples, the loader's batches and their samples, and the seconds
of waiting for them. No function is called while one is added to, so that Python lets no other thread add at the same
time, if it has a lock of its own (GIL) and is 3.10 or newer."""
Sums = namedtuple("Sums", (*SUM_NAMES, "backwards_since_step", "batches_since_step", "unlearned_rows"))
"""What steady steps have added up: `SUM_NAMES`, how many backward passes and batches came after the last step, and the
samples of a call that no backward pass has followed, or None."""


class Steady:
    """What every step of a steady training has in common, and the sums of the steady steps since they began.

    While the training is not steady, `module_id`, `optimizer_id` and `feed` are None: they are equal to nothing. The
    training mode is that of the module `mode_holder`, a weak reference.
    """

    __slots__ = (*USUAL_NAMES, *SUM_NAMES, "module_id", "mode_holder", "backwards_at_step", "batches_at_step")
    __slots__ += ("most_batches", "unlearned_rows", "due_s", "_add_to_counts")

    def __init__(self):
        """Add up steps that are all alike, once the training is steady; it is not yet."""
        for name in (*USUAL_NAMES, "module_id", "mode_holder", "_add_to_counts"):  # nothing is equal to None
            setattr(self, name, None)
        for name in SUM_NAMES:
            setattr(self, name, 0)
        self.most_batches = 0
        """The batches that the loader may give in steady steps: those of its pass but the last one."""
        self.due_s = 0.0
        """The time of `time.monotonic` from which on a step of the main optimizer writes a record."""
        self.backwards_at_step = self.batches_at_step = 0
        """The backward passes and the batches up to the last step. Those since then belong to the next step."""
        self.unlearned_rows = None
        """The samples of a call that no backward pass has followed yet."""

    def begin(self, add_to_counts, module_reference, *usual):
        """Add up the steps from now on as long as they are all alike, instead of counting each in full.

        `usual`: what they have in common, in the order of `USUAL_NAMES`. Once a step differs, `add_to_counts` is called
        with the `Sums`, which it adds to the counts. `module_reference`: a weak reference to the trained module.
        """
        module = module_reference()
        if module is None:
            return
        # a compiled module asks the module in it for its mode, by a property that takes microseconds
        holder = getattr(module, "_orig_mod", module) if hasattr(type(module), "training") else module
        self._add_to_counts, self.module_id, self.mode_holder = add_to_counts, id(module), weakref.ref(holder)
        for name, value in zip(USUAL_NAMES, usual):
            setattr(self, name, value)
        self.backwards_at_step = self.batches_at_step = 0
        self.most_batches = self.feed.remaining - 1 if self.feed else 0

    def end(self, _gone=None):
        """Stop adding up steps that are alike, and move the sums into the counts. Return whether there were any.

        Steps count in full again until `begin`. Passes and batches after the last step belong to the next step.
        `_gone` is the weak reference that calls this when a module or optimizer is gone.
        """
        add_to_counts, self._add_to_counts = self._add_to_counts, None
        if add_to_counts is not None:
            self.module_id = self.optimizer_id = self.feed = None
            since_step = self.backwards - self.backwards_at_step, self.batches - self.batches_at_step
            unlearned_rows, self.unlearned_rows = self.unlearned_rows, None
            sums = [getattr(self, name) for name in SUM_NAMES]
            for name, value in zip(SUM_NAMES, sums):  # another thread may have added since
                setattr(self, name, getattr(self, name) - value)
            add_to_counts(Sums(*sums, *since_step, unlearned_rows))
        return add_to_counts is not None


steady = Steady()
