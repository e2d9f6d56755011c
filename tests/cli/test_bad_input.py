"""Every error that a user can cause ends in one clear message, exit code 2 and no traceback."""

import errno
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import create_engine
from tests_cli import Tuner, study_file
from tests_docs import ROOT
from tests_mimickit import pi_plus_checkout
from tests_postgresql import GUARDED

from tuner.records.schema import LEASE
from tuner.store.leases import Lease

pytestmark = pytest.mark.usefixtures("tuner")


def refused(answer: tuple[int, str, str], *words: str) -> None:
    code, out, err = answer
    assert code == 2
    assert "Traceback" not in out + err
    for word in words:
        assert word in err


def test_no_study(tuner: Tuner) -> None:
    refused(tuner("optimize"), "--study")


@pytest.mark.parametrize("command", [[], ["optimize"]])
def test_help_has_a_short_option(tuner: Tuner, command: list[str]) -> None:
    code, out, _ = tuner(*command, "-h")
    assert (code, "Usage: " in out, "--help" in out) == (0, True, True)


def test_a_misspelt_study_lists_the_known_ones(tuner: Tuner) -> None:
    refused(tuner("optimize", "--study", "pi_pluss"), "pi_pluss", "pi_plus", "reference")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tirals": 3}, ["tirals: unknown key", "known: name, trainer"]),
        ({"space": {"num_envs": {"ladder": []}}}, ["space.num_envs.ladder: is empty"]),
        ({"space": {"num_envs": {"ladder": [8, 0]}}}, ["space.num_envs.ladder.1", "greater than or equal to 1"]),
        (
            {"space": {"num_envs": {"ladder": [8], "when": {"variant": "hiutil"}}}},
            ["condition on unknown parameter", "variant"],
        ),
        ({"objective": "utilisation"}, ["utilisation", "min_avg_util"]),
        ({"objective": "util,util,fun"}, ["'min_avg_util' is named 2 times", "'fun' is unknown"]),
        (
            {"objective": "util,samples_per_s", "search": {"sampler": "gain"}},
            ["gain needs exactly one objective", "min_avg_util,samples_per_s", "write tpe"],
        ),
        ({"cases": ["nothing*"]}, ["nothing*", "walk"]),
        ({"trainer": {"name": "isaac"}}, ["isaac", "mimickit"]),
        ({"devices": "gpu"}, ["devices"]),
    ],
    ids=[
        "key",
        "empty-ladder",
        "rung-0",
        "condition",
        "objective",
        "objectives",
        "gain",
        "no-case",
        "trainer",
        "devices",
    ],
)
def test_a_bad_study_file(tuner: Tuner, tmp_path: Path, changes: dict[str, object], words: list[str]) -> None:
    refused(tuner("optimize", "--study", study_file(tmp_path, **changes)), *words)


def test_all_errors_of_a_study_file_at_once(tuner: Tuner, tmp_path: Path) -> None:
    bad = study_file(tmp_path, tirals=3, probe={"iterations": 0}, space={"num_envs": {"ladder": [-1]}})
    refused(tuner("optimize", "--study", bad), "error(s)", "tirals", "probe.iterations", "space.num_envs.ladder.0")


