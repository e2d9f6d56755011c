"""`tuner record` with a tiny real trainer, and `tuner optimize --replay` on its table."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests_cli import Tuner, run_in, study_file

from tuner.running.events import Ending

LADDER = {"num_envs": {"ladder": [8, 12, 16]}}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a whole space has been recorded."""
    folder = tmp_path_factory.mktemp("recording")
    run_in(folder, "record", "--study", study_file(folder, space=LADDER))
    return folder


def test_a_grid_is_recorded_and_there_is_nothing_left(
    tuner: Tuner, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recording)
    code, out, err = tuner("record", "--study", recording / "demo.yaml")
    assert (code, err) == (0, "")
    assert "nothing left to do; 0 trials" in out
    assert "walk: 3 configs recorded, 0 of 3 left" in out
    assert "wrote runs/demo/tables/walk.parquet, runs/demo/tables/walk.json" in out
    table = pd.read_parquet(recording / "runs/demo/tables/walk.parquet")
    assert sorted(table["num_envs"]) == [8, 12, 16]
    assert set(table["status"]) == {"ok"}


def test_a_recording_and_a_search_do_not_mix(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, space=LADDER, pruner={"name": "none"})
    shared = ("--study", study, "--storage", f"sqlite:///{tmp_path / 'shared.db'}")
    tuner("optimize", *shared, "--n-trials", 1)
    _, out, _ = tuner("record", *shared, "--configs", 1)
    assert ("0 of 1 trials done" in out, "stands in" in out) == (True, False)
    _, out, _ = tuner("optimize", *shared, "--n-trials", 1)
    assert "1 of 1 trials done" in out


def test_a_sample_goes_on_to_the_grid(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, space=LADDER)
    code, out, _ = tuner("record", "--study", study, "--configs", 1)
    assert (code, "walk: 1 config recorded, 0 of 1 left" in out) == (0, True)
    _, out, _ = tuner("record", "--study", study)
    assert "walk: 3 configs recorded, 0 of 3 left" in out
    assert json.loads((tmp_path / "runs/demo/tables/walk.json").read_text())["rows"] == 3


def test_without_time_a_recording_says_what_is_left(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, space=LADDER)
    tuner("record", "--study", study, "--configs", 1)
    code, out, _ = tuner("record", "--study", study, "--hours", 0)
    assert (code, "walk: 1 config recorded, 2 of 3 left" in out) == (0, True)
    assert "the 0.0 s of --hours are over; rerun to resume" in out


@pytest.mark.parametrize("others", [False, True])
def test_without_time_a_recording_that_has_not_begun_says_so(tuner: Tuner, tmp_path: Path, others: bool) -> None:
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    if others:
        other = study_file(tmp_path, space=LADDER, name="other")
        tuner("record", "--study", other, "--configs", 1, "--storage", storage)
    study = study_file(tmp_path, space=LADDER, cases=["walk", "run"])
    code, out, err = tuner("record", "--study", study, "--hours", 0, "--storage", storage)
    assert (code, err) == (0, "")
    assert out.splitlines()[-3:] == [
        "the 0.0 s of --hours are over; rerun to resume",
        "walk: nothing recorded yet, 3 configs left",
        "run: nothing recorded yet, 3 configs left",
    ]


@pytest.fixture
def table(tuner: Tuner, tmp_path: Path, recording: Path) -> Path:
    """Return the recorded table, copied into the folder where the command line runs."""
    shutil.copytree(recording / "runs/demo/tables", tmp_path / "tables")
    return Path("tables/walk.parquet")


def test_a_table_is_replayed_with_the_same_exports(tuner: Tuner, tmp_path: Path, table: Path) -> None:
    study = study_file(
        tmp_path,
        trainer={"name": "command", "options": {"command": "false {num_envs}", "cases": ["z"]}},
        search={"sampler": "tpe"},
    )
    server = ("--storage", "postgresql+psycopg://me@nowhere/db")  # on which a replay would stand in the study's place
    code, out, err = tuner("optimize", "--study", study, "--replay", table, *server)
    assert (code, err) == (0, "")
    assert "walk" in tuner("status", "--study", "demo-replay", *server)[1]
    assert "replaying tables/walk.parquet: 3 configs of walk" in out
    assert "no further probe pays; 3 trials now: every config has been probed" in out
    assert " on 2 device" in out
    best = (tmp_path / "runs/demo-replay/best_by_case.tsv").read_text().splitlines()
    assert best[1].startswith("walk\twalk\tok\t\t16\t")
    code, out, _ = tuner("optimize", "--study", study, "--replay", table, "--n-trials", 3)
    assert (code, "nothing left to do" in out, "simulated: 0.0 s" in out) == (0, True, True)


