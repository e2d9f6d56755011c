"""Counts steps that are alike by a few additions each.

The first steps of a training are looked at one by one. Once several in a row have made all counts larger by the same,
the training is steady: whatever is called only adds to the sums here. `Steady.end` moves these into the counts, at each
record and before anything unusual. After five records a few steps are looked at again, so that a change is seen.
"""

USUAL = ("calls_a_step", "mode", "key", "dimension", "dimensions", "feed", "module_id", "optimizer_id")
"""How often the module is called in a step; its training mode; the argument that shows the samples, by name or None for
the first one; which of its dimensions is theirs, of how many; the loader's iterator; the module; and its optimizer."""
SUMS = ("steps", "forwards", "rows", "batches", "batch_rows", "wait_s")
"""The optimizer's steps, the module's calls and their samples, the loader's batches and their samples, and the seconds
of waiting for them. No function is called while one is added to, so that no other thread adds at the same time."""


class Steady:
    """What is usual in a step, and what the steady steps have added up since they began."""

    __slots__ = (*USUAL, *SUMS, "calls_left", "due_s", "last_rows", "_settle")  # slots lie side by side

    def __init__(self):
        for name in (*USUAL, "_settle"):  # nothing is equal to None
            setattr(self, name, None)
        for name in SUMS:
            setattr(self, name, 0)
        self.due_s = 0.0
        """The time of `time.monotonic` from which on a step of the main optimizer is told."""
        self.calls_left = self.calls_a_step = 0
        """How often the module is usually called before the next step of the optimizer; a further call is unusual."""

    def begin(self, settle, *usual):
        """Only add up from now on what is usual, which has the order of `USUAL`.

        `settle` is called with the sums once steps are no longer steady. Its last argument is usually None. It is the
        samples of the last call if a step has more calls than usual that train. Nobody sees backward passes in steady
        steps; the usual calls of that step are taken to have had none.
        """
        self._settle = settle
        for name, value in zip(USUAL, usual):
            setattr(self, name, value)
        self.calls_left = self.calls_a_step

    def end(self, _gone=None, is_training_call=False):
        """Look at all steps again, move the sums into the counts, and return whether the training was steady."""
        settle, self._settle = self._settle, None
        if settle is not None:
            self.module_id = self.optimizer_id = self.feed = None
            sums = [getattr(self, name) for name in SUMS]
            for name, value in zip(SUMS, sums):  # another thread may have added since
                setattr(self, name, getattr(self, name) - value)
            settle(*sums, self.last_rows if is_training_call and not self.calls_left else None)
        return settle is not None


steady = Steady()
