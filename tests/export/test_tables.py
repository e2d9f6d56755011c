from pathlib import Path
from typing import TYPE_CHECKING

from tests_filled import frame

from tuner.export.reader import StudyReader, connect
from tuner.export.tables import Sheet, all_trials, best_by_case, case_manifest, method_summary, tsv
from tuner.study.cases import Case
from tuner.study.space import launch_digest

if TYPE_CHECKING:
    from conftest import FilledDatabase

HIUTIL = {"num_envs": 1024, "agent_variant": "hiutil", "update_epochs": 20}
DEFAULT = {"num_envs": 512, "agent_variant": "default", "num_workers": 2}
FIRST_COLUMNS = [
    *("case", "method", "status", "variant", "num_envs", "elapsed_s", "iteration", "samples", "samples_per_s"),
    *("avg_util0", "avg_util1", "min_avg_util", "max_util0", "max_util1", "max_mem0", "max_mem1"),
    *("max_power0", "max_power1", "agent_config", "base_agent", "out_dir"),
]


def reader(database: "FilledDatabase") -> StudyReader:
    return StudyReader(connect(database.url), "pi_plus")


def cells(table: Sheet, row: int = 0) -> dict[str, str]:
    """Return a row as the file shows it."""
    header, *lines = tsv(table).splitlines()
    return dict(zip(header.split("\t"), lines[row].split("\t"), strict=True))


def test_the_documentation_names_every_column(database: "FilledDatabase") -> None:
    database.add(database.case("add_pi_plus"), HIUTIL, utils=(61.2, 63.0), beside=1)
    study = reader(database)
    written = [best_by_case(study), method_summary(study), case_manifest(study), all_trials(study)]
    documented = (Path(__file__).parents[2] / "docs/tables.md").read_text(encoding="utf-8")
    columns = {
        name.removesuffix("1") + "0" if name.endswith("1") else name for table in written for name in table.columns
    }
    parameters_and_files = {*HIUTIL, "env_config", "engine_config"}
    assert {name for name in columns - parameters_and_files if f"`{name}`" not in documented} == set()


def test_best_by_case_starts_with_the_fixed_columns(database: "FilledDatabase") -> None:
    default = {**DEFAULT, "num_envs": 1024}
    case = database.case("add_pi_plus", defaults=[default], learning=["agent_variant", "update_epochs"])
    database.add(case, default, utils=(50.0, 51.0), samples_per_s=45000.0)
    database.add(case, HIUTIL, utils=(61.234, 63.0))
    table = best_by_case(reader(database))
    assert list(table.columns) == [
        *FIRST_COLUMNS,
        *("num_workers", "update_epochs", "samples_per_s_vs_default", "changes_learning"),
        *("objective", "value", "source", "measured", "readings", "trials", "trial", "digest"),
        *("measured_on", "min_avg_sm", "util_spread", "energy_j", "start_up_s", "window_s"),
    ]
    assert cells(table) == {
        "case": "add_pi_plus",
        "method": "add",
        "status": "ok",
        "variant": "hiutil",
        "num_envs": "1024",
        "elapsed_s": "61.25",
        "iteration": "8",
        "samples": "524288",
        "samples_per_s": "15000.13",
        "avg_util0": "61.23",
        "avg_util1": "63.0",
        "min_avg_util": "61.23",
        "max_util0": "71.23",
        "max_util1": "73.0",
        "max_mem0": "6097",
        "max_mem1": "6097",
        "max_power0": "312.3",
        "max_power1": "312.3",
        "agent_config": "out/agent.yaml",
        "base_agent": "data/agents/ppo.yaml",
        "out_dir": "runs/pi_plus/1",
        "num_workers": "",
        "update_epochs": "20",
        "samples_per_s_vs_default": "0.333336",
        "changes_learning": "agent_variant update_epochs",
        "objective": "min_avg_util",
        "value": "61.23",
        "start_up_s": "30.5",
        "window_s": "20.0",
        "min_avg_sm": "21.46",
        "util_spread": "",
        "energy_j": "2001",
        "source": "nvml",
        "trials": "2",
        "trial": "1",
        "digest": launch_digest(HIUTIL),
        "measured": "cold",
        "measured_on": "GPU-a, GPU-b",
        "readings": "1",
    }


def test_a_row_of_the_best_has_at_most_20_columns_more_than_the_predecessors(database: "FilledDatabase") -> None:
    metrics = {f"metric{number}": float(number) for number in range(30)} | {"headroom_pct": 9.0}
    case = database.case("add_pi_plus", defaults=[HIUTIL])
    database.add(case, HIUTIL, utils=(61.0, 63.0), metrics={"min_avg_util": 61.0, **metrics})
    database.add(case, DEFAULT, utils=(71.0, 73.0), ineligible="metric29 is 3, and its constraint asks for at least 9")
    columns = list(best_by_case(reader(database)).columns)
    assert len(columns) == len(FIRST_COLUMNS) + 20
    assert {"headroom_pct", "metric29"} <= {*columns}
    assert set(metrics) <= set(all_trials(reader(database)).columns)


