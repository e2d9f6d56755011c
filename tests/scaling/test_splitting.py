"""Independent work is divided in proportion to the speeds of the cards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_scaling import point, results

from tuner.tools.scaling.laws import Quantity
from tuner.tools.scaling.scaling_table import Division, divisions, placement

rates = st.lists(st.floats(1.0, 1e6), min_size=2, max_size=8)


def division(*speeds: float, name: str = "fusion") -> Division:
    measured = tuple(Quantity(one, one / 100) for one in speeds)
    return Division(workload=name, size=64, alone=measured, first=measured, second=measured)


@given(speeds=rates)
def test_all_cards_finish_together_where_speeds_stay(speeds: list[float]) -> None:
    one = division(*speeds)
    assert sum(one.shares) == pytest.approx(1.0)
    assert one.throughput.value == pytest.approx(one.sum_alone.value)
    assert one.throughput.value >= one.even.value * (1 - 1e-9)
    assert one.even.value == pytest.approx(len(speeds) * min(speeds))


def test_the_slowest_card_decides_when_a_speed_has_changed() -> None:
    first, second = (Quantity(300.0), Quantity(100.0)), (Quantity(300.0), Quantity(80.0))
    one = Division(workload="fusion", size=64, alone=first, first=first, second=second)
    assert one.shares == (0.75, 0.25)
    assert one.throughput.value == pytest.approx(80 / 0.25)


def test_a_division_needs_each_card_alone_and_twice_beside() -> None:
    alone = [point("single", 100.0), point("single", 50.0, gpus=(1,))]
    beside = [point("beside", 90.0, beside=2), point("beside", 45.0, gpus=(1,), beside=2)]
    assert divisions(results(*alone, *beside)) == []
    (one,) = divisions(results(*alone, *beside, *beside))
    assert one.shares == pytest.approx((2 / 3, 1 / 3))
    assert one.sum_alone.value == 150.0


def test_each_workload_goes_where_it_belongs() -> None:
    chosen = placement([division(100.0, 50.0), division(100.0, 90.0, name="voxelize")])
    assert chosen == {("fusion", 64): 0, ("voxelize", 64): 1}
    assert placement([]) == {}


def test_many_workloads_are_placed_one_after_the_other() -> None:
    chosen = placement([division(*[100.0] * 8, name=f"w{number}") for number in range(8)])
    assert sorted(chosen.values()) == list(range(8))
