"""Studies on a recorded table: what comes from the table, what comes from the study, and a whole search."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from ruamel.yaml import YAML
from tests_devices import check_device_source
from tests_loop import CASE, Quiet, opened, reader, view
from tests_loop import best as best_of
from tests_table import ITERATIONS, KINDS, KINDS_TRAINER, TRAINER, readings

from tuner.devices.found import AbsentDevices
from tuner.errors import StudyError
from tuner.export.reader import read_tables
from tuner.export.recorded_table import Table
from tuner.export.tables import export_study
from tuner.replay import ReplayedProber, TableTrainer, replay_bench
from tuner.running.events import CaseOutcome, Ending, ProbeEnded
from tuner.running.job import RECOVER, Job, Workbench
from tuner.running.loop import optimize
from tuner.trainers.base import check_trainer

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.early


def study_file(folder: Path, **changes: Any) -> str:
    """Write a study whose own space differs from the table's."""
    raw = {"name": "search", "trainer": TRAINER, "space": {"num_envs": {"ladder": [7]}}, "search": {"trials": 10}}
    path = folder / "search.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(raw | changes, file)
    return str(path)


def searched(
    made: "Made", bench: Workbench, folder: Path, *, recover: bool = False
) -> tuple[CaseOutcome, Quiet, ReplayedProber]:
    prober, listener = ReplayedProber(made.table, *bench.spec.objectives), Quiet()
    with opened(folder) as database:
        job = Job(
            bench=bench,
            database=database,
            probe=prober,
            listener=listener,
            interrupted=lambda: False,
            open_session=lambda: prober.open_session,
        )
        (outcome,) = optimize(replace(job, purpose=RECOVER) if recover else job, bench.trainer.cases())
    return outcome, listener, prober


def test_space_case_and_devices_are_the_table_s(made: "Made", tmp_path: Path) -> None:
    bench = replay_bench(made.table, study_file(tmp_path, cases=["nothing"]), runs=tmp_path)
    (case,) = bench.trainer.cases()
    assert (case.name, bench.spec.cases) == (CASE.name, (CASE.name,))
    assert bench.space_for(case).parameters == made.table.space.parameters
    assert ([device.name for device in bench.devices], bench.kind) == (["cuda:0", "cuda:1"], "gpu")
    assert bench.folder == (tmp_path / "search-replay").resolve()


def test_search_pruner_objective_and_limits_are_the_study_s(made: "Made", tmp_path: Path) -> None:
    overrides = [
        {
            "match": {"cases": ["walk"], "device": "gpu"},
            "space": {"num_envs": {"ladder": [9]}},
            "search": {"trials": 3},
        },
        {"match": {"device": "cpu"}, "search": {"trials": 99}},
    ]
    bench = replay_bench(
        made.table,
        study_file(tmp_path, objective="samples_per_s", pruner={"name": "none"}, overrides=overrides),
    )
    spec = bench.spec_for(CASE)
    assert (spec.search.trials, spec.objective, spec.pruner.name) == (3, "samples_per_s", "none")
    assert bench.space_for(CASE).parameters == made.table.space.parameters


def test_patience_is_searched_where_the_study_does_so(made: "Made", tmp_path: Path) -> None:
    space = {"num_envs": {"ladder": [7]}, "pruner_patience": {"choices": [3, 2]}}
    bench = replay_bench(made.table, study_file(tmp_path, space=space))
    assert bench.space_for(CASE).names == (*made.table.space.names, "pruner_patience")


def test_an_unknown_objective_is_refused(made: "Made", tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="'utilisation'"):
        replay_bench(made.table, study_file(tmp_path, objective="utilisation"))


def test_a_search_over_booleans_fractions_and_dotted_names_is_exported(kinds: "Made", tmp_path: Path) -> None:
    search = {"sampler": "gain", "trials": 9}
    bench = replay_bench(kinds.table, study_file(tmp_path, space=KINDS, trainer=KINDS_TRAINER, search=search))
    outcome, listener, _ = searched(kinds, bench, tmp_path)
    assert outcome.ending in {Ending.EXHAUSTED, Ending.TARGET}
    best = best_of(tmp_path, CASE.name, "search")
    assert best.config["num_envs"] == 16  # the workers change less than the error, so the default's count is kept
    export_study(f"sqlite:///{tmp_path / 'study.db'}", "search", tmp_path / "out")
    trials = read_tables(tmp_path / "out")["trials"]
    assert set(trials["headless"]) <= {False, True}
    assert set(trials["agent.lr"].dropna()) <= {0.01, 0.1}
    assert len(trials) == len(listener.told_status)


