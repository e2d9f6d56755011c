"""The losses of a step add up to what the step takes beyond the ideal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe import Quantity
from tuner.tools.scaling.results import Loss, losses

ms = st.floats(0.1, 1000.0)
measures = st.builds(Quantity, ms, st.none() | st.floats(0.0, 10.0))


@given(
    steps=st.builds(
        dict,
        joined=measures,
        ideal=measures,
        same_batch=measures,
        beside=st.lists(measures, max_size=4).map(tuple),
    )
)
def test_losses_add_up(steps: dict[str, Any]) -> None:
    total = sum(loss.value for loss in losses(**steps).values())
    assert total == pytest.approx(steps["joined"].value - steps["ideal"].value, abs=1e-6)


def test_each_loss_is_the_difference_of_its_two_measurements() -> None:
    found = losses(
        joined=Quantity(20.0, 0.3),
        ideal=Quantity(5.0, 0.1),
        same_batch=Quantity(6.0, 0.1),
        beside=(Quantity(7.0, 0.2), Quantity(8.0, 0.2)),
    )
    assert {name: loss.value for name, loss in found.items()} == pytest.approx(
        {
            Loss.SERIAL: 1.0,
            Loss.CONTENTION: 1.5,
            Loss.IMBALANCE: 0.5,
            Loss.WAITING: 12.0,
        }
    )
    assert found[Loss.WAITING].error == pytest.approx((0.3**2 + 0.2**2) ** 0.5)


def test_unknown_errors_stay_unknown() -> None:
    assert losses(joined=Quantity(20.0), ideal=Quantity(5.0), same_batch=Quantity(5.0)) == {
        Loss.WAITING: Quantity(15.0)
    }
    assert Quantity(2.0).divided_by(Quantity(1.0, 0.1)) == Quantity(2.0)
    assert Quantity(2.0, 0.3).minus(Quantity(1.0, 0.4)) == Quantity(1.0, 0.5)
