"""`tuner init` and `tuner try`, with a real command that takes a second."""

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from ruamel.yaml import YAML
from tests_cli import Tuner
from tests_replays import scripted_plan

from tuner.cli.setup import advice
from tuner.probe.probe_plan import Device
from tuner.probe.result import STOPPED, FailureKind, unlaunched
from tuner.study.spec import ProbeSpec
from tuner.study.study_file import load

TRAINER = """
import sys, time
batch = int(sys.argv[sys.argv.index("--batch-size") + 1])
print("starting")
for step in range(int(sys.argv[sys.argv.index("--rounds") + 1])):
    sum(range(20_000))
    time.sleep(0.05)
    print(f"step {step} loss {1 / (step + 1):.3f} samples {batch * (step + 1)}", flush=True)
"""


@pytest.fixture
def train(tuner: Tuner, tmp_path: Path) -> list[str]:
    """A command that trains for a moment, in the folder of the test."""
    (tmp_path / "train.py").write_text(TRAINER)
    return [sys.executable, "train.py", "--batch-size", "32", "--rounds", "8"]


def test_a_study_is_made_of_what_the_lines_say(tuner: Tuner, train: list[str], tmp_path: Path) -> None:
    code, out, err = tuner("init", "--search", "batch-size=32,64", "--devices", "cpu:1", "--", *train)
    assert (code, err) == (0, "")
    for said in (
        "progress by lines of a plain form; last line: step 7 loss 0.125 samples 256",
        "samples: unknown",
        "iterations 0 to 7, the first after",
        "batch-size=32,64",
        "tuner try",
    ):
        assert said in out
    assert (tmp_path / "runs/.gitignore").read_text() == "*\n"
    text = (tmp_path / "studies/train.yaml").read_text()
    assert "#   step 7 loss 0.125 samples 256" in text
    spec = load("train")
    assert spec.trainer.options["count"] == "printed"
    assert "(?P<iteration>" in spec.trainer.options["progress"][0]
    assert shlex.split(spec.trainer.options["command"])[2:] == ["--batch-size", "{batch_size}", "--rounds", "8"]
    assert (spec.devices, spec.space["batch_size"].values) == ("cpu:1", (32, 64))
    assert spec.objective == "min_avg_util"


def tried(train: list[str], pattern: str) -> Path:
    """Write a study of the command, with a short window."""
    options = {"command": [*train[:3], "{batch_size}", *train[4:]], "progress": [pattern]}
    study = {
        "name": "tried",
        "trainer": {"name": "command", "options": options},
        "devices": "cpu:1",
        "space": {"batch_size": {"choices": [32, 64]}},
        "probe": {"window_seconds": 0.2, "iterations": 4},
    }
    with Path("tried.yaml").open("w") as file:
        YAML(typ="safe").dump(study, file)
    return Path("tried.yaml")


def test_a_try_shows_lines_counts_and_the_value(tuner: Tuner, train: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER.replace("step {step}", "step {10 * step}"))
    study = tried(train, r"step (?P<iteration>\d+) .* samples (?P<samples>\d+)")
    code, out, err = tuner("try", "--study", study, "--set", "batch_size=64")
    assert (code, err) == (0, "")
    for said in ("batch_size=64", "matched `progress`", "samples 256", "s each", "cpu:0", "samples_per_s: ", "next: "):
        assert said in out
    assert re.search(r"iterations: \d0 in a window", out)  # ten at each line
    assert not (tmp_path / "runs/tried/study.db").exists()


def test_a_try_shows_no_speed_that_is_unsure(tuner: Tuner, train: list[str], tmp_path: Path) -> None:
    uneven = TRAINER.replace(
        "time.sleep(0.05)", "time.sleep([0.01, 0.5, 0.02, 0.01, 1.0, 0.01, 0.5, 0.01, 0.01][step])"
    )
    (tmp_path / "train.py").write_text(uneven)
    study = tried(train, r"step (?P<iteration>\d+) .* samples (?P<samples>\d+)")
    code, out, err = tuner("try", "--study", study)
    assert (code, err) == (0, "")
    assert "samples_per_s: -" in out
    assert "samples/s is unknown" in out


def test_a_try_says_what_to_change(tuner: Tuner, train: list[str]) -> None:
    _, out, _ = tuner("try", "--study", tried(train, r"step (?P<iteration>\d+)"))
    assert "to change: no samples were counted" in out
    study, plan = load("tried.yaml"), scripted_plan(Path.cwd(), [Device(name="cpu:0", model="x")], ProbeSpec())
    for is_counted in (False, True):  # inside, no pattern would count
        (said, *_) = advice(study, replace(plan, is_counted=is_counted), unlaunched({}, STOPPED, ""), 0)
        assert ("count: inside" in said, "`progress`" in said) == (is_counted, not is_counted)
    code, out, err = tuner("try", "--study", tried(train, r"stop (?P<iteration>\d+)"))
    assert code == 2
    assert "9 lines, 0 matched `progress`" in out
    assert "no line matched `progress`" in err
    assert f"; {FailureKind.NO_PROGRESS.remedy}" in err


