"""`tuner plan --best`: a script that trains with the best config of a study."""

import json
import re
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tests_cli import TRAINER, Tuner, run_in, study_file

from tuner.drafting.writing import origin_line


def written(folder: Path, trainer: str, **changes: object) -> Path:
    """Write a study of this trainer. The trainer's last iteration is an argument."""
    package = Path(sys.modules["tuner"].__file__ or "").parent
    command = [sys.executable, str(folder / "train.py"), "{num_envs}", str(package), "--last", "{iterations}"]
    file = study_file(
        folder, trainer={"name": "command", "options": {"command": command, "cases": ["walk", "run"]}}, **changes
    )
    (folder / "train.py").write_text(trainer.replace("0.02", "0.12"))  # long enough for a standard error
    return file


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where a study of one config has run, and what the command said."""
    folder = tmp_path_factory.mktemp("single")
    file = written(folder, TRAINER, space={"num_envs": {"ladder": [16]}, "pruner_patience": {"choices": [2]}})
    with (folder / "said").open("w") as said, redirect_stdout(said):
        run_in(folder, "optimize", "--study", file, "--n-trials", 1)
    return folder


@pytest.fixture
def study(tuner: Tuner, measured: Path, tmp_path: Path) -> Path:
    """That study, copied into the folder where the command line runs."""
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    return tmp_path / "demo.yaml"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished study of two rungs: one has more utilisation, the other more samples/s."""
    folder = tmp_path_factory.mktemp("pareto")
    trading = TRAINER.replace("samples=envs", "samples=(1 if envs == 16 else 10_000)")
    file = written(folder, trading, space={"num_envs": {"ladder": [8, 16]}}, objective="util,samples_per_s")
    run_in(folder, "optimize", "--study", file)
    return folder


