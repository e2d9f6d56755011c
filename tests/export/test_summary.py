import random
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_counts import COUNTED_TRAINING

from tuner.cli.hints import heading_of_command
from tuner.count import TrainingCounts
from tuner.count.signature import Shares
from tuner.export.bound import Bound, Profile
from tuner.export.case_view import CaseView
from tuner.export.findings import Sureness, Topic, findings, findings_beside_table, result_finding
from tuner.export.reader import StudyReader, connect
from tuner.export.summary import CaseSummary, ConfigRow, summary
from tuner.probe import Change
from tuner.records.case_record import CaseRecord, RunRecord, StudyAttributes
from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.study import launch_digest
from tuner.study.space import Config

if TYPE_CHECKING:
    from conftest import FilledDatabase


def passed(passes: int, data: float | None = None) -> TrainingCounts:
    """Return the counts of a training that has passed so often over its data, and waited for it this share of time."""
    shares = None if data is None else Shares(data=data, evaluation=0.0, saves=0.0)
    return replace(COUNTED_TRAINING, passes=passes, shares=shares)


RACE = Path(__file__).parents[2] / "benchmarks/results/races_two_h100/pi_plus_race.db"


def test_every_case_has_its_best_and_its_counts(database: "FilledDatabase") -> None:
    first, second = database.case("add_pi_plus"), database.case("amp_pi_plus")
    metrics = {"min_avg_util": 61.0, "min_avg_util_se": 0.5}
    config = {"num_envs": 1024, "agent_variant": "hiutil", "pruner_patience": 2}
    database.add(first, config, utils=(61.0, 63.0), metrics=metrics)
    elsewhere = {"devices": "GPU-c"}
    database.add(first, {"num_envs": 512, "agent_variant": "default"}, utils=(50.0, 51.0), host=elsewhere)
    database.add(first, {"num_envs": 2048, "agent_variant": "hiutil"}, status="gpu_oom")
    database.add(first, {"num_envs": 32, "agent_variant": "default"}, status="pruned")
    database.add(first, {"num_envs": 32, "agent_variant": "hiutil"}, status="interrupted")
    database.running(first)
    database.add(second, {"num_envs": 2048}, status="hang")
    best = ConfigRow(
        trial=0,
        value=61.0,
        error=0.5,
        readings=1,
        config={"num_envs": 1024, "agent_variant": "hiutil"},
        samples_per_s=15000.126,
        vs_default=None,
        changes_learning=(),
        times=1.0,
        beside_best=(61.0, 61.0),
    )
    summaries = StudyReader(connect(database.url), "pi_plus").rows
    assert summaries == [
        CaseSummary(
            case="add_pi_plus",
            status="ok",
            objective="min_avg_util",
            best=best,
            ok=2,
            pruned=1,
            failed=1,
            interrupted=1,
            running=1,
            measured_on={"GPU-a, GPU-b": 1, "GPU-c": 1},
            profile=Profile(util_pct=61.0),
            bound=Bound.HOST,
            probe_s=306.25,
        ),
        CaseSummary(
            case="amp_pi_plus",
            status="hang",
            objective="min_avg_util",
            best=None,
            ok=0,
            pruned=0,
            failed=1,
            interrupted=0,
            running=0,
            measured_on={},
            probe_s=61.25,
        ),
    ]


def test_the_best_says_what_it_changes_and_makes_of_default(database: "FilledDatabase") -> None:
    default = {"num_envs": 1024, "agent_variant": "default"}
    case = database.case("add_pi_plus", defaults=[default], learning=["agent_variant"])
    database.add(case, default, utils=(50.0, 51.0), samples_per_s=60000.0)
    database.add(case, {**default, "agent_variant": "hiutil"}, utils=(61.0, 63.0), samples_per_s=15000.0)
    (summary,) = StudyReader(connect(database.url), "pi_plus").rows
    assert summary.best is not None
    assert (summary.best.vs_default, summary.best.changes_learning) == (0.25, ("agent_variant",))


def test_a_case_just_started_has_no_trials(database: "FilledDatabase") -> None:
    database.running(database.case("add_pi_plus"))
    (summary,) = StudyReader(connect(database.url), "pi_plus").rows
    assert (summary.status, summary.failed, summary.running) == ("no_trials", 0, 1)


