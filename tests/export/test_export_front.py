"""Pareto fronts from the database, in the form of `pareto.tsv`."""

from typing import TYPE_CHECKING, Any

from optuna import Study
from tests_filled import frame

from tuner.cli.screen import front_tables
from tuner.export.reader import StudyReader, connect
from tuner.export.tables import best_by_case, pareto

if TYPE_CHECKING:
    from conftest import FilledDatabase

BOTH = "min_avg_util,samples_per_s"


def reader(database: "FilledDatabase") -> StudyReader:
    return StudyReader(connect(database.url), "pi_plus")


def add(
    database: "FilledDatabase", case: Study, rung: int, util_pct: float, samples_per_s: float, **probe: Any
) -> None:
    config = {"num_envs": rung, "agent_variant": "hiutil"}
    probe = {"digest": str(rung), "samples_per_s": samples_per_s, **probe}
    database.add(case, config, utils=(util_pct, util_pct + 1), **probe)


def fronts(database: "FilledDatabase") -> dict[str, list[int]]:
    return {case.name: [one.trial for one in case.front] for case in reader(database).cases if case.front}


def test_a_front_holds_what_no_other_config_beats(database: "FilledDatabase") -> None:
    first, second = (database.case(name, objective=BOTH) for name in ("add_pi_plus", "amp_pi_plus"))
    database.case("ase_pi_plus", objective=BOTH)
    for number, values in enumerate([(50.0, 900.0), (70.0, 300.0), (60.0, 500.0), (55.0, 400.0)]):
        add(database, first, number, *values)
    database.add(first, {"num_envs": 64}, status="gpu_oom")
    database.add(first, {"num_envs": 32}, status="crash")
    database.running(first)
    add(database, second, 8, 10.0, 1.0, ineligible="only 1 % of device memory stayed free")
    add(database, second, 16, 5.0, 0.5)
    assert fronts(database) == {"add_pi_plus": [1, 2, 0], "amp_pi_plus": [1]}
    best = {case.name: case.best.trial for case in reader(database).cases if case.best}
    assert best == {"add_pi_plus": 1, "amp_pi_plus": 1}


def test_among_equals_in_the_first_objective_the_best_has_most_of_the_second(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus", objective=BOTH)
    add(database, case, 8, 70.0, 300.0)
    add(database, case, 16, 70.0, 400.0)
    assert fronts(database) == {"add_pi_plus": [1]}
    assert [case.best and case.best.trial for case in reader(database).cases] == [1]


def test_a_config_tried_cold_is_judged_by_that_alone(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus", objective=BOTH)
    add(database, case, 8, 80.0, 100.0, warm=True)
    add(database, case, 16, 70.0, 200.0, warm=True)
    add(database, case, 32, 60.0, 300.0, warm=True)
    assert fronts(database) == {"add_pi_plus": [0, 1, 2]}
    add(database, case, 8, 80.0, 100.0, warm=False)
    database.add(case, {"num_envs": 16}, status="gpu_oom", digest="16")
    database.add(case, {"num_envs": 32}, status="hang", digest="32", retry=True)
    assert fronts(database) == {"add_pi_plus": [3, 2]}
    database.add(case, {"num_envs": 32}, status="hang", digest="32")
    assert fronts(database) == {"add_pi_plus": [3]}


def test_the_terminal_shows_how_many_times_as_fast_as_the_default_a_member_is_with_the_error(
    database: "FilledDatabase",
) -> None:
    default = {"num_envs": 8, "agent_variant": "default"}
    case = database.case("add_pi_plus", objective=BOTH, defaults=[default])
    for config, util_pct, speed in ((default, 70.0, 100.0), ({**default, "agent_variant": "hiutil"}, 60.0, 200.0)):
        speeds: dict[str, Any] = {"digest": str(speed), "samples_per_s": speed, "samples_per_s_se": 3.0}
        database.add(case, config, utils=(util_pct, util_pct), **speeds)
    (table,) = front_tables(reader(database))
    (times,) = (column for column in table.columns if column.header == "times default")
    assert list(times.cells) == ["1.00", "2.00 ± 0.07"]


def test_a_member_measured_cold_several_times_shows_the_means(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus", objective=BOTH)
    for util_pct, samples_per_s in ((70.0, 700.0), (50.0, 500.0)):
        errors = {"min_avg_util_se": 1.0, "samples_per_s_se": 300.0}
        metrics = {"min_avg_util": util_pct, "samples_per_s": samples_per_s, **errors}
        add(database, case, 8, util_pct, samples_per_s, metrics=metrics)
    add(database, case, 16, 65.0, 550.0)
    table = frame(pareto(reader(database)))
    assert list(table["trial"]) == [2, 1]
    assert list(table["readings"]) == [1, 2]
    means = table[["min_avg_util", "min_avg_util_se", "samples_per_s", "samples_per_s_se"]]
    assert list(means.iloc[1]) == [60.0, 10.0, 600.0, 212.13]


def test_each_member_has_a_row_with_its_samples_beside_the_default_s(database: "FilledDatabase") -> None:
    default = {"num_envs": 8, "agent_variant": "default"}
    case = database.case("add_pi_plus", objective=BOTH, defaults=[default], learning=["agent_variant"])
    database.add(case, default, utils=(40.0, 41.0), samples_per_s=1000.0, warm=True)
    metrics = {"min_avg_util": 71.236, "min_avg_util_se": 0.501, "samples_per_s_se": 2.0, "headroom_pct": 33.333}
    add(database, case, 8, 71.236, 250.0, warm=True, metrics=metrics)
    study = reader(database)
    table = frame(pareto(study))
    assert list(table.columns) == [
        *("case", "method", "trial", "num_envs", "agent_variant"),
        *("min_avg_util", "min_avg_util_se", "samples_per_s", "samples_per_s_se"),
        *("samples_per_s_vs_default", "changes_learning", "headroom_pct", "measured", "readings", "out_dir", "digest"),
    ]
    assert list(table.iloc[0]) == [
        *("add_pi_plus", "add", 1, 8, "hiutil", 71.24, 0.5, 250.0, 2.0),
        *(0.25, "agent_variant", 33.33, "warm", 1, "runs/pi_plus/1", "8"),
    ]
    assert (table.loc[1, "agent_variant"], table.loc[1, "samples_per_s_vs_default"]) == ("default", 1.0)
    (best,) = best_by_case(study).rows
    assert (best["objective"], best["value"], best["trial"]) == (BOTH, 71.24, 1)
    assert (best["samples_per_s_vs_default"], best["changes_learning"]) == (0.25, "agent_variant")
    assert (profile := study.rows[0].profile) is not None
    assert (profile.util_pct, round(profile.mem_share_pct or 0.0, 3)) == (71.236, 66.667)


def test_studies_of_one_objective_have_no_front(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    add(database, case, 8, 70.0, 300.0)
    assert fronts(database) == {}
    assert pareto(reader(database)).rows == []