@pytest.fixture
def pareto(tuner: Tuner, searched: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of that study as the working directory. `plan` only reads, so tests share the folder."""
    monkeypatch.chdir(searched)
    return searched / "demo.yaml"


def test_the_best_is_printed_with_where_it_comes_from_and_without_a_probes_end(tuner: Tuner, study: Path) -> None:
    said = (study.parent / "said").read_text()
    assert re.search(r"`tuner plan --study \S+demo\.yaml --best` prints a script$", " ".join(said.split()))
    code, out, err = tuner("plan", "--study", study, "--best")
    assert (code, err) == (0, "")
    said, _, rest = out.partition('# walk: {"num_envs": 16}\n')
    assert re.match(r"# walk: trial #0: min_avg_util \d+\.\d ± \d+\.\d\n", said)  # then whether others were busy
    script = rest.splitlines()
    assert script[0].endswith("runs/demo/best/walk")
    assert ("train.py 16 " in out, "--last" in out) == (True, False)
    assert " --last 4000\n" in tuner("plan", "--study", study)[1]


def test_several_workers_end_with_the_command_that_prints_the_best(
    tuner: Tuner, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/true")  # workers that find nothing left to do
    code, out, err = tuner("optimize", "--study", study, "--workers", 2)
    assert (code, err, "--best` prints a script" in " ".join(out.split())) == (0, "", True)


def test_a_case_without_a_best_is_left_out_and_named(tuner: Tuner, study: Path) -> None:
    code, out, err = tuner("plan", "--study", study, "--best", "--cases", "*")
    assert (code, err) == (0, "run: left out, because it has no best config yet\n")
    assert "# run" not in out
    code, out, err = tuner("plan", "--study", study, "--best", "--cases", "run")
    assert (code, out, "no best config yet for run" in err) == (2, "", True)


def test_a_best_for_other_devices_says_where_it_was_measured(tuner: Tuner, study: Path) -> None:
    _, out, _ = tuner("plan", "--study", study, "--best", "--devices", "cpu:1")
    assert re.search(r"^# walk: measured on cpu:0 .*, cpu:1 .*, launched here on cpu:0 ", out, re.MULTILINE)


def test_a_best_that_would_be_launched_otherwise_now_says_so(tuner: Tuner, study: Path) -> None:
    changed = "# walk: command, environment or files have changed since this config was measured"
    assert changed not in tuner("plan", "--study", study, "--best")[1]
    study.write_text(study.read_text().replace("--last", "--until"))
    assert changed in tuner("plan", "--study", study, "--best")[1]


def test_the_best_is_that_of_the_database_asked_for(tuner: Tuner, study: Path, tmp_path: Path) -> None:
    storage = f"sqlite:///{(tmp_path / 'runs/demo/study.db').rename(tmp_path / 'elsewhere.db')}"
    code, _, err = tuner("plan", "--study", study, "--best")
    assert (code, "no study database" in err) == (2, True)
    assert "trial #0" in tuner("plan", "--study", study, "--best", "--storage", storage)[1]


def test_the_best_takes_no_settings(tuner: Tuner, study: Path) -> None:
    code, out, err = tuner("plan", "--study", study, "--best", "--set", "num_envs=16")
    assert (code, out, "give only one of them" in err) == (2, "", True)


def test_a_front_is_listed_above_the_script_of_its_first_member(tuner: Tuner, pareto: Path) -> None:
    code, out, err = tuner("plan", "--study", pareto, "--best")
    assert (code, err) == (0, "")
    remarks = (line for line in out.splitlines() if line.startswith("# walk: ") and "other processes" not in line)
    head, *front, chosen, origin, config = remarks  # without whether this machine was busy
    assert head == "# walk: Pareto front of min_avg_util, samples_per_s:"
    number = r"(?<= )\d[\d,]*(\.\d)?( ± \d[\d,]*(\.\d)?)?(?=[,:])"
    assert [re.sub(number, "N", line) for line in front] == [
        "# walk:   trial #0: min_avg_util N, samples_per_s N: num_envs=16",
        "# walk:   trial #1: min_avg_util N, samples_per_s N: num_envs=8",
    ]
    assert chosen == "# walk: the script is for trial #0; --trial N prints another one"
    assert f"# walk:   {origin.removeprefix('# walk: ')}: num_envs=16" == front[0]
    assert config == '# walk: {"num_envs": 16}'
    assert ("train.py 16 " in out, "train.py 8 " in out) == (True, False)


def test_any_member_of_a_front_can_be_asked_for_and_trains_in_a_folder_of_its_own(tuner: Tuner, pareto: Path) -> None:
    _, first, _ = tuner("plan", "--study", pareto, "--best")
    code, second, _ = tuner("plan", "--study", pareto, "--best", "--trial", 1)
    assert (code, '# walk: {"num_envs": 8}' in second, "the script is for trial #1" in second) == (0, True, True)
    assert ("runs/demo/best/walk/0000\n" in first, "runs/demo/best/walk/0001\n" in second) == (True, True)


def test_members_of_the_front_of_a_typed_command_train_in_folders_of_their_own(
    tuner: Tuner, pareto: Path, tmp_path: Path
) -> None:
    package = str(Path(sys.modules["tuner"].__file__ or "").parent)
    typed = [sys.executable, str(pareto.parent / "train.py"), "16", package, "{out_dir}"]
    content = YAML(typ="safe").load(pareto)
    content["trainer"]["options"]["command"] = [*typed[:2], "{num_envs}", *typed[3:]]
    (study := tmp_path / "demo.yaml").write_text(f"{origin_line(typed)}\n{json.dumps(content)}\n")
    for chosen, line in (((), r"train\.py 16 .*best/walk/0000$"), (("--trial", "1"), r"train\.py 8 .*best/walk/0001$")):
        script = tuner("plan", "--study", study, "--best", *chosen)[1]
        assert re.search(line, script.rstrip()), script


def test_a_trial_that_is_not_among_the_best_is_refused_with_those_that_are(tuner: Tuner, pareto: Path) -> None:
    code, out, err = tuner("plan", "--study", pareto, "--best", "--trial", 7)
    assert (code, out, "--trial 7 is not among the best of walk; name one of #0, #1" in err) == (2, "", True)


def test_a_trial_is_one_of_the_best_of_one_case(tuner: Tuner, study: Path) -> None:
    code, _, err = tuner("plan", "--study", study, "--trial", 0)
    assert (code, "give --best too" in err) == (2, True)
    code, _, err = tuner("plan", "--study", study, "--best", "--trial", 0, "--cases", "*")
    assert (code, "name the case with --cases" in err) == (2, True)
    assert "trial #0" in tuner("plan", "--study", study, "--best", "--trial", 0)[1]
