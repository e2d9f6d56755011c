"""A fixed and a growing part predict memory and start-up time of configs that were not probed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests_space import USUAL

from tuner.search.resource_model import Amounts, ResourceModel, fitted_after_siblings
from tuner.study.space import Config, Parameter, Space

LADDER = Space((Parameter(name="num_envs", values=(256, 512, 1024, 2048, 4096, 8192)),))


def mib(config: Config) -> float:
    """Return the memory of pi_plus on an H200: 2.5 GiB and 3.47 MiB per environment."""
    return 2560.0 + 3.47 * float(config["num_envs"])


def grown(*rungs: int, error: float = 0.03) -> ResourceModel:
    known: list[Config] = [{"num_envs": rung} for rung in rungs]
    return ResourceModel(LADDER, known, [mib(config) for config in known], error=error, choice_deviation=0.1)


def test_two_rungs_predict_the_others() -> None:
    mean, deviation = grown(512, 4096).expect(list(LADDER.configs()))
    expected = [mib(config) for config in LADDER.configs()]
    assert mean == pytest.approx(expected, rel=0.05)
    assert (np.abs(mean - expected) <= 3.0 * deviation).all()


def test_more_rungs_make_it_surer() -> None:
    configs = list(LADDER.configs())
    _, one = grown(512).expect(configs)
    _, three = grown(512, 1024, 4096).expect(configs)
    assert (three < one).all()


def test_far_from_what_was_measured_it_is_less_sure() -> None:
    _, deviation = grown(256).expect(list(LADDER.configs()))
    assert list(deviation) == sorted(deviation)


def test_a_variant_that_needs_more_gets_its_own_line() -> None:
    known = [{**config, "num_envs": 32} for config in USUAL.configs()]
    heavy = [1000.0 * (1.0 + 0.2 * (config["agent_variant"] == "hiutil")) for config in known]
    mean, _ = ResourceModel(USUAL, known, heavy, error=0.01, choice_deviation=0.3).expect(known)
    assert mean == pytest.approx(heavy, rel=0.03)


def heavier(config: Config) -> float:
    """Return half as much again, as another method may need."""
    return 1.5 * mib(config)


def test_a_line_begins_with_that_of_another_case() -> None:
    configs = list(LADDER.configs())
    known: Amounts = ([configs[0], configs[4]], [mib(configs[0]), mib(configs[4])])
    growth = fitted_after_siblings(LADDER, [known, ([], [])], error=0.03, choice_deviation=0.1)
    assert growth is not None
    mean, deviation = growth.expect(configs)
    assert mean == pytest.approx(list(map(mib, configs)), rel=0.05)
    assert (deviation > 0.4 * mean).all()
    assert fitted_after_siblings(LADDER, [([], [])], error=0.03, choice_deviation=0.1) is None


def test_one_measurement_of_the_case_itself_shows_the_factor() -> None:
    for rung in range(6):
        configs = list(LADDER.configs())
        own: Amounts = ([configs[rung]], [heavier(configs[rung])])
        growth = fitted_after_siblings(
            LADDER, [(configs, list(map(mib, configs))), own], error=0.03, choice_deviation=0.1
        )
        assert growth is not None
        mean, deviation = growth.expect(configs)
        expected = np.array(list(map(heavier, configs)))
        assert mean[rung] == pytest.approx(expected[rung], rel=0.03)
        assert (np.abs(mean - expected) <= 2.0 * deviation).all()
        alone = ResourceModel(LADDER, *own, error=0.03, choice_deviation=0.1).expect(configs)
        assert np.abs(mean - expected).max() < np.abs(alone[0] - expected).max()


def test_two_measurements_of_the_case_itself_outweigh_the_other_case() -> None:
    configs = list(LADDER.configs())
    misled: Amounts = (configs, [50_000.0 - value for value in map(mib, configs)])
    own: Amounts = ([configs[1], configs[5]], [heavier(configs[1]), heavier(configs[5])])
    growth = fitted_after_siblings(LADDER, [misled, own], error=0.03, choice_deviation=0.1)
    assert growth is not None
    assert growth.expect(configs)[0] == pytest.approx(list(map(heavier, configs)), rel=0.1)


SCRIPT = Space(
    (
        Parameter(name="batch_size", values=(4, 8, 16, 32, 64, 128)),
        Parameter(name="length", values=(128, 256, 512)),
        Parameter(name="dtype", values=("fp32", "bf16")),
        Parameter(name="compile", values=(0, 1)),
    )
)


def share(config: Config) -> float:
    """Return the memory of a script, as a share of the card: half the bytes halve what grows."""
    bytes_of_each = {"fp32": 1.0, "bf16": 0.5}[str(config["dtype"])]
    return 0.05 + 1e-5 * float(config["batch_size"]) * float(config["length"]) * bytes_of_each


@given(some.lists(some.sampled_from([one for one in SCRIPT.configs() if share(one) < 1.0]), min_size=2, max_size=8))
def test_what_needs_more_of_every_size_is_never_expected_to_need_less(known: list[Config]) -> None:
    growth = ResourceModel(SCRIPT, known, list(map(share, known)), error=0.03, choice_deviation=0.25)
    for small, large in ((16, 32), (8, 128)):
        configs: list[Config] = [
            {"batch_size": size, "length": 256, "dtype": "fp32", "compile": 0} for size in (small, large)
        ]
        means, deviations = growth.logarithms(configs)
        assert means[1] >= means[0]
        assert (deviations > 0.0).all()


def test_what_ran_out_of_memory_lets_nobody_try_the_same_size_with_another_switch() -> None:
    ran: list[Config] = [{"batch_size": 8, "length": 256, "dtype": "fp32", "compile": 0}]
    over: list[Config] = [{"batch_size": 128, "length": 512, "dtype": "fp32", "compile": 0}]
    beside: Config = {**over[0], "compile": 1}
    without = ResourceModel(SCRIPT, ran, [0.2], error=0.03, choice_deviation=0.25).logarithms([beside])[0]
    means, _ = ResourceModel(SCRIPT, ran, [0.2], error=0.03, choice_deviation=0.25, exceeding=over).logarithms([beside])
    assert means[0] > max(without[0] - 1e-6, -0.1)


def test_a_data_type_with_half_the_bytes_is_learnt_from_two_configs() -> None:
    known: list[Config] = [
        {"batch_size": size, "length": 512, "dtype": dtype, "compile": 0}
        for size, dtype in ((8, "fp32"), (64, "fp32"), (64, "bf16"))
    ]
    growth = ResourceModel(SCRIPT, known, list(map(share, known)), error=0.03, choice_deviation=0.25)
    wanted: Config = {"batch_size": 128, "length": 512, "dtype": "bf16", "compile": 0}
    mean, _ = growth.expect([wanted])
    assert mean[0] == pytest.approx(share(wanted), rel=0.15)