def test_a_config_measured_beside_others_and_alone_has_one_mean_everywhere(database: "FilledDatabase") -> None:
    """Earlier versions counted the probes beside a probe; the count is ignored."""
    case = database.case("add_pi_plus")
    for util, beside in ((85.0, 3), (95.0, 0)):
        database.add(case, {"num_envs": 1024}, utils=(util,), beside=beside)
    (view,) = StudyReader(connect(database.url), "pi_plus").cases
    assert view.best is not None
    assert (view.best.value, view.best.readings, [one.value for one in view.configs]) == (90.0, 2, [90.0])


def test_the_default_of_the_nearest_rung_stands_in_for_one_that_was_not_measured(database: "FilledDatabase") -> None:
    defaults = [{"num_envs": rung} for rung in (64, 1024, 4096)]
    case = database.case("add_pi_plus", defaults=defaults)
    database.add(case, {"num_envs": 64}, utils=(50.0,), samples_per_s=10.0)
    database.add(case, {"num_envs": 1024}, utils=(60.0,), samples_per_s=100.0)
    database.add(case, {"num_envs": 4096, "batch": 2}, utils=(70.0,), samples_per_s=200.0)
    (row,) = StudyReader(connect(database.url), "pi_plus").rows
    assert row.best is not None
    assert row.default is not None
    assert (row.best.trial, row.best.vs_default, row.default.trial, row.default.times) == (2, None, 1, 0.5)


@pytest.mark.parametrize(("failure", "is_doubt"), [("missing_dependency", False), ("gpu_busy", False), ("crash", True)])
def test_a_default_that_fails_later_is_a_doubt_only_where_the_failure_may_be_its_own(
    database: "FilledDatabase", failure: str, is_doubt: bool
) -> None:
    case = database.case("add_pi_plus", defaults=[{"num_envs": 8}])
    database.add(case, {"num_envs": 8}, utils=(50.0,))
    database.add(case, {"num_envs": 8, "batch": 2}, utils=(70.0,))
    database.add(case, {"num_envs": 8}, status=failure)
    (row,) = StudyReader(connect(database.url), "pi_plus").rows
    assert (row.gain is None, bool(row.doubts)) == (is_doubt, is_doubt)


def test_a_replay_names_its_table(database: "FilledDatabase") -> None:
    database.case("add_pi_plus", trainer={"name": "mimickit", "recorded": "2026-11-22"})
    (row,) = StudyReader(connect(database.url), "pi_plus").rows
    assert row.replay_of == "add_pi_plus.parquet of 2026-11-22"


@pytest.mark.parametrize("now", ["missing_dependency", "too_slow"])
def test_the_status_of_a_case_leaves_out_what_was_wrong_with_its_set_up(now: str) -> None:
    statuses = ("invalid_command", "invalid_command", now)  # the command was corrected
    trials = [
        TrialRecord(number=number, state="FAIL", probe=ProbeRecord(status=status))
        for number, status in enumerate(statuses)
    ]
    assert CaseView(name="walk", trials=trials).status == now


STATUSES = st.lists(st.sampled_from(["ok", "pruned", "gpu_oom", "nccl", "hang", "interrupted"]), max_size=12)


@given(STATUSES, st.randoms())
def test_the_commonest_failure_has_most_trials_whatever_the_order(statuses: list[str], chance: random.Random) -> None:
    def commonest(told: list[str]) -> str | None:
        trials = [TrialRecord(state="FAIL", probe=ProbeRecord(status=status)) for status in told]
        return CaseView(name="walk", trials=trials).commonest_failure

    found = commonest(statuses)
    assert commonest(chance.sample(statuses, len(statuses))) == found
    failed = [one for one in statuses if one not in {"ok", "pruned", "interrupted"}]
    if failed:
        assert found == min(set(failed), key=lambda kind: (-failed.count(kind), kind))
    else:
        assert found == ("interrupted" if "interrupted" in statuses else None)


