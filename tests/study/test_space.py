import itertools
import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests_space import USUAL

from tuner.study.parameter import ParameterSpec
from tuner.study.space import LADDER, VARIANT, Condition, Config, Parameter, Space, config_digest, described, doublings
from tuner.study.spec import StudySpec

configs = st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False) | st.text(max_size=5))

numbers = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).map(tuple)
words = st.lists(st.sampled_from(("hiutil", "default", "wide")), min_size=1, unique=True).map(tuple)


@st.composite
def parameters(draw: st.DrawFn, name: str, earlier: list[Parameter], *, conditional: bool) -> Parameter:
    values = draw(words if name == VARIANT else numbers)
    named = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier and conditional else []
    return Parameter(
        name=name,
        values=tuple(sorted(values)) if name == LADDER else values,
        conditions=tuple(
            Condition(parameter=one.name, values=tuple(draw(st.lists(st.sampled_from(one.values), min_size=1))))
            if draw(st.booleans())
            else Condition(parameter=one.name, at_least=draw(st.integers(0, 64)))
            for one in named
        ),
    )


@st.composite
def spaces(draw: st.DrawFn, *, seeded_conditions: bool = True) -> Space:
    """Return a space of up to five parameters. `seeded_conditions`: whether rungs and variants may be conditional."""
    names = draw(st.permutations((LADDER, VARIANT, "batch_size", "num_workers", "prefetch_factor")))
    ordered: list[Parameter] = []
    for name in names[: draw(st.integers(1, len(names)))]:
        conditional = seeded_conditions or name not in (LADDER, VARIANT)
        ordered.append(draw(parameters(name, ordered, conditional=conditional)))
    return Space(tuple(ordered))


def every_assignment(space: Space) -> list[Config]:
    """Yield each way to set any of the parameters to one of their values."""
    choices = [[None, *parameter.values] for parameter in space.parameters]
    return [
        {name: value for name, value in zip(space.names, chosen, strict=True) if value is not None}
        for chosen in itertools.product(*choices)
    ]


def test_what_lies_between_two_rungs_goes_to_the_nearer_in_proportion() -> None:
    parameter = Parameter(name=LADDER, values=(32, 64, 512), bounds=(32, 65536))
    nearest = [parameter.nearest(number) for number in (32, 44, 47, 180, 182, 65536)]
    assert nearest == [32, 32, 64, 64, 512, 512]


def test_rungs_that_are_made_later_leave_a_space_the_same_to_a_study() -> None:
    auto = Space((Parameter(name=LADDER, values=(32, 64), bounds=(32, 65536)), *USUAL.parameters[1:]))
    made = auto.with_rungs((32, 48))
    assert (made.values(LADDER), made.parameters[1:]) == ((32, 48), auto.parameters[1:])
    assert described(made) == described(auto) != described(USUAL)


@given(spaces(), st.integers(1, 70))
def test_a_written_ladder_without_its_largest_rungs_has_the_configs_of_the_others(space: Space, most: int) -> None:
    kept = [config for config in space.configs() if int(config.get(LADDER, 0)) <= most]
    assert list(space.up_to(most).configs()) == kept
    assert space.up_to(64) == space


def test_what_is_no_number_is_no_rung_above_another() -> None:
    space = Space((Parameter(name=LADDER, values=(64, "many", 8)),))
    assert space.up_to(8).values(LADDER) == ("many", 8)


@given(st.lists(st.integers(1, 70000), min_size=3, max_size=3).map(sorted))
def test_an_auto_ladder_ends_where_it_must(bounds: list[int]) -> None:
    def auto(first: int, last: int) -> Space:
        return Space(
            (Parameter(name=LADDER, values=doublings(first, last), bounds=(first, last)), *USUAL.parameters[1:])
        )

    first, most, last = bounds
    assert auto(first, last).up_to(most) == auto(first, most)
    assert auto(first, most).up_to(last) == auto(first, most)


def test_rungs_that_were_made_end_there_too_and_nothing_is_added_below() -> None:
    made = Space((Parameter(name=LADDER, values=(32, 512, 704, 2048), bounds=(32, 65536)),))
    assert [(made.up_to(most).values(LADDER), made.up_to(most).auto_bounds) for most in (6250, 1000, 704)] == [
        ((32, 512, 704, 2048), (32, 6250)),
        ((32, 512, 704, 1000), (32, 1000)),
        ((32, 512, 704), (32, 704)),
    ]


def test_a_config_of_another_case_moves_to_the_nearest_rung_of_an_auto_ladder() -> None:
    auto = Space((Parameter(name=LADDER, values=(32, 64), bounds=(32, 65536)),))
    assert [auto.nearest({LADDER: rung}) for rung in (40, 64, 60000)] == [{LADDER: 32}, {LADDER: 64}, {LADDER: 64}]
    written = Space((Parameter(name=LADDER, values=(32, 64)),))
    assert written.nearest({LADDER: 40}) == {LADDER: 40}


