"""The default of each rung is probed before other configs of the rung, in an in-memory study."""

import pytest
from optuna.trial import TrialState
from tests_search import Searched
from tests_space import USUAL

from tuner.records.schema import MEMORY, RETRY
from tuner.search.strategies import defaults_first, in_order
from tuner.study.space import Config, Space


def at(rung: int, variant: str, **others: int) -> Config:
    rest = {"batch_size": 2} if variant == "hiutil" else {}
    return {"num_envs": rung, "agent_variant": variant, **rest, "num_workers": 0, "pruner_patience": 3} | others


class Search(Searched):
    """A study that probes the given configs in their order."""

    def __init__(self, *configs: Config, space: Space = USUAL) -> None:
        super().__init__(space, defaults_first(in_order(configs), space))

    def probe(self, *, state: TrialState = TrialState.COMPLETE, retry: bool = False, oom: bool = False) -> Config:
        trial, config = self.ask()
        if retry:
            trial.set_user_attr(RETRY, True)
        if oom:
            trial.set_constraint(MEMORY, 1.0)
        self.study.tell(trial, 50.0 if state == TrialState.COMPLETE else None, state=state)
        return config


def test_the_default_of_a_rung_comes_before_all_that_is_compared_with_it() -> None:
    wanted = [at(64, "hiutil"), at(64, "default", num_workers=1, prefetch_factor=2), at(8, "hiutil")]
    search = Search(*wanted)
    asked = [search.probe() for _ in range(5)]
    assert asked == [at(64, "default"), *wanted[:2], at(8, "default"), wanted[2]]
    assert search.ended


def test_a_default_that_differs_in_patience_alone_is_not_probed_again() -> None:
    search = Search(at(64, "default", pruner_patience=2), at(64, "hiutil"))
    assert search.probe() == at(64, "default")
    assert search.probe() == at(64, "hiutil")


def test_a_default_that_runs_elsewhere_is_measured_here_too() -> None:
    search = Search(at(64, "hiutil"))
    search.ask()
    assert search.probe() == at(64, "default")
    assert search.probe() == at(64, "hiutil")


def test_a_default_is_retried_before_others_are_compared_with_it() -> None:
    search = Search(at(64, "hiutil"))
    asked = [search.probe(state=TrialState.FAIL, retry=True), search.probe(), search.probe()]
    assert asked == [at(64, "default"), at(64, "default"), at(64, "hiutil")]


@pytest.mark.parametrize("oom", [True, False])
def test_a_default_that_cannot_be_had_is_not_waited_for(oom: bool) -> None:
    search = Search(at(32, "hiutil"), at(64, "hiutil"))
    assert search.probe(state=TrialState.PRUNED if oom else TrialState.FAIL, oom=oom) == at(32, "default")
    assert search.probe() == at(32, "hiutil")
    assert search.probe() == at(64, "hiutil" if oom else "default")


def test_a_space_without_the_default_variant_is_searched_as_it_is() -> None:
    space = USUAL.restricted_to({"num_envs", "agent_variant"})
    first, second = space.parameters
    hiutil_only = Space((first, type(second)(name=second.name, values=("hiutil",))))
    search = Search({"num_envs": 64, "agent_variant": "hiutil"}, space=hiutil_only)
    assert search.probe() == {"num_envs": 64, "agent_variant": "hiutil"}
