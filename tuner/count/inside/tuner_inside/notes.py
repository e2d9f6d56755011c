"""What the training does, noted in its order and worked through a few times a second.

A step has no time for more than a note: Python that runs once a millisecond finds its code and data in no cache of the
processor, and takes a microsecond for each small function.
"""

from _thread import allocate_lock
from collections import deque

from tuner_inside.tell import switch_off

MOST_NOTES = 20000
"""The oldest notes are lost beyond so many (chosen). A process without an optimizer of torch never works notes through;
in any other, the counting ends."""

_notes = deque(maxlen=MOST_NOTES)
_working = allocate_lock()

note = _notes.append
"""Take a note: a tuple of a function and its arguments."""


class Pace:
    """When notes are worked through."""

    __slots__ = ("due_s",)

    def __init__(self):
        self.due_s = 0.0
        """The time of `time.monotonic` from which on the next step of the main optimizer works them through."""


pace = Pace()


def work_through():
    """Call the functions that were noted, in their order. An error of theirs ends the counting of steps.

    If another thread does so now, nothing is left to do.
    """
    if _working.acquire(False):
        try:
            if len(_notes) == MOST_NOTES:
                raise OverflowError("more happened between two steps than is noted")
            while _notes:
                taken = _notes.popleft()
                taken[0](*taken[1:])
        except Exception as error:
            switch_off("steps", error)
        finally:
            _working.release()


def begin_anew():
    """Forget all notes, as in a forked process: they are of its parent's training."""
    _notes.clear()
    if _working.locked():  # by a thread of the parent
        _working.release()
