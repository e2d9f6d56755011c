"""Which measurements a model of bounded size learns from, and what becomes of the others."""

import numpy as np
import pytest

from tuner.search.gain.pool import Levels
from tuner.search.gain.readings import Readings
from tuner.search.gain.surrogate import MOST_READINGS, Surrogate, informative
from tuner.study.space import Parameter, Space

LINE = np.linspace(0.0, 1.0, 40)
COVARIANCE = np.exp(-50.0 * (LINE[:, None] - LINE) ** 2)
SPACE = Space(
    (
        Parameter(name="num_envs", values=tuple(32 << step for step in range(20))),
        *(Parameter(name=name, values=tuple(range(1, 21))) for name in ("workers", "batch")),
    )
)
LEVELS = Levels(SPACE)
ALL = LEVELS.codes(SPACE.configs())
HEIGHTS = ALL / 19.0
TRUTH = 50.0 + 30.0 * HEIGHTS[:, 0] ** 0.5 - 8.0 * ((HEIGHTS[:, 1:] - 0.6) ** 2).sum(axis=1)


@pytest.fixture(scope="module")
def learnt() -> tuple[Surrogate, Readings]:
    """A model of more measured configs than it learns from."""
    count, error, chance = 2 * MOST_READINGS, 0.4, np.random.default_rng(0)
    places = chance.choice(len(ALL), count, replace=False)
    readings = Readings(
        codes=ALL[places],
        values=TRUTH[places] + error * chance.standard_normal(count),
        errors=np.full(count, error),
        offset_covariance=np.zeros((count, count)),
        usual_error=error,
        scale=float(TRUTH.mean()),
    )
    return Surrogate(LEVELS, readings), readings


def test_few_measurements_are_all_chosen() -> None:
    assert informative(COVARIANCE, LINE, np.ones(40), 40).tolist() == list(range(40))


def test_the_highest_are_chosen_and_the_others_cover_the_rest() -> None:
    chosen = informative(COVARIANCE, LINE, np.full(40, 0.1), 12)
    assert len(set(chosen.tolist())) == 12
    assert {34, 35, 36, 37, 38, 39} <= set(chosen.tolist())
    below = [0, *sorted(set(chosen.tolist()) - set(range(34, 40))), 34]
    assert np.diff(below).max() <= 9


def test_of_two_alike_the_more_precise_is_chosen() -> None:
    errors = np.where(np.arange(40) % 2 == 0, 0.05, 0.5)
    chosen = informative(COVARIANCE, -LINE, errors, 10)
    assert all(place % 2 == 0 for place in chosen if place >= 5)


def test_beyond_the_bound_the_belief_is_almost_the_truth(learnt: tuple[Surrogate, Readings]) -> None:
    surrogate, readings = learnt
    mean, deviation = surrogate.predict(ALL)
    assert np.sqrt(np.mean((mean - TRUTH) ** 2)) < 0.4
    assert np.mean(np.abs(mean - TRUTH) < 2.0 * deviation) > 0.9
    assert abs(TRUTH[mean.argmax()] - TRUTH.max()) < 0.5
    keys = {code.tobytes() for code in readings.codes}
    measured = np.array([code.tobytes() in keys for code in ALL])
    assert deviation[measured].max() <= readings.usual_error * 1.01


def test_configs_together_know_what_was_left_out(learnt: tuple[Surrogate, Readings]) -> None:
    surrogate, readings = learnt
    some = readings.codes[np.argsort(readings.values)[:60]]
    mean, deviation = surrogate.predict(some)
    joint_mean, covariance = surrogate.joint_prediction(some)
    assert (np.abs(joint_mean - mean) < deviation).all()
    share = np.sqrt(covariance.diagonal()) / deviation
    assert share.min() > 0.5
    assert share.max() < 1.01  # together, the measurements of neighbours tell about each other, too
