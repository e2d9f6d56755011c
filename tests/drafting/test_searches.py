import shlex

import pytest

from tuner.drafting.searches import Known, searches
from tuner.errors import StudyError

COMMAND = shlex.split("train.py --num_envs 64 --batch-size=32 --num-workers 0 --lr 0.1 --opt adam --headless")


@pytest.mark.parametrize(
    ("asked", "parameter", "values", "typed"),
    [
        ("num_envs=16..100", "num_envs", (16, 32, 64, 100), 64),
        ("--num-workers=0,2,4", "num_workers", (0, 2, 4), 0),
        ("batch_size", "batch_size", (16, 32, 64, 128, 256), 32),
        ("lr=0.1,0.01", "lr", (0.1, 0.01), 0.1),
        ("opt=adam,sgd", "opt", ("adam", "sgd"), "adam"),
        ("prefetch-factor=2,4", "prefetch_factor", (2, 4), None),
        ("amp=true,false", "amp", (False, True), False),
        ("headless=on,off", "headless", (False, True), True),
    ],
)
def test_a_search_is_read(asked: str, parameter: str, values: tuple[object, ...], typed: object) -> None:
    (found,) = searches(Known(words=COMMAND, cores=4), [asked])
    assert (found.parameter, found.values, found.typed) == (parameter, values, typed)


def test_usual_flags_of_a_command_are_searched_around_their_values() -> None:
    found = {one.parameter: one.values for one in searches(COMMAND, [], 4)}
    assert found == {
        "num_envs": (16, 32, 64, 128, 256, 512, 1024),
        "batch_size": (16, 32, 64, 128, 256),
        "num_workers": (0, 2, 4),
    }


def test_the_typed_value_is_the_default() -> None:
    (found,) = searches(["train", "--batch_size", "64"], ["batch_size=32,64,128"], 1)
    assert found.ordered == (64, 32, 128)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["=3"], "write FLAG=8,16,32"),
        (["num_envs=,"], "write FLAG=8,16,32"),
        (["lr=0.1..0.5"], "whole numbers"),
        (["num_envs=64..8"], "smaller bound first"),
        (["opt"], "has no number"),
        (["momentum"], "has no number"),
        (["num_envs=8", "num-envs=16"], "more than once"),
    ],
)
def test_a_search_of_another_form_is_refused(asked: list[str], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        searches(Known(words=COMMAND, cores=4), asked)


def test_a_command_without_usual_flags_needs_a_search() -> None:
    with pytest.raises(StudyError, match=r"name at least one, such as --search seed=3,6 .*: seed=3\)$"):
        searches(["train.py", "--seed", "3"], [], 4)
    with pytest.raises(StudyError, match=r'32\.\.512.*none\); values in a\.yaml: see "A config file" in docs/trainers'):
        searches(["train.py", "--config", "a.yaml"], [], 4)


def test_short_flags_of_batch_and_workers_are_usual() -> None:
    found = {one.parameter: one.changes_learning for one in searches(["train.py", "-b", "32", "-j", "0"], [], 4)}
    assert found == {"b": True, "j": False}


def test_another_batch_is_usual_where_the_command_has_no_usual_flag() -> None:
    words = ["train.py", "--frames-per-batch", "256", "--num_batches", "3", "--eval_batch", "8"]
    assert [one.parameter for one in searches(words, [], 4)] == ["frames_per_batch"]
    assert [one.parameter for one in searches([*words, "--b", "4"], [], 4)] == ["b"]


def test_a_typed_placeholder_has_no_value_of_its_own() -> None:
    (found,) = searches(["train.py", "--batch-size={batch_size}"], ["batch_size=32,64"], 4)
    assert (found.typed, found.first) == (None, 32)
