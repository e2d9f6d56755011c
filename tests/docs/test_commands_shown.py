"""Every command that README and docs show works, or at least is understood.

`RUN` holds the commands that run here, without a GPU: what to add to them, and what they print. `PARSED` holds the
commands that need GPUs, hours or a server; their options and values are parsed. A whole command in neither makes the
test fail. What only names a command, such as `tuner plan --best` in a sentence, is checked for its options.
"""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from tests_docs import ROOT, Shown, commands, shown
from tests_mimickit import pi_plus_checkout
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from tuner.cli.main import app

TABLE = "benchmarks/tables/pi_plus_two_h200/deepmimic_pi_plus_ppo.parquet"

REPLAY = f"tuner optimize --study pi_plus --replay {TABLE}"
RUN = {
    "tuner status --study S": ([], "95.3 ± 0.7"),
    "tuner status --study pi_plus --json": ([], '"98% sure that no config is 1% better than the best"'),
    "tuner export --study S": ([], "wrote runs/pi_plus/best_by_case.tsv"),
    "tuner report --study S": ([], "wrote runs/pi_plus/report.html"),
    "tuner report --study pi_plus": ([], "wrote runs/pi_plus/report.html"),
    "tuner diagnose --study S": ([], "40% of all trial time"),
    "tuner diagnose --study pi_plus": ([], "long start-up"),
    "tuner cases --study S": ([], "deepmimic_pi_plus_ppo"),
    "tuner plan --study S": (["--cases", "amp*"], "--arg_file args/amp_pi_plus_args.txt"),
    "tuner plan --study pi_plus --best": ([], "# deepmimic_pi_plus_ppo: trial #16: min_avg_util 95.3 ± 0.7"),
    "tuner schema": ([], '"StudySpec"'),
}
PARSED = {
    "tuner optimize --study S",
    "tuner optimize --study pi_plus",
    "tuner optimize --study pi_plus --replay runs/pi_plus/tables/deepmimic_pi_plus_ppo.parquet",
    "tuner optimize --study pi_plus --gpus-per-trial 2",
    "tuner optimize --study pi_plus --workers 3",
    "tuner optimize --study pi_plus --launcher slurm --workers 4",
    "tuner plan --study pi_plus --best --launcher slurm",
    "tuner optimize --study two_nodes",
    "tuner optimize --study two_nodes --launcher slurm",  # tests/cli/test_slurm.py runs one like it
    "tuner plan --study two_nodes --best --launcher slurm",
    "tuner scale --study two_nodes --counts 1,8,16 --launcher slurm",
    "tuner diagnose --storage journal.log --study-name mine",  # tests/cli/test_diagnose.py runs one like it
    "tuner diagnose --storage sqlite:///optuna.db --study-name mine",  # tests/cli/test_diagnose.py runs it
    "tuner report --study pi_plus --serve",  # tests/report/test_live.py asks for its page
    "tuner optimize --study pi_plus --set num_envs=44,40,39,38,36,32 --max-seconds 420",
    "tuner optimize --study pi_plus --cases deepmimic_pi_plus_ppo --set num_envs=44,40,38,32 "
    "--set agent_variant=default --max-seconds 420 --n-trials 8 --devices 0,1,2,3 --gpus-per-trial 2",
    "tuner worker --study S",
    "tuner worker --study pi_plus --devices 0,1",
    "tuner verify --study train",
    "tuner verify --study S",  # tests/cli/test_verify_command.py runs it
    "tuner race --study S",
    "tuner race --study pi_plus --cases amp_pi_plus --train-hours 2",
    "tuner race --study pi_plus --cases amp_pi_plus --dry-run",  # tests/cli/test_race_command.py runs it
    "tuner soak --study S",  # tests/cli/test_soak_command.py runs it
    "tuner failed --study S",
    "tuner failed --study S --oom",  # tests/cli/test_soak_command.py runs it
    "tuner recover --study S",  # tests/test_recovering.py runs it
    "tuner optimize --study demo",
    "tuner record --study S",
    "tuner record --study pi_plus --configs 60",
    "tuner record --study pi_plus --configs 60 --hours 2",
    "tuner dashboard --study S",
    "tuner dashboard --study pi_plus",
    "tuner doctor --study pi_plus",  # imports the trainer's packages: tests/cli/test_doctor.py runs it
    "tuner try --study S",  # starts a trainer: tests/cli/test_init.py runs it
    "tuner try --study train",
    "tuner optimize --study train",
    "tuner status --study demo",
    "tuner status --study train",
    "tuner report --study train",
    "tuner plan --study train --best",
    "tuner plan --study S --set batch_size=64 --predict",  # tests/cli/test_soak_command.py runs it
    "tuner scale --study pi_plus --counts 1,2",
}
SHELL = {
    "pip install .",
    "pip install '.[reference,dashboard]'",
    "export MIMICKIT_ROOT=~/MimicKit MIMICKIT_PYTHON=~/mimickit-env/bin/python",
    "export TUNER_STORAGE=postgresql+psycopg://me@db/tuner",
}
TUNER = commands("tuner")


