"""What torch's allocator takes from a card for tensors that come and go (c10/cuda/CUDACachingAllocator.cpp).

It takes whole segments, gives a tensor the smallest free block in which it fits, and keeps what becomes free.
"""

from bisect import bisect_left, insort

BLOCK = 512
"""The bytes of which every block is a multiple (kMinBlockSize)."""
SMALL = 1 << 20
"""The most bytes of a block that lies in a segment of small ones (kSmallSize)."""
SMALL_SEGMENT = 2 << 20
"""The bytes of a segment of small blocks (kSmallBuffer), of which larger segments are multiples (kRoundLarge)."""
LARGE = 10 << 20
"""The bytes from which a block gets a segment of just these (kMinLargeAlloc)."""
LARGE_SEGMENT = 20 << 20
"""The bytes of a segment of blocks below `LARGE` (kLargeBuffer)."""


class Allocator:
    """Segments of a card, and their free blocks."""

    def __init__(self):
        self.taken = 0
        """The bytes of all segments."""
        self._top = 0
        self._free = {True: [], False: []}
        """Whether blocks are small → the bytes and the start of each free one, the smallest first."""
        self._starts = {}
        self._ends = {}
        """The first byte, or the one after the last, → a free block's bytes and start."""

    def take(self, size):
        """Return a block: its start, its bytes, and whether it lies among small ones."""
        size = _multiple(max(size, 1), BLOCK)
        is_small = size <= SMALL
        free = self._free[is_small]
        place = bisect_left(free, (size, 0))
        length, start = self._without(free[place], is_small) if place < len(free) else self._segment(size)
        rest = length - size
        if rest >= BLOCK if is_small else rest > SMALL:
            self._keep(rest, start + size, is_small)
            length = size
        return start, length, is_small

    def give(self, start, length, is_small):
        """Free a block, and join it with its free neighbours."""
        for near in (self._ends.get(start), self._starts.get(start + length)):
            if near:
                self._without(near, is_small)
                start, length = min(start, near[1]), length + near[0]
        self._keep(length, start, is_small)

    def _segment(self, size):
        usual = SMALL_SEGMENT if size <= SMALL else LARGE_SEGMENT
        length = usual if size < LARGE else _multiple(size, SMALL_SEGMENT)
        start = self._top
        self._top += length + 1  # segments are no neighbours
        self.taken += length
        return length, start

    def _keep(self, length, start, is_small):
        block = self._starts[start] = self._ends[start + length] = (length, start)
        insort(self._free[is_small], block)

    def _without(self, block, is_small):
        length, start = block
        del self._starts[start], self._ends[start + length]
        free = self._free[is_small]
        del free[bisect_left(free, block)]
        return block


def _multiple(size, unit):
    return -(-size // unit) * unit
