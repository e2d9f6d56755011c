"""Which cases in a database count as siblings, and what is kept of a trial that begins with a sibling's best config."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import optuna
import pytest
from optuna.pruners import NopPruner
from optuna.trial import TrialState
from tests_search import given
from tests_space import USUAL
from tests_store import CASE, MANY, OUT_OF_MEMORY, ask, case_study, identity, ok, probe, repeats, stored, tell

from tuner.records.case_record import RECORDED
from tuner.records.schema import COST, INELIGIBLE, ORIGIN, PROBE
from tuner.search.strategies import by_drawing
from tuner.search.trials import Sibling
from tuner.store.case_study import CaseStudy
from tuner.store.database import Database
from tuner.store.opening import as_sibling, siblings
from tuner.study.cases import Case
from tuner.study.space import Config, described, launched
from tuner.study.spec import SearchSpec

CONSTRAINED: dict[str, Any] = {"constraints": {"samples_per_s": ">= 800"}}


Facts = Mapping[str, object]
NO_FACTS: Facts = MappingProxyType({})


class Told:
    """A study that is told of configs."""

    def __init__(self) -> None:
        self.study = optuna.create_study(direction="maximize")

    def add(self, config: Config, value: float | None, *, may_win: bool = True, facts: Facts = NO_FACTS) -> None:
        trial = given(self.study, USUAL, config)
        for name, fact in facts.items():
            trial.set_user_attr(name, fact)
        if not may_win:
            trial.set_constraint(INELIGIBLE, 1.0)
        self.study.tell(trial, value, state=TrialState.FAIL if value is None else TrialState.COMPLETE)


def at(rung: int) -> Config:
    return {"num_envs": rung, "agent_variant": "default", "num_workers": 0, "pruner_patience": 3}


def test_the_best_is_eligible_and_cold_where_there_is_such_a_one() -> None:
    told = Told()
    told.add(at(64), 90.0, may_win=False)
    told.add(at(8), None)
    assert as_sibling("amp_walk", told.study.trials) is None
    told.add(at(16), 80.0, facts={PROBE: {"status": "ok", "warm": True}})
    told.add(at(8), 75.0, facts={PROBE: {"status": "ok", "warm": True}})
    made = [(launched(at(64)), 90.0, None), (launched(at(16)), 80.0, None), (launched(at(8)), 75.0, None)]
    assert as_sibling("amp_walk", told.study.trials) == Sibling(case="amp_walk", best=at(16), costs=[], readings=made)
    told.add(at(32), 70.0, facts={COST: {"start_s": 9.0}})
    costs = [(at(32), {"start_s": 9.0})]
    made.append((launched(at(32)), 70.0, None))
    assert as_sibling("amp_walk", told.study.trials) == Sibling(
        case="amp_walk", best=at(32), costs=costs, readings=made
    )


def test_the_best_is_that_of_the_highest_mean_whatever_the_patience() -> None:
    told = Told()
    told.add(at(16), 90.0)
    told.add(at(32), 85.0)
    told.add({**at(16), "pruner_patience": 2}, 70.0)
    known = as_sibling("amp_walk", told.study.trials)
    assert known is not None
    assert known.best == at(32)


def searched(database: Database, case: str, *values: float, **changes: Any) -> list[Config]:
    """Probe a case with this utilisation, probe by probe; return the configs."""
    study = case_study(database, name=f"demo/{case}", known=identity(**changes))
    return [config for value in values for config in probe(study, ok(value))]


def found(database: Database, case: str = "amp_run", **changes: Any) -> list[str]:
    return [one.case for one in siblings(database, "demo", Case(name=case), identity() | changes)]


def beginning(database: Database, case: str) -> CaseStudy:
    """Open a case's study as the loop does, but without constraints."""
    known = siblings(database, "demo", Case(name=case), identity())
    return CaseStudy(
        database,
        f"demo/{case}",
        space=USUAL,
        strategy=lambda count: by_drawing(USUAL, SearchSpec(), known, resumed_at=count),
        pruner=NopPruner(),
        identity=identity(),
        case=CASE,
    )


def test_the_three_most_similar_cases_with_a_best_are_siblings(database: Database) -> None:
    for case in ("add_run", "amp_jump", "add_walk", "amp_run_fast", "amp_hop", "amp_run"):
        searched(database, case, 50.0)
    probe(case_study(database, name="demo/amp_run_slow"), OUT_OF_MEMORY)
    assert found(database) == ["amp_run_fast", "add_run", "amp_jump"]