def test_a_mimickit_root_without_args(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIMICKIT_ROOT", str(tmp_path))
    refused(tuner("optimize", "--study", "pi_plus"), "args", "MIMICKIT_ROOT")


@pytest.mark.parametrize(("content", "why"), [(b"agent_name: \xff\xfe", "UTF-8"), (b"a: [1", "not YAML")])
def test_an_agent_file_that_cannot_be_read(tuner: Tuner, tmp_path: Path, content: bytes, why: str) -> None:
    root = tmp_path / "MimicKit"
    for name in ("args", "data/agents", "data/engines", "mimickit"):
        (root / name).mkdir(parents=True)
    (root / "mimickit/run.py").touch()
    (root / "data/engines/newton_engine.yaml").touch()
    (root / "e.yaml").touch()
    (root / "args/walk_args.txt").write_text("--agent_config data/agents/a.yaml --env_config e.yaml")
    (root / "data/agents/a.yaml").write_bytes(content)
    trainer = {"name": "mimickit", "root": str(root), "options": {"engine_config": "data/engines/newton_engine.yaml"}}
    study = study_file(tmp_path, trainer=trainer, devices="cpu:2")
    answer = tuner("optimize", "--study", study)
    refused(answer, "a.yaml", why)
    assert answer[1].index("walk: cannot run: ") < answer[1].index("missing_asset")  # said before the case's turn
    refused(tuner("plan", "--study", study), "a.yaml", why)


def test_a_storage_that_cannot_be_reached(tuner: Tuner, tmp_path: Path) -> None:
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/nothing"
    code, out, err = tuner("optimize", "--study", study_file(tmp_path), "--storage", url)
    refused((code, out, err), "127.0.0.1:1")
    assert "secret" not in out + err


@pytest.mark.parametrize("command", [["optimize"], ["optimize", "--workers", 2], ["status"]])
def test_a_wrong_password_is_refused_and_not_repeated(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgresql_server: str, command: list[object]
) -> None:
    engine = create_engine(postgresql_server)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"drop role if exists {GUARDED}")
        connection.exec_driver_sql(f"create role {GUARDED} login password 'right'")
    engine.dispose()
    monkeypatch.setenv("TUNER_STORAGE", postgresql_server.replace("tuner@", f"{GUARDED}:wrong-word@"))
    code, out, err = tuner(*command, "--study", study_file(tmp_path))
    refused((code, out, err), f"{GUARDED}:***@", "password authentication failed")
    assert "wrong-word" not in out + err + "".join(file.read_text() for file in tmp_path.rglob("*.*") if file.is_file())