def test_the_best_measured_cold_several_times_shows_the_means(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus", defaults=[HIUTIL])
    for first, second, samples_per_s in ((64.0, 70.0, 900.0), (60.0, 62.0, 1100.0), (63.0, 61.0, 1000.0)):
        metrics = {
            "min_avg_util": min(first, second),
            "min_avg_util_se": 0.3,
            "samples_per_s": samples_per_s,
            "mem_peak_mib": samples_per_s * 2,
            "headroom_pct": first,
            "min_avg_sm": None,
        }
        found = {"samples_per_s": samples_per_s, "metrics": metrics, "digest": "same", "total_s": samples_per_s / 10}
        database.add(case, {**HIUTIL, "pruner_patience": 2}, utils=(first, second), **found)
    row = cells(best_by_case(reader(database)))
    names = ("value", "min_avg_util", "min_avg_util_se", "avg_util0", "avg_util1", "samples_per_s", "min_avg_sm")
    assert [row[name] for name in names] == ["61.67", "61.67", "1.2", "62.33", "64.33", "1000.0", ""]
    assert [row[name] for name in ("max_util0", "max_util1", "mem_peak_mib", "headroom_pct")] == [
        *("74.0", "80.0", "2200", "60.0"),
    ]
    assert [row[name] for name in ("readings", "trial", "out_dir", "elapsed_s", "trials")] == [
        *("3", "2", "runs/pi_plus/2", "100.0", "3"),
    ]
    assert row["samples_per_s_vs_default"] == "1.0"
    methods = cells(method_summary(reader(database)))
    assert (methods["best_min_avg_util"], methods["mean_min_avg_util"]) == ("61.67", "61.67")
    trials = frame(all_trials(reader(database)))
    assert list(trials["value"]) == [64.0, 60.0, 61.0]


def test_a_case_without_success_keeps_its_commonest_failure(database: "FilledDatabase") -> None:
    done, failed, untried = (database.case(f"{method}_pi_plus") for method in ("add", "amp", "ase"))
    database.add(done, HIUTIL, utils=(61.0, 63.0))
    for status in ("hang", "gpu_oom", "gpu_oom", "pruned", "pruned", "pruned"):
        database.add(failed, DEFAULT, status=status)
    database.running(untried)
    table = best_by_case(reader(database))
    assert list(frame(table)["status"]) == ["ok", "gpu_oom", "no_trials"]
    filled = {name: value for name, value in cells(table, 1).items() if value}
    assert filled == {"case": "amp_pi_plus", "method": "amp", "status": "gpu_oom", "trials": "6"}
    assert cells(table, 0)["num_envs"] == "1024"
    assert cells(table, 2)["trials"] == "0"


def test_a_config_that_is_not_eligible_is_never_the_best(database: "FilledDatabase") -> None:
    some, none = database.case("add_pi_plus"), database.case("amp_pi_plus")
    database.add(some, HIUTIL, utils=(90.0, 91.0), ineligible="only 1.0 % of device memory stayed free")
    database.add(some, DEFAULT, utils=(60.0, 61.0), ineligible=None)
    database.add(none, HIUTIL, utils=(90.0, 91.0), ineligible="only 1.0 % of device memory stayed free")
    table = best_by_case(reader(database))
    assert list(frame(table)["status"]) == ["ok", "ineligible"]
    assert cells(table, 0)["min_avg_util"] == "60.0"


def test_device_columns_repeat_for_as_many_devices_as_the_study_has(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus", devices=["cuda:0", "cuda:1", "cuda:2"])
    database.add(case, HIUTIL, utils=(61.0, 63.0, 59.5))
    table = best_by_case(reader(database))
    assert list(table.columns[9:22]) == [
        *("avg_util0", "avg_util1", "avg_util2", "min_avg_util", "max_util0", "max_util1", "max_util2"),
        *("max_mem0", "max_mem1", "max_mem2", "max_power0", "max_power1", "max_power2"),
    ]
    assert (cells(table)["avg_util2"], cells(table)["min_avg_util"]) == ("59.5", "59.5")


def test_one_device_still_has_columns_for_two(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus", devices=["cpu:0"])
    database.add(case, HIUTIL, utils=(61.0,))
    row = cells(best_by_case(reader(database)))
    assert list(row)[: len(FIRST_COLUMNS)] == FIRST_COLUMNS
    assert (row["avg_util0"], row["avg_util1"]) == ("61.0", "")


def test_the_manifest_says_what_is_launched(database: "FilledDatabase") -> None:
    database.case("add_pi_plus")
    assert cells(case_manifest(reader(database))) == {
        "case": "add_pi_plus",
        "method": "add",
        "mode": "train",
        "agent_config": "data/agents/ppo.yaml",
        "env_config": "data/envs/pi_plus.yaml",
        "engine_config": "",
        "trainer": "reference",
    }


def test_methods_are_summed_up_over_their_cases(database: "FilledDatabase") -> None:
    first, second, third = (database.case(name) for name in ("amp_pi_plus", "amp_humanoid", "ase_humanoid"))
    database.add(first, {"num_envs": 512}, utils=(60.0, 61.0), total_s=10.0)
    database.add(first, {"num_envs": 1024}, status="gpu_oom", total_s=5.5)
    database.add(second, {"num_envs": 256}, utils=(71.0, 70.555), total_s=20.0)
    database.add(third, {"num_envs": 256}, status="missing_asset", total_s=1.0)
    table = method_summary(reader(database))
    assert cells(table, 0) == {
        "method": "amp",
        "cases": "2",
        "ok_cases": "2",
        "best_min_avg_util": "70.56",
        "mean_min_avg_util": "65.28",
        "least_min_avg_util": "60.0",
        "largest_num_envs": "512",
        "safe_num_envs": "256",
        "commonest_failure": "gpu_oom",
        "trials": "3",
        "probe_s": "35.5",
    }
    filled = {name: value for name, value in cells(table, 1).items() if value}
    assert filled == {
        "method": "ase",
        "cases": "1",
        "ok_cases": "0",
        "commonest_failure": "missing_asset",
        "trials": "1",
        "probe_s": "1.0",
    }


def test_every_trial_has_a_row(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    database.add(case, HIUTIL, utils=(61.234, 63.0))
    database.add(case, DEFAULT, status="gpu_oom", detail='out of\n\tmemory "x"', launched=False)
    database.add(case, DEFAULT, status="pruned")
    database.running(case)
    study = reader(database)
    ok, oom = cells(all_trials(study), 0), frame(all_trials(study)).iloc[1]
    assert (ok["state"], ok["status"], ok["value"], ok["num_envs"]) == ("COMPLETE", "ok", "61.23", "1024")
    assert (ok["update_epochs"], ok["num_workers"], ok["launched"], ok["failure"]) == ("20", "", "True", "")
    assert (oom["state"], oom["status"], oom["failure"]) == ("PRUNED", "gpu_oom", "gpu_oom")
    assert (oom["detail"], oom["launched"], oom["value"]) == ('out of memory "x"', False, None)
    pruned, running = cells(all_trials(study), 2), cells(all_trials(study), 3)
    assert (pruned["status"], pruned["detail"], pruned["failure"]) == ("pruned", "far below the best", "")
    assert {name for name, value in running.items() if value} == {"case", "method", "trial", "state", "started_at"}
    assert running["started_at"].endswith("Z")


def test_a_study_without_trials_gives_an_empty_table(database: "FilledDatabase") -> None:
    database.case("add_pi_plus")
    table = all_trials(reader(database))
    assert list(table.columns[:3]) == ["case", "method", "trial"]
    assert len(tsv(table).splitlines()) == 1


def test_a_parameter_cannot_displace_a_fixed_column(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 32, "status": "odd", "samples": 3}, utils=(50.0, 50.0))
    assert cells(best_by_case(reader(database)))["status"] == "ok"
    trials = frame(all_trials(reader(database)))
    assert (trials.loc[0, "status"], trials.loc[0, "samples"]) == ("ok", 524288)


def test_a_cell_with_a_tab_is_quoted_and_other_cells_are_left_out() -> None:
    rows = [{"trial": 1, "detail": 'he said\t"no"', "other": 1}]
    assert tsv(Sheet(["trial", "value", "detail"], rows)) == 'trial\tvalue\tdetail\n1\t\t"he said\t""no"""\n'


def test_the_manifest_has_selected_cases_that_have_not_begun(database: "FilledDatabase") -> None:
    database.case("add_pi_plus")
    selected = [
        Case(name="add_pi_plus"),
        Case(name="amp_pi_plus", options={"env_config": "amp.yaml"}),
    ]
    table = case_manifest(reader(database), selected)
    assert [cells(table, row)["case"] for row in range(2)] == ["add_pi_plus", "amp_pi_plus"]
    later = cells(table, 1)
    assert (later["method"], later["env_config"], later["agent_config"]) == ("amp", "amp.yaml", "")