def test_scripts_get_lines_of_json_and_quiet_is_quiet(tuner: Tuner, tmp_path: Path, table: Path) -> None:
    study = study_file(tmp_path, search={"sampler": "random"})  # which probes no config a second time
    replay = ("optimize", "--study", study, "--replay", table)
    code, out, err = tuner(*replay, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    words = [event["event"] for event in events]
    assert (code, words[:2], words[-2:]) == (0, ["study_started", "case_started"], ["case_ended", "study_ended"])
    assert words.count("probe_started") == words.count("probe_ended") == 3
    assert events[-1]["cases"][0]["best"]["config"] == {"num_envs": 16}
    assert "case walk: 0 of" not in err
    assert " on 2 device" in err
    code, out, err = tuner(*replay, "--quiet")
    assert (code, err) == (0, "")
    assert "walk" in out
    assert not re.search("case walk|simulated|wrote", out)


def test_workers_share_a_study(tuner: Tuner, tmp_path: Path, table: Path) -> None:
    study = study_file(tmp_path, search={"sampler": "random"})  # which probes no config a second time
    code, out, err = tuner("optimize", "--study", study, "--replay", table, "--workers", 2)
    assert (code, err) == (0, "")
    probed = re.findall(r"worker [12]: #(\d) (?:\(trial \d of \d+\) )?num_envs=(\d+)", out)
    assert sorted(number for number, _ in probed) == ["0", "1", "2"]
    assert sorted(envs for _, envs in probed) == ["12", "16", "8"]
    assert {"1", "2"} == set(re.findall(r"worker ([12]): case walk: \d of", out))
    rows = (tmp_path / "runs/demo-replay/trials.tsv").read_text().splitlines()[1:]
    assert len(rows) == 3
    assert not any("interrupted" in row for row in rows)


def test_an_error_of_all_workers_is_shown_once(
    tuner: Tuner, tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_file(tmp_path)
    (tmp_path / "runs/demo-replay").mkdir(parents=True)
    (tmp_path / "runs/demo-replay/probes").write_text("no folder")
    code, _, said = tuner("worker", "--study", study, "--replay", table)
    assert (code, said.count("probes")) == (2, 1)
    python = tmp_path / "python"  # each worker of the team says what one of them has said
    python.write_text(f"#!/bin/sh\ncat >&2 << 'END'\n{said}END\nexit {code}\n")
    python.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(python))
    code, _, err = tuner("optimize", "--study", study, "--replay", table, "--workers", 2)
    assert (code, err) == (2, said)


def test_what_replayed_probes_took_is_no_time_of_the_replay_s_own(tuner: Tuner, tmp_path: Path, table: Path) -> None:
    rows = pq.read_table(table)
    place = rows.column_names.index("total_s")
    pq.write_table(rows.set_column(place, rows.field(place), [[1e6] * rows.num_rows]), table)
    study = study_file(tmp_path, search={"sampler": "random"})  # which prices of probes do not end
    replay = ("optimize", "--study", study, "--replay", table, "--n-trials", 2, "--hours", 24)
    code, out, _ = tuner(*replay)
    assert (code, f"{Ending.TARGET}; 2 trials now" in out) == (0, True)


def test_another_recording_of_a_case_is_replayed_in_a_folder_of_its_own(
    tuner: Tuner, tmp_path: Path, table: Path
) -> None:
    study = study_file(tmp_path, search={"sampler": "random"})
    replay = ("optimize", "--study", study, "--replay", table)
    assert tuner(*replay)[0] == 0
    header = tmp_path / table.with_suffix(".json")
    facts = json.loads(header.read_text())
    header.write_text(json.dumps(facts | {"date": "2031-01-01T00:00:00Z"}))
    code, _, err = tuner(*replay)
    assert code == 2
    assert f"trainer.recorded: was '{facts['date']}', is '2031-01-01T00:00:00Z'" in err
    assert "another folder for the runs" in err
    code, out, _ = tuner(*replay, "--runs", "runs/again")
    assert (code, "report: runs/again/demo-replay/report.html; beside it best_by_case.tsv" in out) == (0, True)


@pytest.mark.parametrize("option", [("--cases", "walk"), ("--devices", "cpu:2")])
def test_case_and_devices_of_a_replay_are_the_table_s(
    tuner: Tuner, tmp_path: Path, table: Path, option: tuple[str, str]
) -> None:
    code, _, err = tuner("optimize", "--study", study_file(tmp_path), "--replay", table, *option)
    assert (code, option[0] in err) == (2, True), err


def test_a_table_that_is_not_there_is_named(tuner: Tuner, tmp_path: Path) -> None:
    code, _, err = tuner("optimize", "--study", study_file(tmp_path), "--replay", "nowhere.parquet")
    assert (code, "nowhere.json" in err) == (2, True)


def test_cards_that_a_study_does_not_want_are_named(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.optimizing.spare_cards", lambda devices: {"cpu:2": 6}[devices])
    code, out, err = tuner("optimize", "--study", study_file(tmp_path), "--n-trials", "1")
    assert (code, err) == (0, "")
    assert "the study wants 2 cards, so 6 more stay free; `tuner optimize --workers 4` searches on them, too" in out
