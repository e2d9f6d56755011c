import pytest

from tuner.errors import StudyError
from tuner.study.cases import Case, select

CASES = [
    Case(name="deepmimic_pi_plus_ppo"),
    Case(name="amp_pi_plus"),
    Case(name="view_pi_plus", trainable=False, mode="test", fault="no file env.yaml"),
    Case(name="dof_pi_plus", trainable=False, fault="it names no agent"),
    Case(name="amp_humanoid"),
]


def test_globs_choose_trainable_cases_in_case_order() -> None:
    for patterns, names in [
        (["*"], ["deepmimic_pi_plus_ppo", "amp_pi_plus", "amp_humanoid"]),
        (["amp_*", "*_ppo"], ["deepmimic_pi_plus_ppo", "amp_pi_plus", "amp_humanoid"]),
        (["*pi_plus*.txt"], ["deepmimic_pi_plus_ppo", "amp_pi_plus"]),
        (["amp_pi_plus.txt", "amp_pi_plus", "amp*"], ["amp_pi_plus", "amp_humanoid"]),
        (["amp_[!p]*"], ["amp_humanoid"]),
        (["args/amp_humanoid_args.txt", "deepmimic_pi_plus_ppo_args.txt"], ["deepmimic_pi_plus_ppo", "amp_humanoid"]),
        ([], []),
    ]:
        assert [case.name for case in select(CASES, patterns)] == names


def test_every_pattern_without_a_trainable_case_is_named() -> None:
    with pytest.raises(StudyError) as refusal:
        select(CASES, ["amp_*", "view_*", "AMP_*", "ase.txt", "dof_pi_plus"])
    message = str(refusal.value)
    assert "no trainable case matches 'view_*', 'AMP_*', 'ase.txt', 'dof_pi_plus'" in message
    assert "view_pi_plus is no training (mode test), dof_pi_plus is no training (it names no agent)" in message
    assert "knows deepmimic_pi_plus_ppo, amp_pi_plus, amp_humanoid (" in message


def test_of_many_cases_the_first_are_named() -> None:
    with pytest.raises(StudyError, match=r"knows walk_000, walk_001, .* … \(`tuner cases` lists them\)$") as refusal:
        select([Case(name=f"walk_{number:03}") for number in range(300)], ["run"])
    assert "walk_299" not in str(refusal.value)


def test_a_trainer_without_cases_is_said_so() -> None:
    with pytest.raises(StudyError, match="knows none"):
        select([], ["*"])


@pytest.mark.parametrize(
    ("name", "method", "robot"),
    [("amp_pi_plus", "amp", ("pi", "plus")), ("walk", "walk", ()), ("a-b-v0", "a-b-v0", ())],
)
def test_the_words_of_a_name_say_method_and_robot_where_the_trainer_does_not(
    name: str, method: str, robot: tuple[str, ...]
) -> None:
    case = Case(name=name)
    assert (case.method, case.robot) == (method, robot)


def test_a_trainer_s_own_words_count_whatever_the_name() -> None:
    case = Case(name="Isaac_Velocity_G1", method="velocity", robot=("G1",))
    assert (case.method, case.robot) == ("velocity", ("G1",))
    assert Case(name="Isaac_Velocity_G1", method="velocity").robot == ()
