"""Which cases are similar, by their names, and which of their costs count."""

from hypothesis import given
from hypothesis import strategies as st
from tests_space import USUAL

from tuner.search.trials import amounts
from tuner.study.cases import Case, most_similar, search_order, similarity

CASES = [
    "add_g1",
    "add_pi_plus",
    "amp_humanoid",
    "amp_location_humanoid",
    "amp_pi_plus",
    "ase_humanoid_sword_shield",
    "deepmimic_humanoid_awr",
    "deepmimic_pi_plus_ppo",
    "deepmimic_pi_plus_awr",
]
NAMES = st.lists(st.sampled_from(["amp", "add", "pi", "plus", "humanoid", "ppo"]), min_size=1, max_size=4).map("_".join)


def test_the_most_similar_cases_come_first() -> None:
    for case, others in [
        ("deepmimic_pi_plus_ppo", ["deepmimic_pi_plus_awr", "add_pi_plus", "amp_pi_plus", "deepmimic_humanoid_awr"]),
        (
            "amp_pi_plus",
            ["add_pi_plus", "deepmimic_pi_plus_ppo", "deepmimic_pi_plus_awr", "amp_humanoid", "amp_location_humanoid"],
        ),
        ("amp_humanoid", ["amp_location_humanoid", "deepmimic_humanoid_awr", "amp_pi_plus"]),
        ("add_g1", ["add_pi_plus"]),
        ("vault_box", []),
    ]:
        assert most_similar(Case(name=case), [Case(name=name) for name in CASES]) == others


def test_one_case_of_each_robot_and_method_comes_first() -> None:
    ordered = [case.name for case in search_order([Case(name=name) for name in CASES])]
    assert ordered[:4] == ["add_g1", "amp_humanoid", "ase_humanoid_sword_shield", "deepmimic_pi_plus_ppo"]
    assert sorted(ordered) == sorted(CASES)


@given(st.lists(NAMES, max_size=8, unique=True))
def test_each_case_that_is_like_no_earlier_case_comes_before_those_that_are_like_one(names: list[str]) -> None:
    ordered = search_order([Case(name=name) for name in names])
    alike = [any(similarity(case, other) for other in ordered[:place]) for place, case in enumerate(ordered)]
    assert alike == sorted(alike)


def test_cases_of_one_word_are_like_none() -> None:
    assert most_similar(Case(name="walk"), [Case(name="run"), Case(name="jump")]) == []


@given(case=NAMES, others=st.lists(NAMES, max_size=8, unique=True))
def test_same_method_and_robot_come_before_same_robot_before_same_method(case: str, others: list[str]) -> None:
    mine, known = Case(name=case), [Case(name=name) for name in others]
    ranked = most_similar(mine, known)
    assert case not in ranked
    assert set(ranked) <= set(others)
    kinds = [rank[0] for other in ranked if (rank := similarity(mine, Case(name=other)))]
    assert kinds == sorted(kinds, reverse=True)
    assert all(
        Case(name=other).method == Case(name=case).method
        for other, kind in zip(ranked, kinds, strict=True)
        if kind != 2
    )


@given(case=NAMES, other=NAMES)
def test_similarity_is_mutual_and_nothing_is_more_similar_than_itself(case: str, other: str) -> None:
    mine, its = Case(name=case), Case(name=other)
    assert similarity(mine, its) == similarity(its, mine)
    own = similarity(mine, mine)
    assert own is not None
    assert (similarity(mine, its) or (0, 0.0)) <= own


def test_a_trainer_may_say_what_its_cases_are_like_whatever_their_names() -> None:
    rough = Case(name="Isaac-Velocity-Rough-G1-v0", method="velocity", robot=("G1",))
    flat = Case(name="Isaac-Velocity-Flat-G1-v0", method="velocity", robot=("G1",))
    lift = Case(name="Isaac-Lift-Cube-Franka-v0", method="lift", robot=("Franka",))
    assert most_similar(rough, [lift, rough, flat]) == [flat.name]


def test_amounts_are_those_known_of_variants_that_the_space_has() -> None:
    small, large = {"num_envs": 32, "agent_variant": "default"}, {"num_envs": 64, "agent_variant": "hiutil"}
    costs = [(small, {"start_s": 9.0}), (large, {"start_s": 12.0, "run_s": 3.0})]
    assert amounts(costs, "start_s", USUAL) == ([small, large], [9.0, 12.0])
    assert amounts(costs, "run_s", USUAL) == ([large], [3.0])
    assert amounts(costs, "start_s", USUAL.restricted_to({"num_envs"})) == ([], [])
