from typing import Any

import pytest
from pydantic import ValidationError

from tuner.study.space import Condition
from tuner.study.spec import ParameterSpec, ProbeSpec, StudySpec

LADDER = {"num_envs": {"ladder": [8, 32, 16]}}


def study(**changes: Any) -> StudySpec:
    return StudySpec.model_validate({"name": "demo", "trainer": {"name": "reference"}, "space": LADDER} | changes)


def refused(*words: str, **changes: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        study(**changes)
    for word in words:
        assert word in str(refusal.value)


def test_a_parameter_has_finitely_many_values() -> None:
    for parameter, values in [
        ({"ladder": [8, 32, 16]}, (8, 16, 32)),
        ({"choices": ["wide", "default"]}, ("wide", "default")),
        ({"choices": [2, 0.5]}, (2, 0.5)),
        ({"choices": [2, 0, 8], "grow": 63}, (2, 0, 8, 16, 32)),
        ({"range": [1, 7], "step": 3}, (1, 4, 7)),
        ({"range": [0, 8], "step": 3}, (0, 3, 6)),
        ({"range": [5, 5]}, (5,)),
        ({"range": ["0.0", "4"]}, (0, 1, 2, 3, 4)),
        ({"range": [0, 0.5], "step": "0.25"}, (0.0, 0.25, 0.5)),
        ({"range": [8, 64], "log": True}, (8, 16, 32, 64)),
        ({"range": [1.0e-4, 0.1], "log": True, "step": 10}, (1e-4, 1e-3, 1e-2, 0.1)),
        ({"range": [0.1, 0.6]}, (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)),
        ({"range": [8, 64], "log": True, "own": 12}, (8, 12, 16, 32, 64)),
        ({"ladder": [8, 32], "own": 20}, (8, 20, 32)),
        ({"choices": [False, True]}, (False, True)),
        ({"choices": [0.5, "auto", True]}, (0.5, "auto", True)),
        ({"ladder": "auto", "max": 200}, (32, 64, 128, 200)),
        ({"ladder": "auto", "min": 7, "max": 7}, (7,)),
    ]:
        assert ParameterSpec.model_validate(parameter).values == values


@pytest.mark.parametrize(
    ("parameter", "word"),
    [
        ({}, "found none"),
        ({"ladder": [8], "choices": [1]}, "found ladder, choices"),
        ({"ladder": []}, "at least 1 item"),
        ({"ladder": [8, 0]}, "ladder.1"),
        ({"ladder": [-8]}, "greater than or equal to 1"),
        ({"ladder": [8, 8]}, "twice"),
        ({"ladder": [1.5]}, "valid integer"),
        ({"ladder": [True]}, r"ladder.0\n.*write a number"),
        ({"range": [False, 3]}, r"range.0\n.*write a number"),
        ({"choices": [1], "when": {"a": {"min": float("inf")}}}, "finite number"),
        ({"choices": []}, "at least 1 item"),
        ({"choices": [2, "auto"], "grow": 8}, "whole numbers, one of them above 0, can grow"),
        ({"choices": [False, True], "grow": 8}, "whole numbers, one of them above 0, can grow"),
        ({"ladder": [2, 4], "grow": 8}, "whole numbers, one of them above 0, can grow"),
        ({"choices": [2, 8], "grow": 8}, "grow 8 is not above the largest choice, 8"),
        ({"choices": ["a", "a"]}, "twice"),
        ({"range": [5, 1]}, "backwards"),
        ({"range": [1, 5], "step": 0}, "step"),
        ({"range": [1]}, "range.1"),
        ({"range": [1, 1_000_000_000]}, "1000000000 values, 1000 at most"),
        ({"choices": [1], "step": 2}, "only a range allows step"),
        ({"choices": [None]}, "write a number, a word, true or false"),
        ({"choices": [1, True]}, "twice"),
        ({"choices": [1], "log": True}, "only a range allows log"),
        ({"ladder": [1], "step": 2, "log": False}, "only a range allows step and log"),
        ({"ladder": [8], "own": 0}, "own 0 is no number"),
        ({"ladder": "auto", "own": 8}, "own 8 is not between 32 and 65536"),
        ({"range": [1, 4], "own": 5}, "own 5 is not between 1 and 4"),
        ({"choices": [1, 4], "own": 4}, "only a ladder or a range allows own"),
        ({"range": [0, 8], "log": True}, "begins above 0, not at 0"),
        ({"range": [1, 8], "log": True, "step": 1}, "is the factor between two values; 1 is not above 1"),
        ({"range": [1, 1e300], "log": True, "step": 1.001}, "values, 1000 at most"),
        ({"range": [0, 1], "step": -0.5}, "greater than 0"),
        ({"range": [0, float("inf")]}, "finite number"),
        ({"choices": [1.0, float("nan")]}, "write a finite number"),
        ({"ladder": [8], "setp": 2}, "setp"),
        ({"ladder": "fast"}, r"ladder\n.*write rungs such as \[256, 512, 1024\], or auto"),
        ({"ladder": 8}, r"ladder\n.*valid tuple"),
        ({"ladder": "auto", "choices": [1]}, "found ladder, choices"),
        ({"ladder": "auto", "max": 20}, "min 32 above its max 20"),
        ({"ladder": "auto", "min": 0}, "min"),
        ({"ladder": "auto", "when": {"a": 1}}, "no `when`"),
        ({"ladder": [8], "max": 64}, "only `ladder: auto` allows max"),
        ({"choices": [8], "min": 1, "max": 2}, "only `ladder: auto` allows min and max"),
        ({"choices": [1], "when": {"num_envs": {"max": 3}}}, "num_envs"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(parameter: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        ParameterSpec.model_validate(parameter)


def test_conditions_take_one_value_several_or_a_minimum() -> None:
    spec = ParameterSpec.model_validate({"choices": [1], "when": {"a": "x", "b": [1, 2], "c": {"min": 1}}})
    assert spec.parameter("p", is_ladder=False).conditions == (
        Condition(parameter="a", values=("x",)),
        Condition(parameter="b", values=(1, 2)),
        Condition(parameter="c", at_least=1),
    )


def test_values_can_be_written_down_in_the_place_of_others() -> None:
    auto = ParameterSpec(ladder="auto", max=4096)
    assert auto.with_values((32, 64)) == ParameterSpec(ladder=(32, 64))
    chosen = ParameterSpec.model_validate({"choices": [8, 4, 16], "when": {"b": {"min": 1}}})
    assert ParameterSpec(range=(0, 2)).with_values((0, 2)) == ParameterSpec(choices=(0, 2))
    assert chosen.with_values((8, 4)) == ParameterSpec.model_validate({"choices": [8, 4], "when": {"b": {"min": 1}}})


def test_parameters_come_after_those_that_their_conditions_name() -> None:
    space = {
        "prefetch_factor": {"choices": [2], "when": {"num_workers": {"min": 1}}},
        "num_workers": {"choices": [0, 2], "when": {"agent_variant": "hiutil"}},
        "agent_variant": {"choices": ["hiutil"]},
        **LADDER,
    }
    assert study(space=space).build_space().names == ("agent_variant", "num_workers", "prefetch_factor", "num_envs")


def test_a_condition_on_an_unknown_parameter_names_both() -> None:
    refused("batch_size", "'variant'", space={**LADDER, "batch_size": {"choices": [1], "when": {"variant": "x"}}})


@pytest.mark.parametrize(
    "names", [("batch_size",), ("batch_size", "num_workers"), ("batch_size", "num_workers", "prefetch_factor")]
)
def test_conditions_in_a_circle_are_named(names: tuple[str, ...]) -> None:
    circle = {name: {"choices": [1], "when": {names[position - 1]: 1}} for position, name in enumerate(names)}
    refused("cycle", *names, space={**LADDER, **circle})


@pytest.mark.parametrize("name", ["num_envs", "batch_size", "n"])
def test_any_parameter_may_have_an_auto_ladder(name: str) -> None:
    space = study(space={"workers": {"choices": [0, 2]}, name: {"ladder": "auto", "max": 128}}).build_space()
    assert (space.ladder, space.rungs, space.auto_bounds) == (name, (32, 64, 128), (32, 128))
    assert space.defaults() == [{"workers": 0, name: rung} for rung in (32, 64, 128)]


def test_num_envs_has_the_ladder_unless_another_parameter_is_given_one() -> None:
    environments, batch = {"choices": [8, 4]}, {"ladder": [64, 32]}
    old = study(space={"num_envs": environments, "batch_size": {"choices": [64, 32]}}).build_space()
    assert (old.ladder, old.rungs, old.values("batch_size")) == ("num_envs", (4, 8), (64, 32))
    now = study(space={"num_envs": environments, "batch_size": batch}).build_space()
    assert (now.ladder, now.rungs, now.values("num_envs")) == ("batch_size", (32, 64), (8, 4))
    assert study(space={"batch_size": {"choices": [64]}}).build_space().ladder is None


def test_one_parameter_of_a_study_has_the_ladder() -> None:
    refused("num_envs and batch_size have a ladder", "`choices`", space={**LADDER, "batch_size": {"ladder": [1]}})
    refused("num_envs", "write `{ladder: auto}`, or choices", space={"num_envs": "auto"})


def test_num_envs_is_no_range() -> None:
    refused("num_envs must be a ladder or choices", space={"num_envs": {"range": [1, 8]}})


def test_num_envs_is_a_whole_number() -> None:
    for rung in ["many", 0, 8.5, -1]:
        refused(f"num_envs: {rung!r} is not a whole number of at least 1", space={"num_envs": {"choices": [8, rung]}})


def test_num_envs_runs_from_small_to_large() -> None:
    assert study(space={"num_envs": {"choices": [8, 2, 4]}}).build_space().values("num_envs") == (2, 4, 8)


@pytest.mark.parametrize("seed", [-1, 1 << 40])
def test_a_seed_is_one_that_every_generator_takes(seed: int) -> None:
    refused("search.seed", search={"seed": seed})


@pytest.mark.parametrize("variables", [{"A=B": "1"}, {"": "1"}])
def test_environment_variables_are_ones_that_a_process_can_have(variables: dict[str, str]) -> None:
    refused("environment.variables", environment={"variables": variables})


def test_a_space_has_parameters() -> None:
    refused("space", "at least 1 item", space={})


def test_devices() -> None:
    for devices in ["auto", "cpu", "cpu:1", "cpu:12", "0", "0,1", "3,10"]:
        assert study(devices=devices).devices == devices


def test_a_number_of_devices_is_so_many_cards_and_auto_in_a_call_keeps_it() -> None:
    two = study(devices=2)
    assert two.devices == "auto:2"
    asked = (None, "auto", "0,1,2", "cpu:2")
    assert [two.devices_for(devices) for devices in asked] == ["auto:2", "auto:2", "0,1,2", "cpu:2"]
    assert study(devices="0,1").devices_for("auto") == "auto"
    kinds = StudySpec.model_json_schema()["properties"]["devices"]["anyOf"]
    assert [kind["type"] for kind in kinds] == ["string", "integer"]
    for devices in (0, -1, True, 1.5):
        refused("devices", devices=devices)


def test_devices_of_another_form_are_refused() -> None:
    for devices in ["", "gpu", "cuda:0", "cpu:", "cpu:0", "cpu:-1", "0,", ",0", "0;1", "0, 1", "-1", "auto,0", "0\n"]:
        refused("devices", devices=devices)


def test_a_study_name_is_a_file_name() -> None:
    for name in ["", "a/b", ".hidden", "with space", "ä"]:
        refused("name", name=name)


def test_each_part_knows_its_keys() -> None:
    for part in ["trainer", "probe", "search", "pruner", "environment"]:
        refused(f"{part}.tirals", **{part: {"name": "none", "tirals": 1}})


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"iterations": 0}, "iterations"),
        ({"iterations": 3, "warmup_iterations": 3}, "leaves none"),
        ({"max_seconds": 0}, "max_seconds"),
        ({"silence_seconds": -1}, "silence_seconds"),
        ({"sample_seconds": float("nan")}, "sample_seconds"),
    ],
)
def test_limits_leave_something_to_measure(limits: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        ProbeSpec.model_validate(limits)


def test_constraints_are_read_as_they_are_written() -> None:
    texts = {"samples_per_s": ">= 0.8 * default", "mem_peak_mib": "<= 20000"}
    spec = study(constraints=texts)
    assert {one.metric: str(one) for one in spec.build_constraints()} == texts
    assert study().build_constraints() == ()


def test_a_constraint_of_another_form_is_refused_with_its_path() -> None:
    for bound in ["0.8 * default", ">= most", 10, {"min": 10}]:
        refused(
            "constraints.headroom_pct", "is not a bound", constraints={"headroom_pct": bound, "power_mean_w": "<= 700"}
        )


def test_default_must_be_searched_where_a_constraint_compares_with_it() -> None:
    space, bound = {**LADDER, "agent_variant": {"choices": ["hiutil"]}}, {"samples_per_s": ">= 0.8 * default"}
    refused("constraints.samples_per_s", "add 'default' to agent_variant", space=space, constraints=bound)
    assert study(space=space, constraints={"samples_per_s": ">= 800"}).constraints
    assert study(constraints=bound).constraints


def test_a_study_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(study(), "name", "other")  # noqa: B010 - a plain assignment fails the type check


def test_rules_are_about_numbers_of_the_space() -> None:
    degrees = {"tp": {"choices": [1, 2]}, "kind": {"choices": ["a", "b"]}}
    assert study(space=degrees, rules=["{ranks} % {tp} == 0", "{kind} == 'a' or {tp} == 1"]).rules
    refused("names pp, which is no parameter", space=degrees, rules=["{pp} == 1"])
    refused("counts with kind, whose value 'a' is no number", space=degrees, rules=["{kind} < 2"])
    refused("is no rule", space=degrees, rules=["{tp} + 1"])