def test_what_changes_learning_is_what_differs_from_the_rung_s_default() -> None:
    default: Config = {"num_envs": 64, "agent_variant": "default", "num_workers": 0, "batch_size": 4}
    record = CaseRecord(defaults=(default,), learning=("agent_variant", "batch_size", "update_epochs"))
    case = CaseView(name="walk", record=record)
    hiutil = {"num_envs": 64, "agent_variant": "hiutil", "update_epochs": 20, "batch_size": 2, "num_workers": 4}
    assert case.changes_learning(hiutil) == ("agent_variant", "update_epochs", "batch_size")
    assert case.changes_learning({**default, "num_workers": 4}) == ()
    assert CaseView(name="walk").changes_learning(hiutil) == ()


def test_the_best_is_compared_with_configs_that_were_measured_in_the_same_way(database: "FilledDatabase") -> None:
    """On a busy machine, sessions read 10 points and a third of the samples/s more than the plain command."""
    default = {"num_envs": 128, "agent_variant": "default"}
    best = {"num_envs": 128, "agent_variant": "hiutil"}
    case = database.case("add_pi_plus", defaults=[default])
    database.add(case, default, utils=(32.4,), samples_per_s=20_000.0, warm=True)
    database.add(case, best, utils=(39.5,), samples_per_s=4_000.0, warm=True)
    database.add(case, best, utils=(28.7,), samples_per_s=3_000.0)
    (row,) = StudyReader(connect(database.url), "pi_plus").rows
    assert row.best is not None
    assert row.default is not None
    assert (row.best.trial, row.best.measured, row.best.vs_default) == (2, "cold", 0.2)
    assert (row.default.beside_best, row.default.times) == ((32.4, 39.5), 5.0)
    (said,) = [str(finding) for finding in findings(row) if finding.topic is Topic.FASTER]
    assert "5.0 times" in said
    assert "39.5" in said
    assert "learns the same as the default; no race has shown" in said
    assert row.fastest == row.default
    assert row.gain is not None
    assert (row.gain.before, row.gain.after, row.gain.times, row.gain.in_sessions) == (32.4, 39.5, 0.2, True)
    assert "7.1 percentage points above" in str(result_finding(row))


def test_a_config_that_only_sessions_measured_is_not_compared_with_one_that_they_did_not(
    database: "FilledDatabase",
) -> None:
    default = {"num_envs": 128, "agent_variant": "default"}
    case = database.case("add_pi_plus", defaults=[default])
    database.add(case, default, utils=(32.4,), samples_per_s=20_000.0, warm=True)
    database.add(case, {"num_envs": 128, "agent_variant": "hiutil"}, utils=(33.0,), samples_per_s=3_000.0)
    (row,) = StudyReader(connect(database.url), "pi_plus").rows
    assert row.best is not None
    assert (row.best.trial, row.best.vs_default, row.faster, row.gain) == (1, None, None, None)
    assert "points" not in str(result_finding(row))


def test_what_cannot_be_compared_is_said_and_has_no_ratio() -> None:
    def ran(number: int, speed: float, **facts: Any) -> TrialRecord:
        config: Config = {"workers": number}
        probe = ProbeRecord(status="ok", digest=launch_digest(config), samples_per_s=speed, **facts)
        return TrialRecord(number=number, values=(speed,), config=config, probe=probe)

    record = CaseRecord(defaults=({"workers": 0},), objective="samples_per_s", ladder=None)
    own = ran(0, 200.0, iteration=10)
    changed = ran(1, 900.0, iteration=200, change=Change(100, 3.0, 4.0))
    row = summary(CaseView(name="walk", record=record, trials=[own, changed]))
    assert row.best is not None
    assert row.default is not None
    assert (row.best.trial, row.default.times, row.default.beside_best) == (1, None, None)
    said = " ".join(map(str, findings_beside_table(row)))
    assert "iteration 100" in said
    assert "cannot be compared with the best" in str(result_finding(row))


PAUSE = "an epoch's end costs 9 s; the numbers are those without it"


