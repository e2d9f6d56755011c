"""Whether a training on one card is worth a move to several."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.scaling.comparing import Move, advice

HOUR_OF_STEPS = 3600
"""Steps of a second each."""


def move(**changes: float) -> Move:
    usual = {"steps_done": 0, "steps_left": 10 * HOUR_OF_STEPS, "step_s": 1.0, "cards": 8, "speed_up": 4.0}
    return Move(**{**usual, "queue_h": 2.0, **changes})  # pyright: ignore[reportArgumentType]


def test_hours_left_hours_saved_and_the_step_of_the_move() -> None:
    moved = move()
    assert moved.stay_h == 10.0
    assert moved.from_step == 2 * HOUR_OF_STEPS
    assert moved.move_h == 2.0 + 8.0 / 4.0
    assert moved.saved_h == 6.0
    assert moved.latest_h == pytest.approx(10.0, abs=0.001)


def test_a_start_up_and_the_steps_after_the_last_checkpoint_cost_time() -> None:
    moved = move(start_up_s=1800.0, checkpoint_steps=5000)
    assert moved.from_step == 5000
    assert moved.saved_h == pytest.approx(6.0 - 0.5 - (2 * HOUR_OF_STEPS - 5000) / 4.0 / 3600)
    assert move(steps_done=6000, queue_h=0.1, checkpoint_steps=5000).from_step == 5000
    assert move(steps_done=4000, queue_h=0.1, checkpoint_steps=5000).from_step == 0


@given(queue_h=st.floats(0.0, 12.0), speed_up=st.floats(0.5, 8.0), start_up_s=st.floats(0.0, 7200.0))
def test_a_move_saves_time_exactly_until_the_latest_start(queue_h: float, speed_up: float, start_up_s: float) -> None:
    moved = move(queue_h=queue_h, speed_up=speed_up, start_up_s=start_up_s)
    if abs(queue_h - moved.latest_h) > 0.01:
        assert (moved.saved_h > 0.0) == (queue_h < moved.latest_h)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"queue_h": 11.0}, "stay: the training ends before a job starts in 11.0 h"),
        ({"queue_h": 9.9, "start_up_s": 3600.0}, "stay: the move costs 56 min"),
        ({"queue_h": 0.0, "speed_up": 1.0}, "stay: the move costs 0 min"),
        ({}, "move: it saves 6.0 h for 8.0 more card-hours"),
    ],
)
def test_the_advice(changes: dict[str, float], said: str) -> None:
    assert any(line.startswith(said) for line in advice(move(**changes)))
