"""Which configs probably fail for another reason than memory, and which choice is to blame."""

from hypothesis import given
from hypothesis import strategies as some

from tuner.search.gain.outlook import chance_by_nearness, factor_by_suspects, failing_settings
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


def chances(ran: list[Config], failed: list[Config]) -> list[float]:
    return chance_by_nearness(LEVELS, LEVELS.codes(ran), LEVELS.codes(failed), ALL).tolist()


def test_while_nothing_failed_everything_runs() -> None:
    assert set(chances(CONFIGS[:3], [])) == {1.0}


@given(some.sets(some.sampled_from(range(len(CONFIGS))), min_size=8, max_size=24))
def test_a_choice_that_always_failed_is_named_and_is_unlikely_to_run_anywhere(places: set[int]) -> None:
    probed = [CONFIGS[place] for place in sorted(places)]
    failed = [config for config in probed if config["compile"] == 1]
    ran = [config for config in probed if config["compile"] == 0]
    named = failing_settings(ran, failed)
    twins = [config for config in failed if {**config, "compile": 0} in ran]
    assert (("compile", 1) in named) is (len(failed) >= 2 and bool(twins))
    if ("compile", 1) in named:
        runs = dict(zip(map(str, CONFIGS), chances(ran, failed), strict=True))
        with_it, without = ([runs[str(one)] for one in CONFIGS if one["compile"] == value] for value in (1, 0))
        assert sum(with_it) / len(with_it) < 0.5 < sum(without) / len(without)


@given(some.sets(some.sampled_from(range(len(CONFIGS))), min_size=1, max_size=20))
def test_nothing_that_has_run_is_named(places: set[int]) -> None:
    ran, failed = CONFIGS[::3], [CONFIGS[place] for place in sorted(places)]
    assert not failing_settings(ran, failed)
    assert all(0.0 <= chance <= 1.0 for chance in chances(ran, failed))


def test_a_choice_that_only_fails_beside_another_one_is_not_named_for_two_failures() -> None:
    """The other choices of the failed configs are as likely the cause while no config ran that differs in one alone."""
    first: Config = {"batch_size": 8, "dtype": "bf16", "compile": 1, "fused": 0}
    second: Config = {"batch_size": 16, "dtype": "bf16", "compile": 1, "fused": 1}
    ran: Config = {"batch_size": 8, "dtype": "fp32", "compile": 0, "fused": 0}
    assert failing_settings([ran], [first, second]) == []
    assert failing_settings([ran, {**first, "compile": 0}], [first, second]) == [("compile", 1)]


def test_a_pair_that_always_failed_falls_with_each_failure_and_its_values_alone_do_not() -> None:
    failed = [config for config in CONFIGS if config["compile"] == 1 and config["fused"] == 1]
    ran = [config for config in CONFIGS if config["compile"] != config["fused"]]
    both = ALL[[CONFIGS.index(failed[0]), CONFIGS.index(ran[0]), CONFIGS.index({**ran[0], "compile": 0, "fused": 0})]]
    factors = [factor_by_suspects(LEVELS.codes(ran), LEVELS.codes(failed[:count]), both) for count in (0, 1, 2, 6)]
    assert [factor[0] for factor in factors[:2]] == [1.0, 1.0]
    assert factors[3][0] < 0.01 < factors[2][0] < 1.0
    assert all(factor[1:].tolist() == [1.0, 1.0] for factor in factors)


@given(some.sets(some.sampled_from(range(len(CONFIGS))), min_size=1, max_size=20))
def test_nothing_that_has_run_is_suspected(places: set[int]) -> None:
    ran, failed = CONFIGS[::3], [CONFIGS[place] for place in sorted(places)]
    factors = factor_by_suspects(LEVELS.codes(ran), LEVELS.codes(failed), ALL)
    assert (factors[::3] == 1.0).all()
    assert ((factors > 0.0) & (factors <= 1.0)).all()
