"""The losses of a step add up to what the step takes beyond the ideal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.scaling.laws import (
    Loss,
    Quantity,
    fill_share,
    losses,
)

ms = st.floats(0.1, 1000.0)
measures = st.builds(Quantity, ms, st.none() | st.floats(0.0, 10.0))


@given(
    steps=st.builds(
        dict,
        joined=measures,
        ideal=measures,
        same_batch=measures,
        beside=st.lists(measures, max_size=4).map(tuple),
        apart=st.none() | measures,
        fill=st.sampled_from([0.0, 0.125, 0.875]),
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
        apart=Quantity(9.0, 0.4),
    )
    assert {name: loss.value for name, loss in found.items()} == pytest.approx(
        {
            Loss.SERIAL: 1.0,
            Loss.CONTENTION: 1.5,
            Loss.IMBALANCE: 0.5,
            Loss.SYNCHRONISATION: 1.0,
            Loss.COMMUNICATION: 11.0,
        }
    )
    assert found[Loss.COMMUNICATION].error == pytest.approx(0.5)


def test_a_trainer_that_always_exchanges_has_one_loss_for_both() -> None:
    found = losses(joined=Quantity(20.0), ideal=Quantity(5.0), same_batch=Quantity(5.0))
    assert found == {Loss.WAITING: Quantity(15.0)}


def test_a_pipeline_fills_and_drains() -> None:
    assert fill_share(2, 8) == 1 / 8
    assert fill_share(8, 8) == 7 / 8
    found = losses(
        joined=Quantity(12.0), ideal=Quantity(5.0), same_batch=Quantity(5.0), apart=Quantity(8.0), fill=fill_share(2, 8)
    )
    assert found == {Loss.STAGES: Quantity(3.0), Loss.BUBBLE: Quantity(1.0), Loss.COMMUNICATION: Quantity(3.0)}
