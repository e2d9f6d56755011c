"""Which configs probably fail for another reason than memory, and which choice is to blame."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tuner.search.gain.costs import causes
from tuner.search.gain.failing import chance_to_run
from tuner.search.gain.pool import Levels
from tuner.study.space import Config, Parameter, Space

SPACE = Space(
    (
        Parameter(name="batch_size", values=(8, 16, 32, 64, 128)),
        Parameter(name="dtype", values=("fp32", "bf16", "fp16")),
        Parameter(name="compile", values=(0, 1)),
        Parameter(name="fused", values=(0, 1)),
    )
)
CONFIGS = list(SPACE.configs())
LEVELS = Levels(SPACE)
ALL = LEVELS.codes(CONFIGS)


def chances(ran: list[Config], failed: list[Config], otherwise: float = 0.001) -> list[float]:
    unexplained = np.full(len(failed), otherwise)
    return chance_to_run(LEVELS, LEVELS.codes(ran), LEVELS.codes(failed), unexplained, ALL).tolist()


def chance(config: Config, ran: list[Config], failed: list[Config], otherwise: float = 0.001) -> float:
    return chances(ran, failed, otherwise)[CONFIGS.index(config)]


def test_while_nothing_failed_everything_runs() -> None:
    assert set(chances(CONFIGS[:3], [])) == {1.0}


@given(some.sets(some.sampled_from(range(len(CONFIGS))), min_size=8, max_size=24))
def test_a_choice_that_always_failed_is_named_and_is_unlikely_to_run_anywhere(places: set[int]) -> None:
    probed = [CONFIGS[place] for place in sorted(places)]
    failed = [config for config in probed if config["compile"] == 1]
    ran = [config for config in probed if config["compile"] == 0]
    named = causes(ran, failed)
    twins = [config for config in failed if {**config, "compile": 0} in ran]
    assert (("compile", 1) in named) is (len(failed) >= 2 and bool(twins))
    if ("compile", 1) in named:
        runs = dict(zip(map(str, CONFIGS), chances(ran, failed), strict=True))
        with_it, without = ([runs[str(one)] for one in CONFIGS if one["compile"] == value] for value in (1, 0))
        assert sum(with_it) / len(with_it) < 0.5 < sum(without) / len(without)


@given(some.sets(some.sampled_from(range(len(CONFIGS))), min_size=1, max_size=20))
def test_nothing_that_has_run_is_named(places: set[int]) -> None:
    ran, failed = CONFIGS[::3], [CONFIGS[place] for place in sorted(places)]
    assert not causes(ran, failed)
    assert all(0.0 <= chance <= 1.0 for chance in chances(ran, failed))


def test_a_choice_that_only_fails_beside_another_one_is_not_named_for_two_failures() -> None:
    """The other choices of the failed configs are as likely the cause while no config ran that differs in one alone."""
    first: Config = {"batch_size": 8, "dtype": "bf16", "compile": 1, "fused": 0}
    second: Config = {"batch_size": 16, "dtype": "bf16", "compile": 1, "fused": 1}
    ran: Config = {"batch_size": 8, "dtype": "fp32", "compile": 0, "fused": 0}
    assert causes([ran], [first, second]) == []
    assert causes([ran, {**first, "compile": 0}], [first, second]) == [("compile", 1)]


PLAIN: Config = {"batch_size": 8, "dtype": "fp32", "compile": 0, "fused": 0}
COMPILED: Config = {**PLAIN, "compile": 1}
FUSED: Config = {**PLAIN, "fused": 1}
BOTH: Config = {**PLAIN, "compile": 1, "fused": 1}


def test_after_one_failure_of_two_switches_that_run_alone_only_their_pair_is_suspected() -> None:
    ran = [config for config in CONFIGS if config["compile"] != config["fused"]]
    elsewhere: Config = {**BOTH, "batch_size": 64, "dtype": "bf16"}
    assert chance(elsewhere, ran, [BOTH]) < 0.3
    assert chance(COMPILED, ran, [BOTH]) == chance(FUSED, ran, [BOTH]) == pytest.approx(1.0)


def test_what_has_all_that_failed_configs_share_fails_before_it_is_known_which_part_is_the_cause() -> None:
    failed: list[Config] = [{**BOTH, "dtype": "bf16"}, {**BOTH, "dtype": "fp16"}]
    assert chance(BOTH, [], failed) < 0.1 < chance(COMPILED, [PLAIN], failed) < chance(PLAIN, [FUSED], failed)


def test_numbers_beyond_one_that_failed_beside_a_switch_are_suspected_beside_it_alone() -> None:
    ran: list[Config] = [COMPILED, *({**PLAIN, "batch_size": size} for size in (16, 32, 64, 128))]
    failed: list[Config] = [{**COMPILED, "batch_size": size} for size in (32, 64)]
    larger: Config = {**COMPILED, "batch_size": 128}
    assert chance(larger, ran, failed) < 0.3
    assert chance({**larger, "compile": 0}, ran, failed) > 0.9


def test_a_failure_that_is_explained_otherwise_says_less() -> None:
    ran = [config for config in CONFIGS if config["compile"] != config["fused"]]
    by_pair, by_size = (chance({**BOTH, "dtype": "bf16"}, ran, [BOTH], otherwise) for otherwise in (0.001, 0.8))
    assert by_pair < 0.3
    assert by_size > 0.7


@given(some.sets(some.sampled_from(range(len(CONFIGS))), min_size=1, max_size=20))
def test_nothing_that_has_run_is_suspected(places: set[int]) -> None:
    ran, failed = CONFIGS[::3], [CONFIGS[place] for place in sorted(places)]
    of_configs = chances(ran, failed)
    assert of_configs[::3] == pytest.approx([1.0] * len(ran))
    assert all(0.0 < of_config <= 1.0 + 1e-9 for of_config in of_configs)
