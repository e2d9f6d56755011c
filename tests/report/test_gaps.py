"""A report of what is left: a study without a result, folders and logs that are gone, damaged or half-written."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests_filled import FilledDatabase

from tuner.errors import StoreError
from tuner.export.reader import StudyReader, connect
from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample
from tuner.probe.series import SERIES_FILE, write_series
from tuner.probe.window import Mark, Window
from tuner.records.schema import PROBE
from tuner.report.charts import parallel, pictures
from tuner.report.facts import CaseFacts, StudyFacts, gather, result_sentences, study_headline
from tuner.report.page import render

CARDS = (Device(name="cuda:0", model="x"), Device(name="cuda:1", model="x"))
MARKS = tuple(Mark(iteration=number, t_s=2.0 + number) for number in range(6))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def report(database: FilledDatabase, folder: Path) -> StudyFacts:
    """Gather the facts of a study, and check that its report can be written."""
    study = gather(StudyReader(connect(database.url), "pi_plus"), folder)
    text = render(study, commands={})
    assert all(case.summary.case in text for case in study.cases)
    assert all(line in text.replace("&#39;", "'") for case in study.cases for line in case.missing)
    return study


def only(study: StudyFacts) -> CaseFacts:
    (case,) = study.cases
    return case


def test_a_study_without_a_finished_trial_says_so(database: FilledDatabase, tmp_path: Path) -> None:
    empty, begun = database.case("add_pi_plus"), database.case("amp_pi_plus")
    database.running(begun)
    study = report(database, tmp_path)
    assert [case.missing for case in study.cases] == [("no trial has given a number yet",)] * 2
    assert [result_sentences(case) for case in study.cases] == ["No trial has ended yet."] * 2
    assert study_headline(study) == "0 of 2 begun cases have a best config; 2 without an ended trial."
    assert not any(pictures(case) for case in study.cases)
    assert empty.study_name == "pi_plus/add_pi_plus"


def test_a_case_in_which_everything_failed_shows_why(database: FilledDatabase, tmp_path: Path) -> None:
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 4096}, status="gpu_oom", detail=OOM, out_dir="probes/add_pi_plus/0000")
    database.add(case, {"num_envs": 2048}, status="gpu_oom", detail=OOM, out_dir="probes/add_pi_plus/0001")
    folder = tmp_path / "probes/add_pi_plus/0000"
    folder.mkdir(parents=True)
    log = ["first line", *(f"building {number}" for number in range(50)), f"[rank1]: {OOM}", "NCCL teardown"]
    (folder / "console.log").write_bytes("\n".join(log).encode() + b"\xff\0 half a char")
    facts = only(report(database, tmp_path))
    (failed,) = facts.failures
    assert (failed.kind, failed.trials, failed.example) == ("gpu_oom", 2, 0)
    assert failed.excerpt is not None
    assert f"[rank1]: {OOM}\nNCCL teardown" in failed.excerpt
    assert "first line" not in failed.excerpt
    assert facts.out_of_memory == (2048, 4096)
    assert parallel(facts) is None  # nothing lies beside the axis num_envs


def test_a_disturbed_reading_has_one_error_in_the_whole_report(database: FilledDatabase, tmp_path: Path) -> None:
    case = database.case("add_pi_plus", defaults=[{"num_envs": 128, "batch_size": 128}])
    for num_envs, util in ((64, 40.0), (128, 30.0)):
        device = {"device": "cpu:0", "source": "process_cpu", "delayed_mean_pct": 50.0}
        metrics = {"min_avg_util": util, "min_avg_util_se": 1.0}
        config = {"num_envs": num_envs, "batch_size": num_envs}
        database.add(case, config, utils=(util,), metrics=metrics, devices=[device])
    study = report(database, tmp_path)
    page = render(study, commands={})
    assert page.count("40.0 ± 28.3") == 3  # it may be 80: in tables, sentences, and beside the line of the trial
    assert "Utilisation +10.0 ± 35.4 percentage points" in page
    assert "± 1.0" not in page
    (bars,) = [picture.data[0]["error_y"]["array"] for picture in pictures(only(study)) if picture.name == "history"]
    assert bars == pytest.approx([28.3, 21.2], abs=0.1)


def test_logs_that_are_gone_are_named(database: FilledDatabase, tmp_path: Path) -> None:
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 64}, utils=(50.0, 60.0), out_dir="probes/add_pi_plus/0000")
    database.add(case, {"num_envs": 4096}, status="gpu_oom", detail=OOM, out_dir="probes/add_pi_plus/0001")
    (tmp_path / "probes/add_pi_plus/0001/console.log").mkdir(parents=True)  # no file
    facts = only(report(database, tmp_path))
    assert facts.missing == (
        "what the devices of the best's probe showed over time: there is no series in probes/add_pi_plus/0000",
        "a console log of gpu_oom: the folders of these probes are not here any more",
    )


@pytest.mark.parametrize("left", [1.0, 0.5, 0.01])
def test_half_a_series_is_drawn_as_far_as_it_goes(database: FilledDatabase, tmp_path: Path, left: float) -> None:
    database.add(database.case("add_pi_plus"), {"num_envs": 64}, utils=(50.0, 60.0), out_dir="probe")
    (tmp_path / "probe").mkdir()
    samples = [DeviceSample(t_s=tick / 10, device=card, util_pct=50.0) for tick in range(90) for card in range(2)]
    write_series(tmp_path / "probe", samples, CARDS, marks=MARKS, window=Window(MARKS[1:]))
    content = (tmp_path / "probe" / SERIES_FILE).read_bytes()
    (tmp_path / "probe" / SERIES_FILE).write_bytes(content[: int(left * len(content))])
    facts = only(report(database, tmp_path))
    drawn = [picture for picture in pictures(facts) if picture.name == "over_time"]
    if left < 0.1:
        assert not drawn
        assert "there is no series in probe" in facts.missing[0]
        return
    (picture,) = drawn
    assert [trace["name"] for trace in picture.data] == ["cuda:0", "cuda:1"]
    assert picture.layout["shapes"][0]["x0"] == pytest.approx(3.0, abs=0.11)
    assert len(picture.layout["shapes"]) == 1 + sum(mark.t_s < 9.0 * left for mark in MARKS)


@pytest.mark.parametrize(("library", "schema"), [("2.10.0", "v2.6.0.a"), ("9.9.0", "v9.9.0")])
def test_a_database_of_another_optuna_is_read_as_far_as_its_tables_are_the_same(
    database: FilledDatabase, tmp_path: Path, library: str, schema: str
) -> None:
    database.add(database.case("add_pi_plus"), {"num_envs": 64}, utils=(50.0, 60.0))
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection, connection:
        connection.execute("UPDATE version_info SET library_version = ?, schema_version = 99", [library])
        connection.execute("UPDATE alembic_version SET version_num = ?", [schema])
        connection.execute("ALTER TABLE trials ADD COLUMN mood TEXT")
    assert result_sentences(only(report(database, tmp_path))).startswith("The best reaches 50.0 min_avg_util")
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection, connection:
        connection.execute("ALTER TABLE trial_values RENAME COLUMN objective TO goal")
    with pytest.raises(StoreError, match="is no study database of Optuna 5: its table trial_values lacks objective"):
        report(database, tmp_path)


def test_hosts_with_another_number_of_devices_and_damaged_records_cost_no_report(
    database: FilledDatabase, tmp_path: Path
) -> None:
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 64}, utils=(50.0, 60.0))
    database.add(case, {"num_envs": 64}, utils=(70.0,))
    for damaged in ("{", '{"config": 1}', "[]"):
        trial = case.ask()
        trial.set_user_attr(PROBE, damaged)
        case.tell(trial, 1.0)
    facts = only(report(database, tmp_path))
    assert [point.value for point in facts.points] == [60.0]
    assert facts.summary.left_out == 3


def test_records_with_anything_missing_make_a_report(database: FilledDatabase, tmp_path: Path) -> None:
    chance = random.Random(25)  # a study has some 20 fields that may be unknown; all of them are, somewhere
    case = database.case("add_pi_plus", defaults=[{"num_envs": 64}], learning=["batch"])
    for _ in range(40):
        config = {"num_envs": chance.choice([64, 128, "odd"]), "batch": chance.choice([1, True, "b", 0.5])}
        unknown = chance.sample(["total_s", "start_up_s", "window_s", "samples_per_s", "started_at"], 3)
        metrics = {"min_avg_util": 50.0, "min_avg_sm": chance.choice([None, 40.0]), "headroom_pct": None}
        status = chance.choice(["ok", "pruned", "gpu_oom", "hang", "no_reading"])
        config = {name: value for name, value in config.items() if chance.random() < 0.8}
        more: dict[str, Any] = dict.fromkeys(unknown) | {
            "metrics": metrics,
            "host": {},
            "out_dir": chance.choice(["", None, "x"]),
        }
        database.add(case, config, utils=(chance.uniform(0, 100),), status=status, **more)
    assert report(database, tmp_path).machine == {}


HOSTILE = "<img src=x onerror=alert(1)> [click](javascript:alert(1)) | `code` \x1b[2J"
LOG = f"{HOSTILE}\n```\n<script>alert(1)</script>\n~~~\n````\n"


@pytest.mark.parametrize("out_dir", ["../../victim", "probes/0"])
def test_a_hostile_database_and_log_stay_text(database: FilledDatabase, tmp_path: Path, out_dir: str) -> None:
    """A log is read inside the study's folder alone, and on the page it is nothing but text."""
    case = database.case("add_pi_plus")
    database.add(case, {"num_envs": 64}, status="crash", detail=HOSTILE, out_dir=out_dir)
    database.add(case, {"num_envs": 128, "note": HOSTILE}, utils=(50.0,), out_dir=out_dir)
    study_folder = tmp_path / "runs/pi_plus"
    (study_folder / out_dir).mkdir(parents=True)
    (study_folder / out_dir / "console.log").write_text(f"secret of another folder\n{LOG}")
    study = gather(StudyReader(connect(database.url), "pi_plus"), study_folder)
    text = render(study, commands={"add_pi_plus": HOSTILE})
    assert ("secret of another folder" in text) == (out_dir == "probes/0")
    assert "<img src=x" not in text
    assert "&lt;img src=x onerror" in text
