"""The siblings' best configs come first, in an in-memory study, and their measurements save probes."""

from functools import cache
from typing import Literal

import optuna
import pytest
from optuna.trial import TrialState
from tests_search import Searched
from tests_space import USUAL

from tuner.records.schema import COST, ERROR, MEMORY, ORIGIN, RETRY
from tuner.records.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.choosing import Done, History, Strategy, one_start
from tuner.search.gain.chooser import Gain, by_gain
from tuner.search.strategies import by_drawing, defaults_first
from tuner.search.trials import Sibling
from tuner.store.opening import as_sibling
from tuner.study.space import Config, Parameter, Space
from tuner.study.spec import SearchSpec


def at(rung: int, variant: str = "default", **others: int) -> Config:
    rest = {"batch_size": 2} if variant == "hiutil" else {}
    return {"num_envs": rung, "agent_variant": variant, **rest, "num_workers": 0, "pruner_patience": 3} | others


def siblings(**best: Config) -> list[Sibling]:
    return [Sibling(case=case, best=config) for case, config in best.items()]


class Search(Searched):
    """A study that begins with the best configs of other cases."""

    def probe(self, count: int) -> list[Config]:
        asked = []
        for _ in range(count):
            trial, config = self.ask()
            self.study.tell(trial, 50.0)
            asked.append(config)
        return asked


def seeded(kind: Literal["tpe", "random"] = "tpe", **best: Config) -> Strategy:
    return by_drawing(USUAL, SearchSpec(seeds_per_variant=2, sampler=kind), siblings(**best))


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_the_siblings_best_come_before_the_seeds_and_nothing_twice(kind: Literal["tpe", "random"]) -> None:
    seeds = USUAL.start_configs(2)
    firsts = [at(16, "hiutil"), seeds[1]]
    search = Search(USUAL, seeded(kind, amp_a=firsts[0], add_b=firsts[1]))
    asked = search.probe(20)
    assert asked[:5] == [*firsts, seeds[0], *seeds[2:]]
    assert len({tuple(config.items()) for config in asked}) == 20
    assert [trial.user_attrs.get(ORIGIN) for trial in search.study.trials[:3]] == ["amp_a", "add_b", None]


def test_gain_begins_with_them_too() -> None:
    strategy = by_gain(USUAL, Gain(USUAL), siblings(amp_a=at(32), add_b=at(16)))
    assert Search(USUAL, strategy).probe(2) == [at(32), at(16)]


def test_what_is_not_in_the_space_is_skipped() -> None:
    search = Search(USUAL, seeded(amp_a=at(128), amp_b={"num_envs": 48}, amp_c=at(32)))
    assert search.probe(2) == [at(32), USUAL.start_configs(2)[0]]


def test_equal_launches_are_probed_once() -> None:
    search = Search(USUAL, seeded(amp_a=at(32), amp_b=at(32, pruner_patience=2), amp_c=at(16)))
    assert search.probe(3) == [at(32), at(16), USUAL.start_configs(2)[0]]


def test_what_cannot_fit_any_more_is_skipped() -> None:
    search = Search(USUAL, seeded(amp_a=at(32), amp_b=at(64), amp_c=at(16)))
    trial, _ = search.ask()
    trial.set_constraint(MEMORY, 1.0)
    search.study.tell(trial, state=TrialState.PRUNED)
    assert search.probe(1) == [at(16)]


def test_a_resumed_search_repeats_none_and_a_sibling_has_one_turn() -> None:
    search = Search(USUAL, seeded(amp_a=at(32), amp_b=at(16)))
    assert search.probe(1) == [at(32)]
    search.strategy = seeded(amp_a=at(32, num_workers=2, prefetch_factor=2), amp_b=at(16))
    assert search.probe(2) == [at(16), USUAL.start_configs(2)[0]]
    search.strategy = seeded(amp_a=at(64), amp_b=at(8))
    assert search.probe(1) == [USUAL.start_configs(2)[1]]


def test_two_workers_do_not_probe_the_same() -> None:
    search = Search(USUAL, seeded(amp_a=at(32), amp_b=at(16)))
    assert [search.ask()[1] for _ in range(3)] == [at(32), at(16), USUAL.start_configs(2)[0]]


