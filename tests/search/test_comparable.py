"""Which measurements cannot stand beside each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.kept.trial import KeptProbe, KeptTrial
from tuner.search.comparable import assumed, miscounted, unlike
from tuner.search.standing import eligible

STEPS = 100


def counting(number: int, end: float | None, each: float = 0, *, reached: int = STEPS, **facts: Any) -> KeptTrial:
    """Return a complete trial of its own config, whose count ends at `end`, with `each` samples in an iteration."""
    probe = KeptProbe(
        digest=str(number), status="ok", end=end, iteration=reached, samples=round(each * reached) or None, **facts
    )
    return KeptTrial(number=number, values=(1.0 + number,), probe=probe)


@pytest.mark.parametrize(
    ("trials", "left_out"),
    [
        ([(1875, 32), (938, 64), (469, 128)], set()),  # all data, however large a batch is
        ([(500, 32), (500, 64), (500, 128)], set()),  # a fixed number of iterations
        ([(1875, 32), (1250, 64), (1250, 128), (1875, 32)], {1, 2}),  # the script caps its batch at 48
        ([(1250, 64), (1250, 128), (1875, 32)], {1, 2}),
        ([(3, 300), (1, 600)], set()),  # an end leaves out a part of an iteration
        ([(400, 0), (100_000, 0), (100_000, 0)], {0}),  # a preparation
        ([(1000, 0), (1040, 0)], set()),  # epochs differ by some iterations
        ([(None, 32), (10, 64)], set()),
    ],
)
def test_ends_that_are_not_those_of_the_same_data_do_not_count(
    trials: list[tuple[float | None, float]], left_out: set[int]
) -> None:
    history = [counting(number, *one) for number, one in enumerate(trials)]
    assert set(miscounted(history)) == left_out
    assert set(eligible(history)) == {str(number) for number in range(len(trials))} - {str(one) for one in left_out}


@given(st.integers(1, 10**6), st.lists(st.integers(1, 512), min_size=1, max_size=8), st.booleans())
def test_all_samples_of_the_data_are_the_same_data_at_any_batch(data: int, batches: list[int], whole: bool) -> None:
    ends = [data // batch if whole else -(-data // batch) for batch in batches]
    assert miscounted(counting(*one) for one in zip(range(99), ends, batches, strict=False)) == {}


def test_a_speed_that_changed_cannot_be_compared_with_one_that_has_not_come_so_far() -> None:
    changed = counting(1, None, 32, reached=200, change=(150, 3.0))
    assert "iteration 150" in (unlike([counting(0, None, 32, reached=149)], [changed]) or "")
    assert unlike([changed], [counting(0, None, 32, reached=149)])
    assert unlike([counting(0, None, 32, reached=151)], [changed]) is None
    assert unlike([counting(0, None, 64, reached=75)], [changed]) is None  # as many samples
    assert unlike([counting(0, None, 32, reached=10)], [counting(1, None, 32, change=(50, 1.2))]) is None


def test_an_epoch_that_is_as_long_at_a_larger_batch_is_told() -> None:
    small, large = ([counting(number, 1250, each, epochs=0)] for number, each in enumerate((64, 512)))
    assert "1250 iterations" in (assumed(large, small) or "")
    assert assumed(large, large) is None
    assert assumed([counting(0, 1250, 64)], [counting(1, 1250, 512)]) is None  # a fixed number of steps
    assert assumed([counting(0, 1250, 64, epochs=0)], [counting(1, 625, 128, epochs=0)]) is None
