"""Predictions for configs that have been measured, and for configs that have not."""

from collections.abc import Mapping

import numpy as np
import pytest

from tuner.search.gain.pool import Levels
from tuner.search.gain.surrogate import Readings, Surrogate
from tuner.study.space import Config, Parameter, Space

RUNGS = (64, 128, 256, 512, 1024, 2048, 4096)
SPACE = Space((Parameter(name="num_envs", values=RUNGS), Parameter(name="agent_variant", values=("hiutil", "default"))))
CONFIGS = list(SPACE.configs())
LEVELS = Levels(SPACE)
ALL = LEVELS.codes(CONFIGS)


def after(read: Mapping[tuple[int, str], float], error: float = 0.5, times: int = 1) -> Surrogate:
    """Return the surrogate after `times` equal measurements of each config."""
    configs: list[Config] = [{"num_envs": rung, "agent_variant": variant} for rung, variant in read] * times
    readings = Readings(
        codes=LEVELS.codes(configs),
        values=np.array([*read.values()] * times),
        errors=np.full(len(configs), error),
        offset_covariance=np.zeros((len(configs), len(configs))),
        usual_error=error,
        scale=float(np.mean([*read.values()])),
    )
    return Surrogate(LEVELS, readings)


def place(rung: int, variant: str) -> int:
    return CONFIGS.index({"num_envs": rung, "agent_variant": variant})


def test_what_was_read_is_believed_to_within_its_error() -> None:
    read = {(64, "hiutil"): 30.0, (1024, "hiutil"): 60.0, (1024, "default"): 50.0}
    mean, deviation = after(read).predict(ALL)
    places = [place(*key) for key in read]
    assert mean[places] == pytest.approx([*read.values()], abs=1.0)
    assert (deviation[places] <= 0.6).all()


def test_what_lies_farther_from_all_readings_is_less_certain() -> None:
    _, deviation = after({(64, "hiutil"): 30.0, (128, "hiutil"): 35.0}).predict(ALL)
    assert (np.diff(deviation[[place(rung, "hiutil") for rung in RUNGS[1:]]]) > 0).all()


def test_a_config_s_belief_does_not_depend_on_the_configs_asked_with_it() -> None:
    surrogate = after({(64, "hiutil"): 30.0, (1024, "hiutil"): 60.0, (1024, "default"): 50.0}, times=30)
    many = np.tile(ALL, (1_000, 1))  # more than one comparison with 90 measurements holds
    means, deviations = surrogate.predict(many)
    mean, deviation = surrogate.predict(ALL)
    assert np.allclose(means.reshape(-1, len(ALL)), mean, rtol=1e-6, atol=0.0)
    assert np.allclose(deviations.reshape(-1, len(ALL)), deviation, rtol=1e-6, atol=0.0)


def test_a_trend_along_the_ladder_goes_on() -> None:
    mean, _ = after({(64, "hiutil"): 30.0, (256, "hiutil"): 40.0, (1024, "hiutil"): 50.0}).predict(ALL)
    assert mean[place(4096, "hiutil")] > 51.0


def test_what_one_variant_gains_at_a_rung_it_is_expected_to_gain_at_the_next() -> None:
    mean, _ = after({(256, "hiutil"): 50.0, (256, "default"): 40.0, (512, "hiutil"): 55.0}).predict(ALL)
    assert mean[place(512, "default")] < 51.0


def test_if_measurements_jump_by_more_than_their_errors_an_unmeasured_config_may_jump_too() -> None:
    unread = (512, "default")
    smooth = {
        (rung, variant): 30.0 + 5.0 * step + 2.0 * (variant == "default")
        for step, rung in enumerate(RUNGS)
        for variant in ("hiutil", "default")
        if (rung, variant) != unread
    }
    jumps = (1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0)
    jumping = {key: value + jump for (key, value), jump in zip(smooth.items(), jumps, strict=True)}
    _, sure = after(smooth, error=0.05).predict(ALL)
    _, doubtful = after(jumping, error=0.05).predict(ALL)
    assert sure[place(*unread)] < 0.4
    assert 0.5 < doubtful[place(*unread)] < 2.5


def test_a_rung_between_two_measured_rungs_may_lie_far_off_the_line() -> None:
    variants = ("hiutil", "default")
    ends = {(rung, variant): value for rung, value in ((64, 40.0), (4096, 80.0)) for variant in variants}
    mean, deviation = after(ends).predict(ALL)
    between = place(512, "hiutil")
    assert mean[between] == pytest.approx(60.0, abs=1.0)
    assert mean[between] + 2.0 * deviation[between] > 70.0


def test_a_rung_between_two_similar_rungs_may_differ_by_some_points() -> None:
    alike = {(rung, "hiutil"): 40.0 for rung in (64, 256, 512, 4096)}
    _, deviation = after(alike).predict(ALL)
    assert (deviation[[place(rung, "hiutil") for rung in (128, 1024, 2048)]] > 1.2).all()


def test_a_speed_that_was_read_far_too_high_once_misleads_less_than_its_error_says() -> None:
    configs: list[Config] = [{"num_envs": rung, "agent_variant": "hiutil"} for rung in RUNGS for _ in range(2)]
    values = np.log(np.repeat([100.0 * (1.0 + 0.1 * step) for step in range(len(RUNGS))], 2))
    wrong = values.copy()
    wrong[2] += 0.5

    def believed(read: np.ndarray) -> float:
        readings = Readings(
            codes=LEVELS.codes(configs),
            values=read,
            errors=np.full(len(read), 0.01),
            offset_covariance=np.zeros((len(read), len(read))),
            usual_error=0.01,
            scale=1.0,
            logarithmic=True,
        )
        return float(Surrogate(LEVELS, readings).predict(ALL)[0][place(128, "hiutil")])

    assert abs(believed(wrong) - believed(values)) < 0.5 / 4.0


def test_a_measurement_above_what_the_others_foretell_has_a_large_residual() -> None:
    smooth = {(rung, "hiutil"): 40.0 + 3.0 * step for step, rung in enumerate(RUNGS)}
    residuals = after({**smooth, (512, "hiutil"): 65.0}).residuals
    assert residuals.argmax() == RUNGS.index(512)


def test_two_high_measurements_of_a_config_do_not_explain_each_other() -> None:
    smooth = {(rung, "hiutil"): 40.0 + 3.0 * step for step, rung in enumerate(RUNGS)}
    twice = after({**smooth, (512, "hiutil"): 65.0}, times=2)
    config = ALL[place(512, "hiutil")]
    assert twice.residual(config) > 2.5
    assert twice.residual(config) > twice.residuals.max()
    assert twice.residual(ALL[place(64, "default")]) == 0.0
