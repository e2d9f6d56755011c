"""Which cases are like which, by their names, and what is read of them."""

from collections.abc import Mapping
from types import MappingProxyType

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState
from tests_space import USUAL

from tuner.search.observed import COST
from tuner.search.sampler import ConfigSampler
from tuner.search.siblings import Sibling, likeness, likest, sibling
from tuner.search.trials import ELIGIBLE, WARM, suggest
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import SearchSpec

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


@pytest.mark.parametrize(
    ("case", "others"),
    [
        ("deepmimic_pi_plus_ppo", ["deepmimic_pi_plus_awr", "add_pi_plus", "amp_pi_plus", "deepmimic_humanoid_awr"]),
        (
            "amp_pi_plus",
            ["add_pi_plus", "deepmimic_pi_plus_ppo", "deepmimic_pi_plus_awr", "amp_humanoid", "amp_location_humanoid"],
        ),
        ("amp_humanoid", ["amp_location_humanoid", "deepmimic_humanoid_awr", "amp_pi_plus"]),
        ("add_g1", ["add_pi_plus"]),
        ("vault_box", []),
    ],
)
def test_the_likest_come_first(case: str, others: list[str]) -> None:
    assert likest(case, CASES) == others


def test_cases_of_one_word_are_like_none() -> None:
    assert likest("walk", ["run", "jump"]) == []


@given(case=NAMES, others=st.lists(NAMES, max_size=8, unique=True))
def test_same_method_and_robot_come_before_same_robot_before_same_method(case: str, others: list[str]) -> None:
    ranked = likest(case, others)
    assert case not in ranked
    assert set(ranked) <= set(others)
    kinds = [rank[0] for other in ranked if (rank := likeness(case, other))]
    assert kinds == sorted(kinds, reverse=True)
    assert all(
        Case(name=other).method == Case(name=case).method
        for other, kind in zip(ranked, kinds, strict=True)
        if kind != 2
    )


@given(case=NAMES, other=NAMES)
def test_likeness_is_mutual_and_nothing_is_liker_than_itself(case: str, other: str) -> None:
    assert likeness(case, other) == likeness(other, case)
    own = likeness(case, case)
    assert own is not None
    assert (likeness(case, other) or (0, 0.0)) <= own


Facts = Mapping[str, object]
NOTHING: Facts = MappingProxyType({})


class Told:
    """A study that is told of configs."""

    def __init__(self) -> None:
        self._sampler = ConfigSampler(USUAL, SearchSpec())
        self.study = optuna.create_study(direction="maximize", sampler=self._sampler)

    def add(self, config: Config, value: float | None, *, may_win: bool = True, facts: Facts = NOTHING) -> None:
        self._sampler.forced = config
        trial = self.study.ask()
        assert suggest(trial, USUAL) == config
        for name, fact in facts.items():
            trial.set_user_attr(name, fact)
        if not may_win:
            trial.set_constraint(ELIGIBLE, 1.0)
        self.study.tell(trial, value, state=TrialState.FAIL if value is None else TrialState.COMPLETE)


def at(rung: int) -> Config:
    return {"num_envs": rung, "agent_variant": "default", "num_workers": 0, "pruner_patience": 3}


def test_the_best_is_eligible_and_cold_where_there_is_such_a_one() -> None:
    told = Told()
    told.add(at(64), 90.0, may_win=False)
    told.add(at(8), None)
    assert sibling("amp_walk", told.study.trials) is None
    told.add(at(16), 80.0, facts={WARM: True})
    told.add(at(8), 75.0, facts={WARM: True})
    assert sibling("amp_walk", told.study.trials) == Sibling(case="amp_walk", best=at(16), costs=[])
    told.add(at(32), 70.0)
    assert sibling("amp_walk", told.study.trials) == Sibling(case="amp_walk", best=at(32), costs=[])


def test_costs_are_those_of_variants_that_the_space_has() -> None:
    told = Told()
    told.add(at(32), 70.0, facts={COST: {"start_s": 9.0}})
    told.add(at(64), 80.0, facts={COST: {"start_s": 12.0, "run_s": 3.0}})
    found = sibling("amp_walk", told.study.trials)
    assert found is not None
    configs, amounts = found.amounts("start_s", USUAL)
    assert [config["num_envs"] for config in configs] == [32, 64]
    assert amounts == [9.0, 12.0]
    assert found.amounts("run_s", USUAL)[1] == [3.0]
    assert found.amounts("start_s", USUAL.restricted_to({"num_envs"})) == ([], [])
