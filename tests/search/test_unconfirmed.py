"""Which config is measured again cold, if configs have several measurements."""

from typing import Literal

import optuna
from optuna.trial import TrialState
from tests_search import given

from tuner.records.schema import PROBE
from tuner.search.choosing import History
from tuner.study.space import Config, Parameter, Space

SPACE = Space((Parameter(name="num_envs", values=(8, 16, 32)),))
COLD, IN_SESSION = False, True


def unconfirmed(
    *told: tuple[int, float | None, bool], direction: Literal["minimize", "maximize"] = "maximize"
) -> Config | None:
    """Return the config to confirm after trials of `num_envs`, value and whether a session served the probe."""
    study = optuna.create_study(direction=direction)
    for rung, value, warm in told:
        trial = given(study, SPACE, {"num_envs": rung})
        if warm:
            trial.set_user_attr(PROBE, {"status": "ok", "warm": True})
        study.tell(trial, value, state=TrialState.PRUNED if value is None else TrialState.COMPLETE)
    return History(study, SPACE).unconfirmed()


def test_the_mean_of_the_cold_readings_and_its_error_are_to_be_beaten() -> None:
    for cold, wanted in [
        ([85.0], {"num_envs": 8}),
        ([86.0, 84.0], {"num_envs": 8}),
        ([95.0, 75.0], None),  # their values are known only to within 10 points
        ([92.0, 94.0], None),
    ]:
        assert unconfirmed((8, 90.0, IN_SESSION), *((16, value, COLD) for value in cold)) == wanted


def test_one_lucky_reading_of_a_session_is_not_confirmed() -> None:
    assert unconfirmed((8, 90.0, IN_SESSION), (8, 76.0, IN_SESSION), (16, 85.0, IN_SESSION)) == {"num_envs": 16}
    assert unconfirmed((8, 90.0, IN_SESSION), (8, 78.0, IN_SESSION), (16, 99.0, COLD)) is None


def test_what_could_not_be_the_best_in_one_reading_is_not_confirmed() -> None:
    assert unconfirmed((8, 90.0, IN_SESSION), (8, None, IN_SESSION), (16, 50.0, IN_SESSION)) == {"num_envs": 16}


def test_where_small_values_are_better_the_smallest_is_confirmed() -> None:
    warm = [(8, 10.0, IN_SESSION), (16, 90.0, IN_SESSION)]
    assert unconfirmed(*warm, direction="minimize") == {"num_envs": 8}
    assert unconfirmed(*warm, (32, 5.0, COLD), direction="minimize") is None
    assert unconfirmed(*warm, (32, 50.0, COLD), direction="minimize") == {"num_envs": 8}