def whole(command: Shown) -> bool:
    """Check whether a command can run as shown: it names a study, or needs no study."""
    return "--study" in command.text or command.text == "tuner schema"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a checkout in MimicKit's form, the database of a real search, and the recorded tables."""
    folder = tmp_path_factory.mktemp("world")
    pi_plus_checkout(folder / "MimicKit")
    (folder / "runs/pi_plus").mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks/results/pi_plus_auto_two_h200/study.db", folder / "runs/pi_plus")
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    return folder


@pytest.mark.parametrize("text", RUN)
def test_a_command_that_needs_no_gpu_runs(text: str, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setenv("MIMICKIT_ROOT", str(world / "MimicKit"))
    monkeypatch.setenv("COLUMNS", "200")
    added, printed = RUN[text]
    words = ["pi_plus" if word == "S" else word for word in shlex.split(text)[1:]]
    result = CliRunner().invoke(app, words + added)
    assert result.exception is None
    assert result.exit_code == 0
    assert printed in result.stdout


def test_the_transcript_of_a_replay_is_what_a_run_prints(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    transcript = next(piece.text for piece in shown("console") if piece.text.startswith(f"$ {REPLAY}\n"))
    monkeypatch.setenv("COLUMNS", "80")
    head, *trials = re.split(r"\n  (?=#)", transcript.removesuffix("  …\n"))
    result = CliRunner().invoke(app, [*shlex.split(REPLAY)[1:], "--n-trials", str(len(trials))])
    assert trials
    target = head.partition("0 of ")[2].split()[0]
    shown_as = result.stdout.replace(f" of {len(trials)})", f" of {target})")
    _, *printed = re.split(r"\n  (?=#)", shown_as)
    assert printed[: len(trials)] == [one.rstrip() for one in trials]  # the rest confirms the best: the search is short


def test_a_command_that_needs_more_is_parsed() -> None:
    for text in sorted(PARSED):
        understood(shlex.split(text)[1:])


def test_every_whole_command_is_run_or_parsed() -> None:
    texts = {command.text for command in TUNER if whole(command)}
    assert texts == {REPLAY} | RUN.keys() | PARSED


def test_a_command_that_is_named_has_the_options_that_are_shown() -> None:
    for text in sorted({command.text for command in TUNER if not whole(command)}):
        name, *words = shlex.split(text.partition(" -- ")[0])[1:] or ["--help"]
        group = command_line()
        named = (
            group
            if name.startswith("-")
            else group.commands[name].make_context(name, [], resilient_parsing=True).command
        )
        known = {option for parameter in named.params for option in parameter.opts} | {"--help"}
        assert {word for word in (name, *words) if word.startswith("--")} <= known


def test_every_other_line_of_a_console_is_known() -> None:
    lines = [line[2:] for piece in shown("console") for line in piece.text.splitlines() if line.startswith("$ ")]
    others = {line.partition("  #")[0].strip() for line in lines if line.split(" ")[0] not in {"tuner", "make"}}
    assert others == SHELL


def test_what_make_is_asked_for_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {command.text.split(" ")[1] for command in commands("make")}
    assert {"optimize", "test", "check"} <= asked <= targets


def test_what_pip_is_asked_for_is_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {extra for command in commands("pip") for extra in re.findall(r"\[(\w+)\]", command.text)}
    assert asked
    assert asked <= extras.keys()


def command_line() -> TyperGroup:
    """Return the command line as typer parses it."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def understood(words: list[str]) -> None:
    """Parse a command's options and values without running it; an unknown option raises a UsageError."""
    group = command_line()
    with group.make_context("tuner", words[:1], resilient_parsing=True) as parent:
        group.commands[words[0]].make_context(words[0], words[1:], parent=parent)
