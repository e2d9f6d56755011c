"""What torch's allocator takes from a card for tensors that come and go."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tuner.count.inside.tuner_inside.allocator import Allocator

MIB = 1 << 20


def test_tensors_take_whole_segments() -> None:
    for sizes, taken_mib in [
        ([1] * 4096, 2),  # 512 bytes each
        ([1] * 4097, 4),
        ([3 * MIB] * 6, 20),
        ([3 * MIB] * 7, 40),  # 2 MiB are left, which is too little
        ([9 * MIB, 33 * MIB, 1], 20 + 34 + 2),
        ([MIB], 2),
        ([MIB + 1], 20),
        ([10 * MIB], 10),
    ]:
        allocator = Allocator()
        for size in sizes:
            allocator.take(size)
        assert allocator.taken == taken_mib * MIB


def test_what_is_freed_is_joined_and_used_again() -> None:
    allocator = Allocator()
    blocks = [allocator.take(6 * MIB) for _ in range(3)]
    for block in (blocks[0], blocks[2], blocks[1]):
        allocator.give(*block)
    allocator.take(int(9.9 * MIB))
    allocator.take(int(9.9 * MIB))
    assert allocator.taken == 20 * MIB


def test_a_tensor_gets_the_smallest_free_block_in_which_it_fits() -> None:
    allocator = Allocator()
    for block in [allocator.take(size * MIB) for size in (16, 12)]:
        allocator.give(*block)
    for size in (11, 15):
        allocator.take(size * MIB)
    assert allocator.taken == 28 * MIB


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), max_size=40))
def test_blocks_that_are_held_share_no_byte(steps: list[tuple[int, bool]]) -> None:
    allocator, held = Allocator(), list[tuple[int, int]]()
    for size, is_freed in steps:
        start, length, is_small = allocator.take(size)
        assert length >= size
        if is_freed:
            allocator.give(start, length, is_small)
        else:
            held.append((start, start + length))
    held.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(held))
    assert sum(end - start for start, end in held) <= allocator.taken
