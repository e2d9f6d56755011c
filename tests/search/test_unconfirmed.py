"""Which config is to be measured again cold, where some have been read several times."""

import optuna
import pytest
from optuna.trial import TrialState

from tuner.kept.names import WARM
from tuner.search.sampler import ConfigSampler
from tuner.search.trials import suggest
from tuner.study.space import Config, Parameter, Space
from tuner.study.spec import SearchSpec

SPACE = Space((Parameter(name="num_envs", values=(8, 16, 32)),))
COLD, IN_SESSION = False, True


def unconfirmed(*told: tuple[int, float | None, bool]) -> Config | None:
    """Give what a sampler wants confirmed after it was told `num_envs`, value and whether a session served it."""
    sampler = ConfigSampler(SPACE, SearchSpec())
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for rung, value, warm in told:
        sampler.forced = {"num_envs": rung}
        trial = study.ask()
        suggest(trial, SPACE)
        if warm:
            trial.set_user_attr(WARM, True)
        study.tell(trial, value, state=TrialState.PRUNED if value is None else TrialState.COMPLETE)
    return sampler.unconfirmed(study)


@pytest.mark.parametrize(
    ("cold", "wanted"),
    [
        ([85.0], {"num_envs": 8}),
        ([86.0, 84.0], {"num_envs": 8}),
        ([95.0, 75.0], None),  # known to no more than 10 points
        ([92.0, 94.0], None),
    ],
)
def test_the_mean_of_the_cold_readings_and_its_error_are_to_be_beaten(cold: list[float], wanted: Config | None) -> None:
    assert unconfirmed((8, 90.0, IN_SESSION), *((16, value, COLD) for value in cold)) == wanted


def test_one_lucky_reading_of_a_session_is_not_confirmed() -> None:
    assert unconfirmed((8, 90.0, IN_SESSION), (8, 76.0, IN_SESSION), (16, 85.0, IN_SESSION)) == {"num_envs": 16}
    assert unconfirmed((8, 90.0, IN_SESSION), (8, 78.0, IN_SESSION), (16, 99.0, COLD)) is None


def test_what_could_not_be_the_best_in_one_reading_is_not_confirmed() -> None:
    assert unconfirmed((8, 90.0, IN_SESSION), (8, None, IN_SESSION), (16, 50.0, IN_SESSION)) == {"num_envs": 16}
