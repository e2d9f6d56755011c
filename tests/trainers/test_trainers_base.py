from pathlib import Path

import pytest

from tuner.errors import TrainerError
from tuner.study.cases import Case
from tuner.study.spec import TrainerSpec
from tuner.trainers.base import LadderEnd, check_trainer
from tuner.trainers.mimickit import MimicKitTrainer
from tuner.trainers.registry import TRAINERS, declined_parameters, open_trainer

SPECS = {
    "mimickit": TrainerSpec(name="mimickit", root=str(Path(__file__).parents[1] / "data" / "mimickit")),
    "command": TrainerSpec(name="command", options={"command": "train {num_envs} {lr}"}),
    "reference": TrainerSpec(name="reference"),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_each_trainer_opens_under_its_own_name(name):
    assert open_trainer(SPECS[name]).name == name


def test_an_unknown_trainer_lists_the_known_ones():
    with pytest.raises(TrainerError, match="no trainer is called 'mimikit'; known: mimickit, command, reference"):
        open_trainer(TrainerSpec(name="mimikit"))


def test_parameters_that_a_trainer_does_not_vary_have_a_reason():
    names = ["num_workers", "num_envs", "pruner_patience", "agent_variant", "prefetch_factor"]

    reasons = declined_parameters(open_trainer(SPECS["mimickit"]), names)

    assert reasons == dict.fromkeys(["num_workers", "prefetch_factor"], "mimickit has no DataLoader")


def test_a_parameter_that_no_trainer_has_is_refused():
    with pytest.raises(
        TrainerError, match=r"mimickit has no parameter num_env, lr; it takes agent_variant, .*num_envs"
    ):
        declined_parameters(open_trainer(SPECS["mimickit"]), ["num_envs", "num_env", "lr"])


def test_a_placeholder_must_be_a_parameter_of_the_study_or_a_standard_one():
    command = open_trainer(SPECS["command"])

    assert declined_parameters(command, ["lr", "batch_size"]) == {
        "batch_size": "the command has no {batch_size} placeholder"
    }
    with pytest.raises(
        TrainerError,
        match=r"asks for lr, which is no parameter .*: num_envs, agent_variant, .*port, python, ranks",
    ):
        declined_parameters(command, ["num_envs"])


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_says_what_changes_learning(name):
    accepted = open_trainer(SPECS[name]).accepts

    changing = {"agent_variant", "update_epochs", "batch_size"}
    assert open_trainer(SPECS[name]).learning == accepted & changing


@pytest.mark.parametrize("name", ["command", "reference"])
def test_most_trainers_know_of_no_end_of_a_ladder(name):
    assert open_trainer(SPECS[name]).ladder_end(Case(name="walk")) is None


@pytest.mark.parametrize(
    ("ends", "promise"),
    [
        ([LadderEnd(num_envs=0, reason="small")], "does not end below 1 environment"),
        ([LadderEnd(num_envs=8, reason="")], "has a reason"),
        ([LadderEnd(num_envs=8, reason="small"), None], "`ladder_end` always returns the same"),
    ],
)
def test_the_end_of_a_ladder_is_checked(tmp_path, ends, promise):
    answers = [*ends, *ends[-1:]]

    class WithAnEnd(MimicKitTrainer):
        def ladder_end(self, case):
            return answers.pop(0)

    with pytest.raises(AssertionError, match=promise):
        check_trainer(WithAnEnd(SPECS["mimickit"]), case="amp_toy", configs=[], out_dir=tmp_path)
