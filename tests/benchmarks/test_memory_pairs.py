"""How the memory benchmark finds the largest size of a ladder that holds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.memory.show import topmost


@settings(max_examples=300)
@given(st.data())
def test_the_last_place_that_holds_is_found_and_no_place_is_tried_twice(data: st.DataObject) -> None:
    end = data.draw(st.integers(1, 40))
    floor = data.draw(st.integers(-1, end - 1))
    last, near = data.draw(st.integers(floor, end - 1)), data.draw(st.integers(min(floor + 1, end - 1), end - 1))
    tried: list[int] = []

    def holds(place: int) -> bool:
        tried.append(place)
        return place <= last

    assert topmost(holds, near, floor, end) == last
    assert len(set(tried)) == len(tried)
    assert all(floor < place < end for place in tried)