def test_the_table_is_a_trainer_and_a_source(made: "Made", tmp_path: Path) -> None:
    check_trainer(TableTrainer(made.table), case="walk", configs=made.table.configs[:4], out_dir=tmp_path / "out")
    check_device_source(AbsentDevices(made.table.header.devices, made.table.header.source))


def test_a_table_without_learning_parameters_has_the_usual_ones(made: "Made") -> None:
    assert TableTrainer(made.table).learning == {"agent_variant", "batch_size"}


def test_a_constraint_on_an_unknown_metric_is_refused(made: "Made", tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"constraints\.speed: no such metric; known: .*samples_per_s"):
        replay_bench(made.table, study_file(tmp_path, constraints={"speed": ">= 10"}))


def test_configs_share_the_sessions_that_they_were_recorded_in(made: "Made") -> None:
    trainer = TableTrainer(made.table)
    for config in made.table.configs:
        assert trainer.session_key(CASE, config) == f"command/walk/num_envs={config['num_envs']}"
    unknown = {"num_envs": 256, "agent_variant": "default", "num_workers": 0}
    assert trainer.session_key(CASE, unknown) is None


def with_holes(table: Table) -> Table:
    """Return the table with only every third config."""
    return Table(table.header, [row for config in table.configs[::3] if (row := table.find(config))])


def test_only_what_a_table_can_answer_is_searched(made: "Made", tmp_path: Path) -> None:
    table = with_holes(made.table)
    searched = list(replay_bench(table, study_file(tmp_path)).space_for(CASE).configs())
    assert searched == [config for config in table.space.configs() if table.find(config)]
    assert (
        len(table.configs) < len(searched) < len(list(table.space.configs()))
    )  # the table also answers configs that must run out of memory


def test_a_space_of_which_the_table_has_no_config_is_refused_with_this_reason(made: "Made", tmp_path: Path) -> None:
    row = made.table.find(made.table.configs[0])
    rule = f"{{num_envs}} != {made.table.configs[0]['num_envs']}"
    bench = replay_bench(Table(made.table.header, [row] if row else []), study_file(tmp_path, rules=[rule]))
    with pytest.raises(StudyError, match=r"no config can run; \{.*\}: the recorded table"):
        bench.space_for(CASE)


@pytest.mark.parametrize(
    ("sampler", "changes"),
    [("gain", {}), ("tpe", {"constraints": {"samples_per_s": ">= 0.5 * default"}})],
)
def test_no_sampler_asks_a_table_for_what_it_lacks(
    made: "Made", tmp_path: Path, sampler: str, changes: dict[str, Any]
) -> None:
    holes = replace(made, table=with_holes(made.table))
    space = {"num_envs": {"ladder": [7]}, "pruner_patience": {"choices": [3, 2]}}
    study = study_file(tmp_path, search={"trials": 60, "sampler": sampler}, space=space, **changes)
    outcome, listener, _ = searched(holes, replay_bench(holes.table, study), tmp_path)
    assert outcome.ending is Ending.EXHAUSTED
    assert all(holes.table.find(config) for config in listener.launched)
    assert set(listener.told_status) <= {"ok", "pruned", "gpu_oom"}
    assert view(tmp_path, "walk", "search").best or changes  # a constraint needs the default of its rung


def test_nor_does_a_recovery_or_a_pareto_study(made: "Made", tmp_path: Path) -> None:
    holes = replace(made, table=with_holes(made.table))
    bench = replay_bench(holes.table, study_file(tmp_path, objective="util,samples_per_s", search={"trials": 60}))
    for folder, recover in ((tmp_path / "recovery", True), (tmp_path / "pareto", False)):
        _, listener, _ = searched(holes, bench, folder, recover=recover)
        assert all(holes.table.find(config) for config in listener.launched)
        assert set(listener.told_status) <= {"ok", "gpu_oom"}
        assert view(folder, "walk", "search").front