@given(spaces())
def test_configs_are_exactly_what_is_in_the_space(space: Space) -> None:
    walked = list(space.configs())
    assert all(config in space for config in walked)
    assert [config for config in every_assignment(space) if config in space and config not in walked] == []
    assert len({config_digest(config) for config in walked}) == len(walked)


@given(spaces(), st.data())
def test_a_space_has_the_configs_that_it_holds_whatever_is_made_of_it(space: Space, data: st.DataObject) -> None:
    held = data.draw(st.lists(st.sampled_from(list(space.configs())), unique_by=config_digest))
    part = replace(space, holds=lambda config: config in held)
    assert [config for config in space.configs() if config in part] == list(part.configs())
    assert sorted(map(config_digest, part.configs())) == sorted(map(config_digest, held))
    for made in (part.up_to(64), part.restricted_to(part.names)):
        assert list(made.configs()) == list(part.configs())
    rungs = [int(rung) for rung in part.values(LADDER)]
    assert list(part.with_rungs(rungs).configs()) == list(part.configs())


@given(spaces(), st.data())
def test_what_is_drawn_is_in_the_space(space: Space, data: st.DataObject) -> None:
    drawn = space.config_of(lambda parameter: data.draw(st.sampled_from(parameter.values)))
    assert drawn in space
    assert drawn in list(space.configs())


@given(spaces(), st.data())
def test_more_or_less_than_a_config_is_not_in_the_space(space: Space, data: st.DataObject) -> None:
    config = data.draw(st.sampled_from(list(space.configs())))
    assert {**config, "depth": 1} not in space
    for name in config:
        assert {**config, name: "none of its values"} not in space
        assert {other: value for other, value in config.items() if other != name} not in space


def test_the_usual_space_has_as_many_configs_as_its_choices_multiply_to() -> None:
    assert len(list(USUAL.configs())) == 4 * 3 * 5 * 2
    first = {"num_envs": 8, "agent_variant": "hiutil", "batch_size": 2, "num_workers": 0, "pruner_patience": 3}
    assert next(USUAL.configs()) == first


@given(spaces(), st.data())
def test_a_restricted_space_stands_by_itself(space: Space, data: st.DataObject) -> None:
    accepted = data.draw(st.sets(st.sampled_from((*space.names, "depth"))))
    restricted = space.restricted_to(accepted)
    assert set(restricted.names) <= accepted
    assert [name for name in space.names if name in restricted.names] == list(restricted.names)
    for parameter in restricted.parameters:
        assert {condition.parameter for condition in parameter.conditions} <= set(restricted.names)
    assert restricted.restricted_to(accepted) == restricted
    assert space.restricted_to(space.names) == space


def test_a_parameter_goes_with_the_one_it_hangs_on() -> None:
    assert USUAL.restricted_to({LADDER, VARIANT, "batch_size", "prefetch_factor"}).names == (
        LADDER,
        VARIANT,
        "batch_size",
    )


@given(spaces(), st.integers(1, 6))
def test_seeds_are_distinct_configs_of_the_space(space: Space, per_variant: int) -> None:
    seeds = space.start_configs(per_variant)
    assert seeds
    assert all(seed in space for seed in seeds)
    assert [seed for position, seed in enumerate(seeds) if seed in seeds[:position]] == []
    assert len(seeds) <= per_variant * max(1, len(space.values(VARIANT)))


@given(spaces(seeded_conditions=False), st.integers(1, 6))
def test_seeds_start_with_the_largest_rungs_then_the_smallest(space: Space, per_variant: int) -> None:
    rungs, variants = space.values(LADDER), space.values(VARIANT)
    ends = list(dict.fromkeys((rungs[-1], rungs[0])))[:per_variant] if rungs else [None]
    expected = [(rung, variant) for rung in ends for variant in (variants or (None,))]
    seeds = [(seed.get(LADDER), seed.get(VARIANT)) for seed in space.start_configs(per_variant)]
    assert seeds[: len(expected)] == expected
    for variant in variants:
        assert len([seed for seed in seeds if seed[1] == variant]) == (min(per_variant, len(rungs)) if rungs else 1)


def test_seeds_halve_the_widest_gap_of_a_ladder() -> None:
    ladder = Space((Parameter(name=LADDER, values=tuple(range(1, 10))), Parameter(name="batch_size", values=(2, 1))))
    assert [seed[LADDER] for seed in ladder.start_configs(5)] == [9, 1, 5, 7, 3]
    assert {seed["batch_size"] for seed in ladder.start_configs(5)} == {2}