def test_a_file_is_overwritten_only_by_force(tuner: Tuner, train: list[str]) -> None:
    asked = ("init", "--launch", "nccl", "--devices", "cpu:2", "--name", "mine", "--", "torchrun", "gpt.py")
    assert tuner(*asked)[0] == 0
    code, _, err = tuner(*asked)
    assert (code, "studies/mine.yaml was made from" in err, "give --force" in err) == (2, True, True)
    assert tuner("init", "--force", *asked[1:])[0] == 0
    earlier = Path("runs/mine/study.db")
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    _, out, _ = tuner("init", "--name", "mine", "--force", "--seconds", "1", "--", *train[:-1], "0")
    assert "runs/mine has trials of another studies/mine.yaml" in " ".join(out.split())


def test_a_launch_needs_no_run(tuner: Tuner, tmp_path: Path) -> None:
    command = ["torchrun", "--standalone", "--nproc_per_node", "2", "gpt.py", "--micro-batch-size", "2"]
    typed = [*command, "--global-batch-size", "16"]
    code, out, err = tuner("init", "--launch", "megatron", "--launch", "nccl", "--devices", "cpu:2", "--", *typed)
    assert (code, err) == (0, "")
    assert "micro_batch_size=2,1,4" in out
    assert "NCCL_PROTO=auto,Simple" in out
    spec = load("gpt")
    assert (spec.launch, spec.devices) == (("megatron", "nccl"), "cpu:2")
    assert spec.trainer.command[:4] == ("torchrun", "--standalone", "--nproc_per_node", "{ranks}")
    (tmp_path / "run.sh").write_text("torchrun gpt.py --micro-batch-size 2\n")
    code, _, err = tuner("init", "--launch", "megatron", "--", "bash", "run.sh")
    assert (code, "run.sh reads no flags" in err) == (2, True)
    assert tuner("init", "--launch", "nccl", "--devices", "cpu:2", "--", "bash", "run.sh")[0] == 0  # by variables


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["name a command"]),
        (["--", "A=1"], ["no command after `--`"]),
        (["--yes", "nonesuch", "--lr", "1"], ["no program nonesuch"]),  # --lr is the command's, although no -- is typed
        (["--naem", "sh", "--", "sh"], ["--name"]),
        (["--", "nonesuch", "--batch-size", "8"], ["no program nonesuch", "activate the environment"]),
        (["--", "cd src && python train.py --batch-size 8"], ["no program cd", "no shell runs the command", "bash -c"]),
        (["--", "train.py", "--batch-size", "8"], ["no program train.py", "`python train.py`"]),
        (["--", "./train.sh"], ["no program ./train.sh", "`chmod +x ./train.sh`"]),
        (
            ["--", "sh", "-c", "for n in 1 2 3 4; do echo step $n; sleep 0.1; done"],
            ["name at least one", "--search FLAG=VALUE,VALUE"],
        ),
        (
            ["--search", "n=1,2", "--", "sh", "-c", "echo 'no data: fetch it first'; exit 3"],
            ["exit code 3: no data: fetch"],
        ),
        (["--search", "n=1,2", "--", "sh", "-c", "exit 0"], ["ended by itself", "train for longer"]),
    ],
    ids=[
        *("nothing", "variables alone", "no dashes", "option", "no program", "shell"),
        *("script", "not executable", "no flag", "fails", "ends"),
    ],
)
def test_a_command_that_cannot_be_tuned_is_refused(tuner: Tuner, arguments: list[str], words: list[str]) -> None:
    Path("train.sh").touch()
    code, out, err = tuner("init", *arguments)
    assert code == 2
    assert "Traceback" not in out + err
    assert all(word in err for word in words), err
    assert not Path("studies").exists()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sleep 600 & sleep 601", ["printed nothing in ", "--seconds 300"]),
        ("sleep 600 & while :; do echo waiting; sleep 0.1; done", ["counts iterations", "the last lines: waiting"]),
    ],
    ids=["silent", "endless"],
)
def test_a_command_that_never_ends_is_ended_with_all_it_started(tuner: Tuner, script: str, words: list[str]) -> None:
    code, _, err = tuner("init", "--seconds", "1", "--search", "n=1,2", "--", "sh", "-c", script)
    assert code == 2
    assert all(word in err for word in words), err
    assert not [one for one in psutil.Process().children(recursive=True) if "sleep" in one.name()]