def test_a_study_runs_as_it_would_for_real_and_a_clear_loser_ends_early(made: "Made", tmp_path: Path) -> None:
    bench = replay_bench(made.table, study_file(tmp_path, probe={"min_iterations": 4}))
    outcome, listener, prober = searched(made, bench, tmp_path)
    assert outcome.ending is Ending.TARGET
    assert any(event.confirms for event in listener.of(ProbeEnded))
    assert prober.spent_s == pytest.approx(sum(event.seconds for event in listener.of(ProbeEnded)))
    best = best_of(tmp_path, "walk", "search")
    assert best.is_warm is False
    assert best.value == pytest.approx(sum(readings(dict(best.config))) / ITERATIONS)
    trials = reader(tmp_path, "search").trials()
    assert any(trial.probe.iterations in range(ITERATIONS) for trial in trials if trial.status == "ok")


def test_a_study_without_its_trainer_is_still_itself(
    made: "Made", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ABSENT", raising=False)
    trainer = {**TRAINER, "root": "${ABSENT:-}"}
    study = study_file(tmp_path, trainer=trainer, fallback="reference", search={"trials": 3})
    bench = replay_bench(made.table, study, runs=tmp_path)
    assert (bench.spec.name, bench.spec.search.trials) == ("search", 3)


def test_a_pareto_study_runs_each_probe_to_its_end(made: "Made", tmp_path: Path) -> None:
    bench = replay_bench(made.table, study_file(tmp_path, objective="util,samples_per_s"))
    outcome, _, _ = searched(made, bench, tmp_path)
    assert outcome.ending is Ending.TARGET
    study = reader(tmp_path, "search")
    assert {trial.probe.iterations for trial in study.trials() if trial.status == "ok"} == {ITERATIONS}
    (member,) = view(tmp_path, "walk", "search").front  # all configs have the same samples/s
    assert (
        member.value
        == best_of(tmp_path, "walk", "search").value
        == pytest.approx(sum(readings(dict(member.config))) / ITERATIONS)
    )
    assert member.is_warm is False


def test_a_replayed_study_goes_on_where_it_ended(made: "Made", tmp_path: Path) -> None:
    searched(made, replay_bench(made.table, study_file(tmp_path, search={"trials": 4})), tmp_path)
    _, second, _ = searched(made, replay_bench(made.table, study_file(tmp_path, search={"trials": 7})), tmp_path)
    assert len(second.launched) in (3, 4)
    outcome, third, prober = searched(
        made, replay_bench(made.table, study_file(tmp_path, search={"trials": 7})), tmp_path
    )
    assert (outcome.ending, third.launched, prober.spent_s) == (Ending.ALREADY, [], 0.0)


def test_tables_of_several_cases_learn_from_each_other_as_cases_do(made: "Made", tmp_path: Path) -> None:
    launched, best = [], None
    for case, date, trials in (("amp_walk", "2026-11-20", 9), ("amp_run", "2026-11-21", 1)):
        header = made.table.header.model_copy(update={"case": case, "date": date})
        rows = [row for config in made.table.configs if (row := made.table.find(config))]
        one = replace(made, table=type(made.table)(header, rows))
        bench = replay_bench(one.table, study_file(tmp_path, search={"trials": trials}))
        launched.append(searched(one, bench, tmp_path)[1].launched)
        best = best or best_of(tmp_path, case, "search").config
    assert launched[0][0] != launched[1][0] == best


def test_booleans_fractions_and_dotted_names_come_back_as_they_were(kinds: "Made") -> None:
    assert sorted(map(repr, kinds.table.configs)) == sorted(repr(result.config) for result in kinds.results)
    assert len(kinds.table.configs) == 18
    assert all(kinds.table.holds(config) for config in kinds.table.space.configs())
    frame = pd.read_parquet(kinds.path, dtype_backend="numpy_nullable")
    types = {name: str(frame[name].dtype) for name in ("headless", "agent.lr", "num_workers")}
    assert types == {"headless": "boolean", "agent.lr": "Float64", "num_workers": "Float64"}