@pytest.mark.parametrize(
    ("own", "best", "said"),
    [
        ({}, {"notes": (PAUSE,), "step_share": 0.1}, "epoch's end costs 9 s; if both pause alike, the best is 1.40 "),
        ({"training": passed(0)}, {"training": passed(3)}, "may be faster than the best"),
        ({"training": passed(0, 0.9)}, {"training": passed(3)}, "may be faster than the best"),
        ({"training": passed(0, 0.5)}, {"training": passed(3)}, "in a cache, the default is faster than that"),
        ({"training": passed(0, 0.01)}, {"training": passed(3)}, ""),
        ({"change": Change(100, 9.0, 0.8)}, {"change": Change(300, 9.0, 0.8)}, "#1 looks slower than it is"),
        ({"change": Change(100, 9.0, 0.8)}, {"change": Change(101, 9.0, 0.8)}, ""),  # at the same iteration
        ({"change": Change(3, 1.0, 0.8)}, {"change": Change(9, 1.0, 0.8)}, ""),  # as the training began
    ],
)
def test_what_short_probes_do_not_see_is_said_wherever_results_are_shown(
    own: dict[str, Any], best: dict[str, Any], said: str
) -> None:
    def ran(number: int, speed: float, facts: dict[str, Any]) -> TrialRecord:
        config: Config = {"workers": number}
        probe = ProbeRecord(status="ok", digest=launch_digest(config), samples_per_s=speed, iteration=400, **facts)
        return TrialRecord(number=number, values=(speed,), config=config, probe=probe)

    record = CaseRecord(defaults=({"workers": 0},), objective="samples_per_s", ladder=None)
    row = summary(CaseView(name="walk", record=record, trials=[ran(0, 100.0, own), ran(1, 500.0, best)]))
    shown = " ".join(map(str, findings_beside_table(row)))
    assert said in shown
    assert bool(row.doubts) is bool(said)
    assert heading_of_command(row).endswith("be no faster:" if "may be faster" in said else "to copy:")


def test_that_other_processes_worked_beside_the_best_is_a_doubt() -> None:
    note = "other processes used 80 % of the processors, so another run may give another value"

    def ran(number: int, envs: int, value: float, *notes: str) -> TrialRecord:
        probe = ProbeRecord(status="ok", config={"num_envs": envs}, digest=str(envs), notes=notes)
        return TrialRecord(
            case="walk", number=number, state="COMPLETE", config={"num_envs": envs}, values=(value,), probe=probe
        )

    quiet = CaseView(name="walk", trials=[ran(0, 8, 40.0, "a seed"), ran(1, 16, 50.0)])
    assert summary(quiet).doubts == ()
    busy = CaseView(name="walk", trials=[ran(0, 8, 40.0), ran(1, 16, 50.0, "a seed", note)])
    assert summary(busy).doubts == (f"#1: {note}",)
    (doubt,) = [finding for finding in findings(summary(busy)) if finding.topic is Topic.DOUBT]
    assert (doubt.text, doubt.sureness) == (f"#1: {note}", Sureness.DOUBTFUL)


def test_a_race_says_which_of_the_busiest_and_the_fastest_learns_more(tmp_path: Path) -> None:
    """On two H100s, `hiutil` is busier and `default` faster; one seed of each trained for four minutes."""
    shutil.copy(RACE, tmp_path / "race.db")
    (row,) = StudyReader(connect(f"sqlite:///{tmp_path / 'race.db'}"), "pi_plus_race").rows
    assert (row.best and row.best.trial, row.fastest and row.fastest.trial) == (0, 1)
    (said,) = [str(finding) for finding in findings(row) if finding.topic is Topic.FASTER]
    assert "and learns the same as the default; after 4 min 12 s of a race" in said
    assert "which learns more is not clear: scores 41.1 against 41.9" in said


@pytest.mark.parametrize(("scores", "which"), [((0.0, 5.0), "faster"), ((5.0, 0.0), "busier")])
def test_a_clear_race_says_whether_the_faster_or_the_busier_one_learns_more(
    tmp_path: Path, scores: tuple[float, float], which: str
) -> None:
    shutil.copy(RACE, tmp_path / "race.db")
    (view,) = StudyReader(connect(f"sqlite:///{tmp_path / 'race.db'}"), "pi_plus_race").cases
    runs = [
        RunRecord(config=each.config, seed=seed, seconds=60.0, trained_s=60.0, curve=((1.0, score + seed / 10),))
        for each, score in zip((view.best, view.faster_than_busiest), scores, strict=True)
        if each
        for seed in (0, 1)
    ]
    raced = replace(view, attributes=StudyAttributes({f"race.{at:04d}": asdict(run) for at, run in enumerate(runs)}))
    assert f"after 1 min 00 s of a race the {which} one learns more" in str(summary(raced).race)
