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
        """Imitate torch's allocator of a card, on which nothing is yet."""
        self.taken = 0
        """The bytes of all segments."""
        self._top = 0
        """The first byte after all segments, as the next segment gets it."""
        self._free = {True: [], False: []}
        """Whether blocks are small → the bytes and the start of each free one, the smallest first."""
        self._starts = {}
        self._ends = {}
        """The first byte of each free block, or the one after its last byte → the block's bytes and start."""

    def take(self, size):
        """Return a block of at least `size` bytes: its start, its bytes, and whether it lies among small ones."""
        size = _multiple(max(size, 1), BLOCK)
        is_small = size <= SMALL
        free = self._free[is_small]
        place = bisect_left(free, (size, 0))  # of the smallest free block in which it fits
        if place < len(free):
            length, start = self._take_free(free[place], is_small)
        else:  # a new segment
            start = self._top
            length = SMALL_SEGMENT if is_small else LARGE_SEGMENT
            if size >= LARGE:
                length = _multiple(size, SMALL_SEGMENT)
            self._top += length + 1  # a byte between segments: their blocks are no neighbours
            self.taken += length
        left_over = length - size
        # what is left of the block stays free by itself, unless it is too little (should_split)
        is_split = left_over >= BLOCK if is_small else left_over > SMALL
        if is_split:
            self._add_free(left_over, start + size, is_small)
            length = size
        return start, length, is_small

    def give(self, start, length, is_small):
        """Free a block, which begins at `start` and has `length` bytes, and join it with its free neighbours.

        `is_small`: whether its segment holds small blocks, as `take` has said.
        """
        for neighbour in (self._ends.get(start), self._starts.get(start + length)):
            if neighbour:
                self._take_free(neighbour, is_small)
                neighbour_length, neighbour_start = neighbour
                start, length = min(start, neighbour_start), length + neighbour_length
        self._add_free(length, start, is_small)

    def _add_free(self, length, start, is_small):
        block = self._starts[start] = self._ends[start + length] = (length, start)
        insort(self._free[is_small], block)

    def _take_free(self, block, is_small):
        """Remove a block from the free ones, and return it."""
        length, start = block
        del self._starts[start], self._ends[start + length]
        free = self._free[is_small]
        del free[bisect_left(free, block)]
        return block


def _multiple(size, unit):
    """Return the smallest multiple of a unit that is not below a size."""
    return -(-size // unit) * unit