def test_siblings_are_found_by_what_the_trainer_says_of_its_cases(database: Database) -> None:
    rough = Case(name="Isaac-Velocity-Rough-G1-v0", method="velocity", robot=("G1",))
    for name, robot in [("Isaac-Velocity-Flat-G1-v0", "G1"), ("Isaac-Reach-Franka-v0", "Franka")]:
        kept = replace(CASE, method="velocity" if robot == "G1" else "reach", robot=(robot,))
        probe(case_study(database, name=f"demo/{name}", case=kept), ok(50.0))
    found = siblings(database, "demo", rough, identity())
    assert [one.case for one in found] == ["Isaac-Velocity-Flat-G1-v0"]


def test_the_best_config_is_read(database: Database) -> None:
    _, best, _ = searched(database, "amp_walk", 50.0, 70.0, 60.0)
    assert [one.best for one in siblings(database, "demo", Case(name="amp_run"), identity())] == [best]


def test_cases_of_another_study_file_are_none(database: Database) -> None:
    probe(case_study(database, name="demonstration/amp_walk"), ok(50.0))
    assert found(database) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer": {"name": "mimickit"}},
        {"devices": ["cuda:0 H100"]},
        {"source": "process_cpu"},
        {"objective": "samples_per_s"},
        CONSTRAINED,
    ],
)
def test_cases_whose_values_do_not_compare_are_none(database: Database, changes: dict[str, Any]) -> None:
    searched(database, "amp_walk", 50.0)
    assert found(database, **changes) == []
    assert found(database) == ["amp_walk"]


def test_space_and_pruner_may_differ_and_each_case_has_its_own_table(database: Database) -> None:
    command = {"name": "command"}
    searched(database, "amp_walk", 50.0, trainer={**command, RECORDED: "2026-11-20"}, pruner={"patience": 2})
    other = described(USUAL.restricted_to({"num_envs"}))
    assert found(database, trainer={**command, RECORDED: "2026-11-21"}, space=other) == ["amp_walk"]


def test_a_trial_that_begins_with_a_sibling_s_best_says_so(database: Database) -> None:
    _, best = searched(database, "amp_walk", 50.0, 70.0)
    study = beginning(database, "amp_run")
    first, second = ask(study), ask(study)
    assert (first.config, first.choice.origin) == (best, "amp_walk")
    assert second.choice.origin is None
    assert [trial.user_attrs.get(ORIGIN) for trial in stored(database, "demo/amp_run")] == ["amp_walk", None]


def test_a_resumed_case_begins_once_even_where_its_sibling_goes_on(database: Database) -> None:
    searched(database, "amp_walk", 50.0)
    asked = probe(beginning(database, "amp_run"), ok(50.0), 2)
    searched(database, "amp_walk", 60.0, 70.0, 80.0)
    asked += probe(beginning(database, "amp_run"), ok(50.0), 3)
    assert not repeats(asked)
    origins = [trial.user_attrs.get(ORIGIN) for trial in stored(database, "demo/amp_run")]
    assert origins == ["amp_walk", None, None, None, None]


def test_two_workers_begin_with_different_configs(database: Database) -> None:
    searched(database, "amp_walk", 50.0)
    searched(database, "add_run", 40.0, 60.0)
    one, other = beginning(database, "amp_run"), beginning(database, "amp_run")
    asked = [ask(one), ask(other), ask(one)]
    assert [trial.choice.origin for trial in asked] == ["add_run", "amp_walk", None]
    for worker, trial in zip((one, other, one), asked, strict=True):
        tell(worker, trial, ok(50.0))
    assert one.history().finished == 3
    assert one.ask(3) is None
    assert one.ask(MANY) is not None


SCRIPT = "train.py 0123456789ab"


def trained(database: Database, name: str, script: str, **changes: Any) -> Config:
    """Measure a config in a case of another study with a script, and return the config."""
    known = identity() | {"trainer": {"name": "command", "command": name}} | changes
    study = case_study(database, name=name, known=known)
    asked = ask(study)
    tell(study, asked, ok(50.0), host={"script": script})
    return asked.config


def test_other_studies_of_the_same_script_on_alike_devices_lend_too(database: Database) -> None:
    trained(database, "old/command", SCRIPT)
    best = trained(database, "new/command", SCRIPT)
    trained(database, "edited/command", "train.py ffffffffffff")
    trained(database, "elsewhere/command", SCRIPT, devices=["cuda:0 another"])
    trained(database, "busy/command", SCRIPT, objective="min_avg_sm")
    changing = case_study(database, name="changing/command", known=identity() | {"trainer": {"name": "other"}})
    for script in (SCRIPT, "train.py ffffffffffff"):
        tell(changing, ask(changing), ok(50.0), host={"script": script})
    searched(database, "amp_walk", 50.0)
    known = siblings(database, "demo", Case(name="amp_run"), identity(), SCRIPT)
    assert [one.case for one in known] == ["amp_walk", "new/command", "old/command"]
    assert known[1].best == best
    assert [one.case for one in siblings(database, "demo", Case(name="amp_run"), identity())] == ["amp_walk"]
