"""What a case expects of its configs from the measurements of a similar case."""

import numpy as np
import pytest

from tuner.search.gain.pool import Levels
from tuner.search.gain.readings import Readings, sibling_readings
from tuner.search.gain.surrogate import Mixture, Surrogate
from tuner.search.trials import Sibling
from tuner.study.space import Config, Parameter, Space

SPACE = Space(
    (
        Parameter(name="num_envs", values=(64, 256, 1024, 4096)),
        Parameter(name="agent_variant", values=("hiutil", "default")),
    )
)
CONFIGS = list(SPACE.configs())
LEVELS = Levels(SPACE)
ALL = LEVELS.codes(CONFIGS)
VALUES = np.array([30.0, 20.0, 52.0, 45.0, 70.0, 74.0, 66.0, 61.0])


def measured(places: list[int], values: list[float]) -> Readings:
    readings = [(CONFIGS[place], value, 0.5) for place, value in zip(places, values, strict=True)]
    known = sibling_readings(Sibling(case="source", best=CONFIGS[0], readings=readings), LEVELS, SPACE)
    assert known is not None
    return known


SOURCE = Surrogate(LEVELS, measured(list(range(8)), VALUES.tolist()))


def test_a_case_that_differs_by_a_factor_is_known_from_two_measurements() -> None:
    mean, deviation = Surrogate(LEVELS, measured([0, 5], [0.8 * VALUES[0], 0.8 * VALUES[5]]), SOURCE).predict(ALL)
    assert mean == pytest.approx(0.8 * VALUES, abs=1.5)
    _, alone = Surrogate(LEVELS, measured([0, 5], [0.8 * VALUES[0], 0.8 * VALUES[5]])).predict(ALL)
    assert (deviation < alone).all()


@pytest.mark.parametrize(("values", "is_like"), [(0.8 * VALUES, True), (VALUES[::-1], False)])
def test_the_evidence_says_whether_the_cases_are_alike(values: np.ndarray, is_like: bool) -> None:
    known = measured([0, 2, 3, 5, 7], values[[0, 2, 3, 5, 7]].tolist())
    assert (Surrogate(LEVELS, known, SOURCE).log_evidence > Surrogate(LEVELS, known).log_evidence) is is_like


@pytest.mark.parametrize(("values", "is_like"), [(0.8 * VALUES, True), (VALUES[::-1], False)])
def test_the_average_of_two_models_follows_the_more_plausible_one(values: np.ndarray, is_like: bool) -> None:
    known = measured([0, 2, 3, 5, 7], values[[0, 2, 3, 5, 7]].tolist())
    alone, lent = Surrogate(LEVELS, known), Surrogate(LEVELS, known, SOURCE)
    mixture = Mixture(alone, lent)
    mean, _ = mixture.predict(ALL)
    assert (lent.measurements, alone.measurements) == (13, 5)
    assert (mixture.measurements > 9.0) is is_like
    to_lent, to_alone = (np.abs(mean - model.predict(ALL)[0]).max() for model in (lent, alone))
    assert bool(to_lent < to_alone) is is_like


def test_where_two_models_disagree_the_average_is_less_certain() -> None:
    known = measured([0, 5], [24.0, 59.0])
    alone, lent = Surrogate(LEVELS, known), Surrogate(LEVELS, known, SOURCE)
    mixture = Mixture(alone, lent)
    mean, deviation = mixture.predict(ALL)
    together, covariance = mixture.joint_prediction(ALL)
    assert together == pytest.approx(mean)
    assert np.sqrt(np.diag(covariance)) == pytest.approx(deviation, rel=1e-3, abs=1e-3)
    surer = np.minimum(alone.predict(ALL)[1], lent.predict(ALL)[1])
    assert (deviation >= surer - 1e-9).all()


def test_draws_of_a_case_with_a_source_are_spread_as_it_predicts() -> None:
    surrogate = Surrogate(LEVELS, measured([0, 5], [24.0, 59.0]), SOURCE)
    mean, deviation = surrogate.predict(ALL)
    together, covariance = surrogate.joint_prediction(ALL)
    assert together == pytest.approx(mean)
    assert np.sqrt(np.diag(covariance)) == pytest.approx(deviation, rel=1e-3, abs=1e-3)


def test_what_a_sibling_measured_outside_the_space_counts_for_nothing() -> None:
    outside: Config = {"num_envs": 100, "agent_variant": "hiutil"}
    sibling = Sibling(case="source", best=outside, readings=[(outside, 50.0, None)])
    assert sibling_readings(sibling, LEVELS, SPACE) is None


def test_one_large_difference_is_less_plausible_than_many_small_ones() -> None:
    many, one = [6.0, -6.0] * 4, [0.0] * 7 + [15.0]
    known = [measured(list(range(8)), (0.8 * VALUES + differences).tolist()) for differences in (many, one)]
    small, large = (Surrogate(LEVELS, readings, SOURCE).log_evidence for readings in known)
    assert small > large