def test_a_database_of_another_schema(tuner: Tuner, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table songs (name text)")
    other.close()
    answer = tuner("optimize", "--study", study_file(tmp_path), "--storage", f"sqlite:///{tmp_path / 'other.db'}")
    refused(answer, "other.db", "songs")


def test_a_file_that_is_no_database(tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are my notes, not a database; " * 40)
    answer = tuner("optimize", "--study", study_file(tmp_path), "--storage", f"sqlite:///{tmp_path / 'notes.db'}")
    refused(answer, "notes.db")
    assert (tmp_path / "notes.db").read_text().startswith("these are my notes")


def test_a_card_that_is_not_there(tuner: Tuner, tmp_path: Path) -> None:
    refused(tuner("optimize", "--study", study_file(tmp_path), "--devices", "0,97"), "97")


def test_an_objective_that_these_devices_do_not_tell(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, objective="sm", space={"num_envs": {"ladder": [4, 8, 12, 16]}})
    answer = tuner("optimize", "--study", study)
    refused(answer, "reports no min_avg_sm", "name another objective")
    assert "#2" in answer[1]
    assert "#3" not in answer[1]


def test_a_trainer_that_crashes_says_where_to_read_why(tuner: Tuner, tmp_path: Path) -> None:
    trainer = {"name": "command", "options": {"command": "false {num_envs}", "cases": ["walk"]}}
    study = study_file(tmp_path, trainer=trainer, space={"num_envs": {"ladder": [4, 8, 12]}})
    refused(tuner("optimize", "--study", study), "case walk: crash", "the newest console.log under probes/walk")
    assert list((tmp_path / "runs/demo/probes/walk").glob("*/console.log"))


@pytest.mark.parametrize("command", ["optimize", "record", "recover", "plan", "doctor"])
def test_a_value_that_the_trainer_cannot_use_is_refused_before_any_probe(
    tuner: Tuner, tmp_path: Path, command: str
) -> None:
    space = {"num_envs": {"ladder": [8]}, "agent_variant": {"choices": ["default", "hiutl"]}}
    trainer = {"name": "reference", "python": "/bin/true"}  # loads no torch for the doctor
    study = study_file(tmp_path, trainer=trainer, cases=["*"], space=space)
    refused(tuner(command, "--study", study), "agent_variant 'hiutl': Input should be 'default' or 'hiutil'")
    assert not list(tmp_path.glob("runs/*/probes"))


@pytest.mark.parametrize("program", ["no-such-program", "LR=1"])
def test_a_program_that_is_not_there(tuner: Tuner, tmp_path: Path, program: str) -> None:
    trainer = {"name": "command", "options": {"command": f"{program} 'two words' {{num_envs}}", "cases": ["walk"]}}
    study = study_file(tmp_path, trainer=trainer)
    for command in ("optimize", "plan", "doctor"):
        refused(tuner(command, "--study", study), f"there is no program '{program}'")
    assert not list(tmp_path.glob("runs/*/probes"))


@pytest.mark.parametrize(("name", "case"), [("mimickit", "*pi_plus*"), ("command", "*")])
def test_a_python_that_is_not_there(tuner: Tuner, tmp_path: Path, name: str, case: str) -> None:
    trainer = {"name": name, "python": "/nowhere/python", "root": str(pi_plus_checkout(tmp_path / "MimicKit"))}
    options = {"options": {"command": "python train.py {num_envs}"}} if name == "command" else {}
    study = study_file(tmp_path, trainer=trainer | options, cases=[case], devices="cpu:2")
    for command in ("optimize", "plan", "doctor", "try", "record", "recover", "scale"):
        refused(tuner(command, "--study", study), "/nowhere/python")
    assert not list(tmp_path.glob("runs/*/probes"))


@pytest.mark.parametrize("trials", ["0", "-3", "many"])
def test_a_target_that_is_no_positive_number(tuner: Tuner, tmp_path: Path, trials: str) -> None:
    refused(tuner("optimize", "--study", study_file(tmp_path), "--n-trials", trials), "--n-trials")


@pytest.mark.parametrize("option", ["--cases", "--devices", "--storage", "--runs"])
def test_an_option_left_empty_does_not_mean_the_default(tuner: Tuner, tmp_path: Path, option: str) -> None:
    refused(tuner("optimize", "--study", study_file(tmp_path), option, ""), option, "empty", "leave the option out")


def end_of_its_process(database: Path) -> None:
    """Make the trial that runs one of a process that is gone; here all commands run in one process."""
    study = optuna.load_study(study_name="demo/walk", storage=f"sqlite:///{database}")
    (running,) = study.get_trials(states=[TrialState.RUNNING])
    study._storage.set_trial_user_attr(running._trial_id, LEASE, replace(Lease.mine(), ticks=1).write())


def test_a_full_disk_keeps_what_was_measured(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_file(tmp_path)
    assert tuner("optimize", "--study", study, "--n-trials", 1)[0] == 0
    with monkeypatch.context() as full:
        full.setattr("tuner.probe.probe_plan.Slot.console", Path("/dev/full"))
        refused(tuner("optimize", "--study", study, "--n-trials", 2), "No space left", "resume")
    end_of_its_process(tmp_path / "runs/demo/study.db")
    code, out, _ = tuner("optimize", "--study", study, "--n-trials", 2)
    assert code == 0
    assert "1 of 2 trials done" in out


def with_another_run(folder: Path, *ladder: int) -> Path:
    """Write a study of two cases. The second case has its own ladder."""
    run = {"match": {"cases": ["run"]}, "space": {"num_envs": {"ladder": [*ladder]}}}
    return study_file(folder, space={"num_envs": {"ladder": [8]}}, overrides=[run], cases=["walk", "run"])


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (("optimize", "--n-trials", "1"), "report: runs/demo/report.html; beside it best_by_case.tsv"),
        (("recover",), "wrote runs/demo/best_by_case.tsv"),
        (("record",), "wrote runs/demo/tables/walk.parquet"),
    ],
)
def test_an_error_in_a_later_case_comes_below_what_was_measured_before(
    tuner: Tuner, tmp_path: Path, command: tuple[str, ...], written: str
) -> None:
    study = with_another_run(tmp_path, 16)
    for runs in ("runs", "other"):
        in_the_way = tmp_path / runs / "demo" / ("record/probes" if "record" in command else "probes") / "run"
        in_the_way.parent.mkdir(parents=True)
        in_the_way.write_text("a file where the case's folder should be")
    answer = tuner(*command, "--study", study)
    refused(answer, "probes/run cannot be made")
    assert written in answer[1]
    at_first = tuner(*command, "--study", study, "--cases", "run", "--runs", "other")
    refused(at_first, "probes/run cannot be made")
    assert not {"wrote", "report:"} & {*at_first[1].split()}


@pytest.mark.parametrize("command", [("optimize", "--n-trials", "1"), ("record",)], ids=" ".join)
def test_a_later_case_that_was_begun_otherwise_is_refused_before_the_first_probe(
    tuner: Tuner, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert tuner(*command, "--study", with_another_run(tmp_path, 8), "--cases", "run")[0] == 0
    answer = tuner(*command, "--study", with_another_run(tmp_path, 8, 16))
    refused(answer, "study demo/run", "was started with other settings", "space.num_envs")
    assert "case walk" not in answer[1]


@pytest.mark.parametrize(
    "command",
    ["optimize", "recover", "record"],
)
def test_a_folder_that_cannot_be_written_is_noticed_before_the_first_probe(
    tuner: Tuner, tmp_path: Path, command: str
) -> None:
    (tmp_path / "taken").write_text("a file")
    elsewhere = f"sqlite:///{tmp_path / 'study.db'}"
    answer = tuner(command, "--study", study_file(tmp_path), "--storage", elsewhere, "--runs", "taken/here")
    refused(answer, f"cannot write {tmp_path / 'taken/here'}", "Not a directory", "choose another folder")
    assert answer[1] == ""
    assert not (tmp_path / "study.db").exists()


def test_a_study_that_was_never_run(tuner: Tuner, tmp_path: Path) -> None:
    for command in ("status", "export", "dashboard"):
        answer = tuner(command, "--study", study_file(tmp_path))
        refused(answer, "no study database", "demo", "tuner optimize")
        assert answer[1] == ""


def test_a_database_without_the_study(tuner: Tuner, tmp_path: Path) -> None:
    optuna.create_study(storage="sqlite:///studies.db", study_name="mine/walk")
    answer = tuner("dashboard", "--study", study_file(tmp_path), "--storage", "sqlite:///studies.db")
    refused(answer, "studies.db has no study 'demo'; its studies are mine")


@pytest.mark.parametrize("command", ["status", "optimize"])
def test_a_storage_that_is_no_url(tuner: Tuner, tmp_path: Path, command: str) -> None:
    refused(tuner(command, "--study", study_file(tmp_path), "--storage", "study.db"), "its form is sqlite:///PATH")


@pytest.mark.parametrize("command", ["status", "export", "plan", "dashboard", "optimize", "doctor"])
def test_a_folder_that_cannot_be_reached(tuner: Tuner, tmp_path: Path, command: str) -> None:
    answer = tuner(command, "--study", study_file(tmp_path), "--runs", tmp_path / ("a" * 300))
    refused(answer, "aaa", "File name too long")


def test_a_folder_that_no_database_url_can_spell(tuner: Tuner, tmp_path: Path) -> None:
    answer = tuner("status", "--study", study_file(tmp_path), "--runs", os.fsdecode(b"gr\xf6sse"))
    refused(answer, "is not UTF-8", "name another folder for the runs")


def test_a_working_directory_that_is_gone(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, gone = study_file(tmp_path), tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    refused(tuner("optimize", "--study", study), "the working directory no longer exists; change to another one")


@pytest.mark.parametrize("cause", [errno.EROFS, errno.ESTALE, errno.EIO], ids=os.strerror)
def test_a_disk_that_does_not_answer(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: int) -> None:
    def fail(path: Path) -> bool:
        raise OSError(cause, os.strerror(cause), str(path))

    study = study_file(tmp_path)
    monkeypatch.setattr(Path, "is_file", fail)
    refused(tuner("cases", "--study", study), f"demo.yaml cannot be used: {os.strerror(cause)}; name another path")


LIMITS = {
    errno.EMFILE: "ulimit -a",
    errno.EAGAIN: "ulimit -a",
    errno.ENOMEM: "memory",
    errno.EADDRINUSE: "Address already in use",
    errno.ENOENT: "/proc/meminfo",
}


@pytest.mark.parametrize("cause", list(LIMITS), ids=os.strerror)
def test_a_limit_of_the_machine(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: int) -> None:
    def fail(path: Path) -> bool:
        file = "/proc/meminfo" if cause == errno.ENOENT else None
        raise MemoryError if cause == errno.ENOMEM else OSError(cause, os.strerror(cause), file)

    study = study_file(tmp_path)
    monkeypatch.setattr(Path, "is_file", fail)
    refused(tuner("cases", "--study", study), LIMITS[cause], "run the command again")


def test_a_library_that_cannot_be_loaded(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bool:
        raise ImportError("libarrow.so: failed to map segment from shared object")

    study = study_file(tmp_path)
    monkeypatch.setattr(Path, "is_file", fail)
    refused(tuner("cases", "--study", study), "libarrow.so: failed to map segment", "ulimit -a")


def test_python_without_its_packages_is_told_in_one_line() -> None:
    words = [sys.executable, "-S", "-m", "tuner", "status"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "No module named" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_error_without_the_memory_to_format_it(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tuner.cli.options.open_console", fail)
    refused(tuner("cases", "--study", "reference"), "memory ran out")


def test_links_that_lead_to_each_other(tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to("runs")
    refused(tuner("status", "--study", study_file(tmp_path)), "runs/demo")


def test_a_folder_in_the_place_of_a_table(tuner: Tuner, tmp_path: Path) -> None:
    refused(tuner("optimize", "--study", study_file(tmp_path), "--replay", "."), "--replay", "is a directory")


def test_a_study_file_that_cannot_be_reached(tuner: Tuner, tmp_path: Path) -> None:
    refused(tuner("cases", "--study", tmp_path / ("a" * 300 + ".yaml")), "cannot be used: File name too long")


@pytest.mark.parametrize("command", ["optimize", "doctor"])
def test_a_study_in_the_place_of_a_command(tuner: Tuner, command: str) -> None:
    refused(tuner(command, "reference", "--devices", "cpu:2"), f"tuner {command} --study reference --devices cpu:2")


@pytest.mark.parametrize("command", ["optimize", "init", "doctor"])
def test_a_training_command_without_dashes_before_it(tuner: Tuner, command: str) -> None:
    behind = tuner(command, "--devices", "cpu:1", "nonesuch", "--batch-size", "32")  # an option of the command
    refused(behind, "no program", "nonesuch")
    assert behind == tuner(command, "--devices", "cpu:1", "--", "nonesuch", "--batch-size", "32")
    code, _, err = tuner(command, "--batch-sise", "32")
    assert (code, "No such option" in err) == (2, True)


@pytest.mark.parametrize("name", ["../../evil", "a\nb", "", "a" * 101])
def test_a_name_that_no_study_can_have(tuner: Tuner, tmp_path: Path, name: str) -> None:
    answer = tuner("optimize", "--yes", "--name", name, "--runs", tmp_path / "runs", "--", "python", "train.py")
    refused(answer, "names no study")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("search", ["workers=0,nan", "workers=" + "9" * 5000, "workers=-1", "lr=1e400"])
def test_a_search_that_no_study_can_hold_is_refused_before_anything_runs(
    tuner: Tuner, tmp_path: Path, search: str
) -> None:
    runs = tmp_path / "runs"
    refused(
        tuner("optimize", "--yes", "--search", search, "--runs", runs, "--", "python", "train.py"), search[:2], "write"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_command_with_an_open_quote(tuner: Tuner) -> None:
    refused(tuner("optimize", "--yes", "--", 'python train.py "a b'), "cannot be read: No closing quotation")


@pytest.mark.parametrize("command", ["optimize", "init"])
def test_a_command_that_submits_a_job(tuner: Tuner, tmp_path: Path, command: str) -> None:
    refused(tuner(command, "--", "sbatch", "job.sh"), "sbatch submits a job and ends before it trains")
    assert not (tmp_path / "runs").exists()


def test_a_setting_outside_the_space(tuner: Tuner, tmp_path: Path) -> None:
    refused(tuner("plan", "--study", study_file(tmp_path), "--set", "num_envs=7"), "num_envs=7", "8, 16")
    refused(tuner("plan", "--study", study_file(tmp_path), "--set", "num_envs"), "write num_envs=VALUE")
    refused(tuner("plan", "--study", study_file(tmp_path), "--set", "depth=7"), "no parameter 'depth'", "num_envs")
    twice = ("--set", "num_envs=8", "--set", "num_envs=16")
    refused(tuner("plan", "--study", study_file(tmp_path), *twice), "--set num_envs is given more than once")
    answer = tuner("plan", "--study", "reference", "--devices", "cpu:2", "--set", "prefetch_factor=4")
    refused(answer, "--set prefetch_factor", "only with num_workers of 1 or more")


@pytest.mark.parametrize(
    "words",
    [
        *(["soak", "--train-hours", hours] for hours in ("inf", "nan", "1e300", "1e5")),
        *(["soak", "--minutes", "inf"], ["soak", "--iterations", "1" + "0" * 400]),
        *(["optimize", "--hours", hours] for hours in ("inf", "nan")),
        *(["race", "--train-hours", "inf"], ["race", "--hours", "inf"], ["init", "--seconds", "inf"]),
        *(["scale", "--seconds", "inf"], ["scale", "--seconds", "nan"]),
    ],
)
def test_a_length_that_nobody_can_wait_for_is_refused_before_anything_runs(
    tuner: Tuner, tmp_path: Path, words: list[str]
) -> None:
    study = [] if words[0] in {"init", "scale"} else ["--study", study_file(tmp_path)]
    refused(tuner(*words, *study), words[1])
    assert not (tmp_path / "runs").exists()