def test_a_first_that_was_interrupted_is_asked_again() -> None:
    search = Search(USUAL, seeded(amp_a=at(32)))
    trial, _ = search.ask()
    trial.set_user_attr(RETRY, True)
    search.study.tell(trial, state=TrialState.FAIL)
    assert search.probe(2) == [at(32), USUAL.start_configs(2)[0]]


def test_a_retry_keeps_the_name_of_the_sibling() -> None:
    search = Search(USUAL, seeded(amp_a=at(32)))
    trial, _ = search.ask()
    trial.set_user_attr(RETRY, True)
    search.study.tell(trial, state=TrialState.FAIL)
    search.strategy = seeded(amp_a=at(32))
    search.probe(1)
    assert [trial.user_attrs.get(ORIGIN) for trial in search.study.trials] == ["amp_a", "amp_a"]


def test_the_default_of_the_rung_comes_before_what_is_compared_with_it() -> None:
    search = Search(USUAL, defaults_first(seeded(amp_a=at(32, "hiutil")), USUAL))
    assert search.probe(2) == [at(32), at(32, "hiutil")]
    assert [trial.user_attrs.get(ORIGIN) for trial in search.study.trials] == [None, "amp_a"]


LADDER = Space(
    (
        Parameter(name="num_envs", values=(64, 128, 256, 512, 1024, 2048, 4096, 8192)),
        Parameter(name="agent_variant", values=("hiutil", "default")),
        Parameter(name="update_epochs", values=(20, 30, 40)),
    )
)


def memory_share(config: Config, factor: float) -> float:
    """Return the memory share of a config: most of the memory at 256 environments, times a factor.

    `hiutil` needs a little more.
    """
    return factor * (0.02 + 0.003 * float(config["num_envs"])) * (1.05 if config["agent_variant"] == "hiutil" else 1.0)


def searched(factor: float, elders: list[Sibling]) -> tuple[int, optuna.Study]:
    """Search a case to its end. Return how many probes ran out of memory, and the study."""
    search = Search(LADDER, by_gain(LADDER, Gain(LADDER, siblings=elders), elders))
    failed = 0
    while begun := search.begin():
        trial, config = begun
        share, rung = memory_share(config, factor), float(config["num_envs"])
        if share > 1.0:
            failed += 1
            trial.set_constraint(MEMORY, 1.0)
            search.study.tell(trial, state=TrialState.PRUNED)
            continue
        trial.set_user_attr(ERROR, 0.3)
        trial.set_user_attr(COST, {MEMORY_SHARE: share, START_S: 20.0 + rung / 60, RUN_S: 15.0})
        search.study.tell(trial, 90.0 * rung / (rung + 300.0) * (1.0 if config["agent_variant"] == "hiutil" else 0.7))
    return failed, search.study


@cache
def alone(factor: float) -> tuple[int, optuna.Study]:
    return searched(factor, [])


def test_a_search_by_gain_that_has_ended_does_not_go_on_for_a_sibling() -> None:
    _, study = alone(1.0)
    history = History(study, LADDER)
    unprobed = next(filter(history.is_new, LADDER.configs()))
    strategy = by_gain(LADDER, Gain(LADDER), siblings(amp_a=unprobed))
    assert isinstance(strategy.choose(history, one_start), Done)


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.15])
def test_what_a_sibling_measured_keeps_a_case_from_running_out_of_memory(factor: float) -> None:
    failed, study = alone(1.0)
    assert failed
    elder = as_sibling("amp_a", study.trials)
    assert elder is not None
    assert searched(factor, [elder])[0] == 0 < alone(factor)[0]


def test_a_best_between_two_made_rungs_is_taken_at_the_nearer() -> None:
    ladder, *others = USUAL.parameters
    space = Space((Parameter(name=ladder.name, values=ladder.values, bounds=(1, 10**6)), *others))
    rung = int(ladder.values[-1])
    search = Search(space, by_drawing(space, SearchSpec(), siblings(amp_a=at(rung + 1))))
    assert search.probe(1) == [at(rung)]


def test_the_own_config_comes_before_the_best_of_another_study() -> None:
    workers = Parameter(name="workers", values=(0, 1, 2), own=0)
    space = Space(parameters=(workers,))
    strategy = by_gain(space, Gain(space), siblings(old={"workers": 2, "more": 1}))
    assert Search(space, strategy).probe(2) == [{"workers": 0}, {"workers": 2}]
