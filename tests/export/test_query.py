from datetime import UTC, datetime
from typing import TYPE_CHECKING

import optuna
import pytest

from tuner.errors import StoreError
from tuner.export.reader import StudyReader, connect
from tuner.export.speed_gain import times_default
from tuner.records.schema import PROBE
from tuner.records.trial import ProbeRecord
from tuner.search.standing import Standing

if TYPE_CHECKING:
    from conftest import FilledDatabase


def reader(database: "FilledDatabase", study: str = "pi_plus") -> StudyReader:
    return StudyReader(connect(database.url), study)


def best(database: "FilledDatabase", case: str = "add_pi_plus") -> Standing:
    found = reader(database).case(case)
    assert found is not None
    assert found.best is not None
    return found.best


def test_best_is_the_highest_value_of_each_case(database: "FilledDatabase") -> None:
    first, second = database.case("add_pi_plus"), database.case("amp_pi_plus")
    database.add(first, {"num_envs": 256}, utils=(50.0, 52.0))
    database.add(first, {"num_envs": 512}, utils=(60.0, 62.0))
    database.add(first, {"num_envs": 1024}, status="gpu_oom")
    database.add(second, {"num_envs": 128}, utils=(9.0, 9.5))
    found = {case.name: case.best for case in reader(database).cases}
    assert {name: (one.trial, one.value) for name, one in found.items() if one} == {
        "add_pi_plus": (1, 60.0),
        "amp_pi_plus": (0, 9.0),
    }
    assert best(database).config == {"num_envs": 512}


