import math

import pytest
from pydantic import ValidationError

from tuner.study.spec import StudySpec
from tuner.study.study_file import complaints

WHOLE = {"name": "demo", "trainer": {"name": "reference"}, "space": {"num_envs": {"ladder": [8]}}}


def said(**changes: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        StudySpec.model_validate(WHOLE | changes)
    return complaints(caught.value, StudySpec)


def test_an_error_says_what_was_found_and_what_there_may_be() -> None:
    for changes, text in [
        ({"space": {"num_envs": {"laddr": [8]}}}, "space.num_envs.laddr: unknown key; did you mean ladder?"),
        ({"space": {"num_envs": {"x": [8]}}}, "space.num_envs.x: unknown key; known: ladder, min, max, choices"),
        ({"overrides": [{"match": {"case": "a"}}]}, "overrides.0.match.case: unknown key; did you mean cases?"),
        ({"space": {"num_envs": {"ladder": 8}}}, "space.num_envs.ladder: should be a list, such as [a, b] (found 8)"),
        ({"space": {"num_envs": [8]}}, "space.num_envs: should be a mapping of keys to values (found [8])"),
        ({"space": {}}, "space: is empty"),
        (
            {"name": "my study"},
            "name: must be at most 100 letters, digits and - _ . and begin with a letter or digit (found 'my study')",
        ),
        (
            {"devices": "cpu:0"},
            "devices: is none of: auto, auto:CARDS, cpu, cpu:RANKS, or CUDA indices such as 0,1 (found 'cpu:0')",
        ),
        ({"probe": {"max_seconds": math.inf}}, "probe.max_seconds: Input should be a finite number (found inf)"),
        ({"probe": {"sample_seconds": 1e12}}, "probe.sample_seconds: Input should be less than or equal to 60 (found"),
        ({"search": {"trials": "many"}}, "search.trials: should be a whole number (found 'many')"),
        ({"search": {"trials": 2.5}}, "search.trials: should be a whole number (found 2.5)"),
        ({"probe": {"max_seconds": "long"}}, "probe.max_seconds: should be a number (found 'long')"),
        (
            {"space": {"num_envs": {"range": [8, 16, 2]}}},
            "space.num_envs.range: has too many values (found [8, 16, 2])",
        ),
        ({"devices": [0, 1]}, "devices: should be text, not a list; write '0,1' (found [0, 1])"),
        (
            {"objective": ["util", "samples_per_s"]},
            "objective: should be text, not a list; write 'util,samples_per_s' (found ['util', 'samples_per_s'])",
        ),
        ({"search": {"trials": True}}, "search.trials: write a number (found True)"),
    ]:
        assert any(line.startswith(text) for line in said(**changes))


def test_a_name_that_no_variable_can_have_is_refused_in_words() -> None:
    (line,) = said(environment={"variables": {"1ST": "x"}})
    assert line.endswith(": may contain letters, digits and _, and must not begin with a digit (found '1ST')")


def test_a_value_of_a_wrong_kind_is_one_error() -> None:
    space = {"num_envs": {"ladder": [8]}, "amp": {"choices": [None]}}
    assert said(space=space) == [
        "space.amp.choices.0: write a number, a word, true or false; put the word null in quotes (found None)"
    ]


def test_keys_above_come_before_the_path() -> None:
    with pytest.raises(ValidationError) as caught:
        StudySpec.model_validate(WHOLE | {"seed": 1})
    assert complaints(caught.value, StudySpec, "overrides", "2")[0].startswith("overrides.2.seed: unknown key")