def test_the_users_own_config_has_the_first_choices_and_comes_before_all_seeds() -> None:
    listed = {"num_envs": (16, 4, 8, 32), "workers": (2, 0, 4)}
    parameters = [
        ParameterSpec(choices=values).parameter(name, is_ladder=name == "num_envs") for name, values in listed.items()
    ]
    space = Space(tuple(parameters))
    assert space.rungs == (4, 8, 16, 32)
    assert space.own == space.start_configs(4)[0] == {"num_envs": 16, "workers": 2}
    assert len(space.start_configs(4)) == 4
    ladder = ParameterSpec(ladder=(16, 4)).parameter("num_envs", is_ladder=True)
    assert Space((ladder, parameters[1])).own is None
    assert Space(tuple(parameters), holds=lambda config: config["workers"] == 4).own is None


def test_the_default_of_a_rung_is_its_default_variant_with_first_values() -> None:
    default = USUAL.default_at(16)
    assert default == {LADDER: 16, VARIANT: "default", "num_workers": 0, "pruner_patience": 3}
    assert [config[LADDER] for config in USUAL.defaults()] == [8, 16, 32, 64]
    assert all(config in USUAL for config in USUAL.defaults())


def test_a_space_without_rungs_or_variants_still_has_a_default() -> None:
    assert Space((Parameter(name="num_workers", values=(2, 0)),)).defaults() == [{"num_workers": 2}]


@given(configs)
def test_a_digest_does_not_depend_on_the_order(config: Config) -> None:
    assert config_digest(dict(reversed(config.items()))) == config_digest(config)
    assert len(config_digest(config)) == 12


def test_conditions() -> None:
    for condition, config, holds in [
        (Condition(parameter="a", values=(1, 2)), {"a": 2}, True),
        (Condition(parameter="a", values=(1, 2)), {"a": 3}, False),
        (Condition(parameter="a", values=(1, 2)), {}, False),
        (Condition(parameter="a", at_least=1), {"a": 1}, True),
        (Condition(parameter="a", at_least=1), {"a": 0}, False),
        (Condition(parameter="a", at_least=0), {}, False),
        (Condition(parameter="a", at_least=0), {"a": "many"}, False),
    ]:
        assert condition.holds(config) is holds


@given(spaces())
def test_a_description_survives_json_and_contains_values_and_conditions(space: Space) -> None:
    found = described(space)
    assert json.loads(json.dumps(found)) == found
    assert list(found) == list(space.names)


def test_spaces_that_differ_are_described_differently() -> None:
    def one(*values: int, at_least: float) -> dict[str, object]:
        workers = Parameter(name="num_workers", values=(0, 1))
        condition = Condition(parameter="num_workers", at_least=at_least)
        return described(Space((workers, Parameter(name="prefetch_factor", values=values, conditions=(condition,)))))

    assert one(2, 4, at_least=1) == one(2, 4, at_least=1)
    assert one(2, 4, at_least=1) != one(2, 8, at_least=1)
    assert one(2, 4, at_least=1) != one(2, 4, at_least=0)


def test_a_parameter_whose_condition_no_value_meets_is_idle() -> None:
    met, unmet = (Condition(parameter="a", at_least=least) for least in (2, 3))
    space = Space(
        (
            Parameter(name="a", values=(1, 2)),
            Parameter(name="b", values=(1,), conditions=(met,)),
            Parameter(name="c", values=(1,), conditions=(met, unmet)),
        )
    )
    assert space.without_effect == {"c": unmet}
    assert (str(unmet), str(Condition(parameter="a", values=(1, "x")))) == ("a of 3 or more", "a=1 or x")


def test_rungs_yet_to_be_made_may_meet_any_condition() -> None:
    wanted = Condition(parameter=LADDER, values=(48,))
    epochs = Parameter(name="update_epochs", values=(1,), conditions=(wanted,))
    ladder = Parameter(name=LADDER, values=(32, 64))
    assert Space((ladder, epochs)).without_effect == {"update_epochs": wanted}
    assert Space((replace(ladder, bounds=(32, 64)), epochs)).without_effect == {}


def test_a_config_of_another_space_keeps_what_both_have_and_takes_own_values_for_the_rest() -> None:
    space = StudySpec.model_validate(
        {
            "name": "demo",
            "trainer": {"name": "command", "options": {"command": "train"}},
            "space": {"workers": {"choices": [4, 0, 8]}, "fused": {"choices": [False, True]}},
        }
    ).build_space()
    assert space.nearest({"workers": 8, "compile": True}) == {"workers": 8, "fused": False}
    assert space.nearest({"compile": True}) == {"workers": 4, "fused": False}
    assert space.nearest({"workers": 3}) not in space