def test_the_earliest_of_equal_trials_is_best(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    for util in (40.0, 60.0, 60.0):
        database.add(case, utils=(util, util))
    assert best(database).trial == 1


def test_what_a_session_measured_is_best_only_where_nothing_was_measured_cold(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    database.add(case, utils=(70.0, 70.0), warm=True)
    database.add(case, utils=(80.0, 80.0), warm=True)
    assert best(database).trial == 1
    database.add(case, utils=(60.0, 60.0), warm=False)
    database.add(case, utils=(50.0, 50.0))
    assert best(database).trial == 2


def test_the_best_has_the_highest_mean_of_its_cold_readings(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    database.add(case, utils=(95.0, 95.0), digest="often", warm=True)
    for util in (80.0, 60.0, 67.0):
        database.add(case, utils=(util, util), digest="often")
    database.add(case, utils=(70.0, 70.0), digest="once")
    database.add(case, utils=(90.0, 90.0), digest="now and then")
    database.add(case, status="gpu_oom", digest="now and then")
    found = best(database)
    assert (found.trial, found.value, found.readings) == (4, 70.0, 1)
    database.add(case, utils=(79.0, 79.0), digest="often")
    found = best(database)
    assert (found.trial, found.value, found.readings) == (7, 71.5, 4)
    assert found.trials[-1].probe.out_dir == "runs/pi_plus/7"


def test_what_the_plain_command_fails_on_for_good_is_neither_best_nor_safe(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    for rung, util in ((256, 60.0), (512, 70.0), (1024, 80.0)):
        database.add(case, {"num_envs": rung}, utils=(util, util), digest=str(rung), warm=True)
    database.add(case, {"num_envs": 1024}, status="crash", digest="1024")
    database.add(case, {"num_envs": 512}, status="port_in_use", digest="512", retry=True)
    (found,) = reader(database).cases
    assert (best(database).trial, found.largest_ok) == (1, 512)
    database.add(case, {"num_envs": 1024}, utils=(75.0, 75.0), digest="1024")
    (found,) = reader(database).cases
    assert (best(database).trial, found.largest_ok) == (5, 1024)


def test_a_case_counts_how_its_trials_ended_and_their_seconds(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    database.case("amp_pi_plus")
    database.add(case, utils=(50.0, 50.0), total_s=10.5)
    database.add(case, utils=(50.0, 50.0), total_s=20.0, ineligible="too little memory")
    database.add(case, status="gpu_oom", total_s=None)
    database.add(case, status="pruned", total_s=4.0)
    database.add(case, status="nccl", total_s=1.0)
    database.running(case)
    first, second = reader(database).cases
    assert first.counts == {"ok": 1, "ineligible": 1, "gpu_oom": 1, "pruned": 1, "nccl": 1}
    assert (first.counts.total(), first.probe_s, first.commonest_failure) == (5, 35.5, "gpu_oom")
    assert (second.counts, second.status) == ({}, "no_trials")


def test_a_trial_whose_process_is_gone_was_interrupted(database: "FilledDatabase") -> None:
    database.running(database.case("add_pi_plus"))
    for is_held, counts in ((True, (1, 0)), (False, (0, 1))):
        (row,) = StudyReader(connect(database.url), "pi_plus", is_held=lambda _, held=is_held: held).rows
        assert (row.running, row.interrupted) == counts


def test_trials_come_whole_and_in_order(any_database: "FilledDatabase") -> None:
    first, second = any_database.case("add_pi_plus"), any_database.case("amp_pi_plus")
    for util in (1.0, 2.0, 3.0):
        any_database.add(first, {"num_envs": 32}, utils=(util, util))
        any_database.add(second, {"num_envs": 64}, utils=(util, util))
    trials = list(reader(any_database).trials())
    assert [(trial.case, trial.number, trial.value) for trial in trials] == [
        *(("add_pi_plus", number, number + 1.0) for number in range(3)),
        *(("amp_pi_plus", number, number + 1.0) for number in range(3)),
    ]
    assert {trial.case: trial.config for trial in trials} == {
        "add_pi_plus": {"num_envs": 32},
        "amp_pi_plus": {"num_envs": 64},
    }


def test_a_series_is_read_step_by_step(any_database: "FilledDatabase") -> None:
    first, second = any_database.case("walk"), any_database.case("run")
    for one, steps in ((first, {2: 50.0, 3: 52.0}), (second, {1: 7.0}), (first, {}), (first, {3: 1.0, 2_000_000: 2.0})):
        trial = one.ask()
        for step, value in steps.items():
            trial.report(value, step)
    assert reader(any_database).series == {
        ("walk", 0): [None, 50.0, 52.0],
        ("walk", 2): [None, None, 1.0],
        ("run", 0): [7.0],
    }


def test_a_running_trial_has_no_probe_and_starts_in_utc(any_database: "FilledDatabase") -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    any_database.running(any_database.case("add_pi_plus"))
    (trial,) = reader(any_database).trials()
    assert (trial.state, trial.status, trial.value, trial.completed) == ("RUNNING", None, None, None)
    assert trial.probe == ProbeRecord()
    assert trial.started is not None
    assert before <= trial.started <= datetime.now(UTC).replace(tzinfo=None)


def test_fields_are_named_in_the_order_in_which_they_occur(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 64, "agent_variant": "default"}, status="gpu_oom")
    database.add(case, {"num_envs": 32, "agent_variant": "hiutil", "update_epochs": 20}, utils=(50.0, 51.0))
    assert reader(database).fields == (
        ("num_envs", "agent_variant", "update_epochs"),
        ("min_avg_util", "min_avg_sm", "util_spread", "energy_j"),
    )


def test_only_the_named_study_is_read(any_database: "FilledDatabase") -> None:
    for study in ("pi_plus_2", "PI_PLUS", "pi%plus", "pi_plus"):
        any_database.case("add_pi_plus", study=study)
    any_database.case("amp_pi_plus")
    assert [case.name for case in reader(any_database).cases] == ["add_pi_plus", "amp_pi_plus"]
    assert len(reader(any_database, "pi%plus").cases) == 1


def test_cases_carry_their_facts(database: "FilledDatabase") -> None:
    database.case("add_pi_plus", source="busy_share")
    (case,) = reader(database).cases
    assert (case.method, case.objective, case.record.source) == ("add", "min_avg_util", "busy_share")


def test_an_unknown_study_names_those_that_exist(database: "FilledDatabase") -> None:
    database.case("add_pi_plus", study="reference")
    database.case("amp_pi_plus", study="reference")
    with pytest.raises(StoreError, match=r"has no study 'pi_pluss'; its studies are reference$"):
        _ = reader(database, "pi_pluss").cases


def test_what_is_damaged_or_another_program_s_is_left_out_and_counted(any_database: "FilledDatabase") -> None:
    case, other = any_database.case("add_pi_plus"), any_database.case("amp_pi_plus")
    any_database.add(case, {"num_envs": 256}, utils=(50.0, 52.0))
    any_database.add(other, utils=(50.0, 52.0))
    for odd in ("not a record", None, 5, {"status": ["ok"]}, {"devices": 3}):
        trial = case.ask()
        trial.set_user_attr(PROBE, odd)
        case.tell(trial, 99.0)
    case.add_trial(optuna.trial.create_trial(value=98.0))
    case.ask()
    known = reader(any_database)
    assert [case.left_out for case in known.cases] == [7, 0]
    assert [trial.number for trial in known.trials()] == [0, 0]
    assert best(any_database).value == 50.0


def test_a_record_of_another_version_that_holds_odd_text_is_read(any_database: "FilledDatabase") -> None:
    case = any_database.case("add_pi_plus")
    any_database.add(case, status="crash", detail="gr\udcf6sse\0")
    any_database.case("walk", study="other").set_user_attr("case", "\udcf6")
    (trial,) = reader(any_database).trials()
    assert trial.probe.failure is not None
    assert trial.probe.failure.detail == "gr\ufffdsse\ufffd"


def vs_default(database: "FilledDatabase") -> list[float | None]:
    compared = (times_default(case, case.best) for case in reader(database).cases if case.best)
    return [times and times.value for times in compared]


DEFAULTS = [{"num_envs": rung, "agent_variant": "default", "pruner_patience": 3} for rung in (256, 512)]


def test_the_best_s_samples_stand_beside_those_of_its_rung_s_default(database: "FilledDatabase") -> None:
    case = database.case("add_pi_plus", defaults=DEFAULTS)
    for rung, speed in ((256, 50000.0), (512, 80000.0)):
        database.add(case, DEFAULTS[rung == 512], utils=(30.0, 30.0), samples_per_s=speed)
    database.add(case, {"num_envs": 512, "agent_variant": "hiutil"}, utils=(60.0, 62.0), samples_per_s=20000.0)
    assert vs_default(database) == [0.25]


def test_a_default_that_ran_whole_counts_without_pruned_probes_and_sessions(
    database: "FilledDatabase",
) -> None:
    case = database.case("add_pi_plus", defaults=DEFAULTS)
    patient = {**DEFAULTS[1], "pruner_patience": 4}
    database.add(case, DEFAULTS[1], utils=(30.0, 30.0), samples_per_s=90000.0, warm=True)
    database.add(case, DEFAULTS[1], utils=(30.0, 30.0), samples_per_s=50000.0)
    database.add(case, patient, status="pruned", samples_per_s=30000.0)
    database.add(case, DEFAULTS[1], status="gpu_oom", samples_per_s=1.0)
    database.add(case, {**DEFAULTS[1], "num_workers": 2}, utils=(31.0, 31.0), samples_per_s=2.0)
    database.add(case, {"num_envs": 512, "agent_variant": "hiutil"}, utils=(60.0, 62.0), samples_per_s=20000.0)
    assert vs_default(database) == [0.4]


@pytest.mark.parametrize("defaults", [[], DEFAULTS])
def test_without_a_measured_default_there_is_nothing_to_compare_with(
    database: "FilledDatabase", defaults: list[dict[str, object]]
) -> None:
    case = database.case("add_pi_plus", defaults=defaults)
    database.case("amp_pi_plus", defaults=defaults)
    database.add(case, DEFAULTS[0], utils=(30.0, 30.0))
    database.add(case, {"num_envs": 512, "agent_variant": "hiutil"}, utils=(60.0, 62.0))
    assert vs_default(database) == [None]
