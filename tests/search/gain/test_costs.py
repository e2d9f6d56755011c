"""The expected cost of probes, from the measured costs."""

import numpy as np
from optuna.trial import FrozenTrial, create_trial

from tuner.records.schema import COST
from tuner.records.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.gain.outlook import Costs
from tuner.search.gain.pool import Pool
from tuner.search.trials import Observed, distribution
from tuner.study.space import Parameter, Space
from tuner.study.spec import ProbeSpec

SPACE = Space((Parameter(name="num_envs", values=(64, 256, 1024, 4096, 16384)),))
LIMITS = ProbeSpec(start_up_silence_seconds=300)
ONE_START = np.ones(5)


def probed(rung: int, **took: float) -> FrozenTrial:
    kinds = {one.name: distribution(one) for one in SPACE.parameters}
    return create_trial(params={"num_envs": rung}, distributions=kinds, value=50.0, user_attrs={COST: took})


def costs(*trials: FrozenTrial) -> Costs:
    return Costs(Pool(SPACE), Observed(trials), LIMITS)


def test_before_anything_was_measured_all_run_and_cost_the_same() -> None:
    expected = costs()
    assert (expected.chance_to_run == 1.0).all()
    assert (expected.seconds(ONE_START) == 60.0 + 20.0).all()


def test_what_hardly_fits_is_unlikely_to_run() -> None:
    expected = costs(probed(256, **{MEMORY_SHARE: 0.07}), probed(1024, **{MEMORY_SHARE: 0.22}))
    assert (np.diff(expected.chance_to_run) <= 0.0).all()
    assert expected.chance_to_run[2] > 0.99
    assert expected.chance_to_run[4] < 0.01


def test_a_start_that_takes_too_long_costs_the_longest_start() -> None:
    expected = costs(probed(256, **{START_S: 40.0, RUN_S: 20.0}), probed(1024, **{START_S: 100.0, RUN_S: 20.0}))
    assert expected.chance_of_slow_start[4] > 0.99
    assert abs(expected.seconds(ONE_START)[4] - LIMITS.start_up_silence_seconds) < 1.0


def test_a_time_limit_below_the_silence_is_what_is_waited_for() -> None:
    trials = probed(256, **{START_S: 40.0, RUN_S: 20.0}), probed(1024, **{START_S: 100.0, RUN_S: 20.0})
    hasty = Costs(Pool(SPACE), Observed(trials), ProbeSpec(start_up_silence_seconds=300, max_start_seconds=120))
    assert hasty.chance_of_slow_start[3] > 0.99
    assert abs(hasty.seconds(ONE_START)[3] - 120.0) < 1.0


def test_a_start_that_took_longer_than_a_silence_may_take_until_the_time_limit() -> None:
    expected = costs(probed(256, **{START_S: 400.0, RUN_S: 20.0}), probed(1024, **{START_S: 410.0, RUN_S: 20.0}))
    assert (expected.chance_to_run[:3] > 0.99).all()
    assert expected.seconds(ONE_START)[1] > 360.0


def test_an_open_session_saves_its_start_and_who_leaves_it_pays_for_the_way_back() -> None:
    expected = costs(probed(256, **{START_S: 40.0, RUN_S: 20.0}))
    saved = expected.seconds(ONE_START) - expected.seconds(np.array([1.0, 0.0, 1.0, 1.0, 1.0]))
    assert saved[1] > 30.0
    assert np.allclose(saved[[0, 2]], -saved[1], atol=0.01)
