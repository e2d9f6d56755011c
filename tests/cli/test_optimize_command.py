"""`tuner optimize -- COMMAND`, with a real command that takes a second."""

import json
import os
import pty
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests_cli import Tuner

from tuner import optimize, progress
from tuner.drafting.writing import origin_line
from tuner.study.study_file import load

pytestmark = pytest.mark.early
TRAINED_COMMAND = """
import argparse, time
from progress import report
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("-j", "--workers", type=int, default=0)
parser.add_argument("--grad-accum", type=int, default=1)
parser.add_argument("--rounds", type=int, default=24)
parser.add_argument("--max_steps", type=int)
parser.add_argument("--output_dir")
args = parser.parse_args()
total = args.batch_size * args.grad_accum
for step in range(args.max_steps or args.rounds):
    sum(range(20_000))
    time.sleep(0.02 + 0.06 * (args.grad_accum - 1))
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    report(iteration=step, samples=total * (step + 1))
"""
"""A script that trains for a moment and reports its samples; `progress.py` is beside it."""


def shorten(study: Path) -> None:
    """Let the study of a test have short probes, and few of them: the workers keep their number."""
    text = study.read_text().replace("iterations: 8, max_seconds: 420", "iterations: 4, window_seconds: 0.2")
    study.write_text(re.sub(r"workers: \{choices: \[0, 2, .*\}", "workers: {choices: [0]}", text))


@pytest.fixture
def train(tuner: Tuner, tmp_path: Path) -> list[str]:
    """A command that trains for a moment and reports its samples, in the folder of the test."""
    (tmp_path / "train.py").write_text(TRAINED_COMMAND)
    shutil.copy(progress.__file__, tmp_path / "progress.py")
    return [sys.executable, "train.py", "-b", "8", "--grad-accum", "2"]


def silent() -> str:
    """Return a trainer that reports nothing: only its lines show its steps."""
    return TRAINED_COMMAND.replace("report(iteration=step, samples=total * (step + 1))", "pass")


def test_a_command_is_made_faster_and_the_library_resumes_it(
    tuner: Tuner, train: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    train += ["--max_steps", "20", "--output_dir", "out"]
    code, out, err = tuner("init", "--devices", "cpu:1", "--", *train)
    assert (code, err) == (0, "")
    assert "progress by report(); last line: {" in out
    spec = load("train")
    assert spec.objective == "samples_per_s"
    assert [one.values[:2] for one in spec.space.values()] == [(0, 2), (8, 16)]
    assert (spec.trainer.options["learning"], spec.trainer.options["computed"]) == (
        *("keep", {"grad_accum": "16 / {batch_size}"}),
    )
    shorten(tmp_path / "studies/train.yaml")
    code, out, err = tuner("optimize", "--n-trials", "2", "--", *train)
    assert (code, err) == (0, "")
    assert "was made from this command" in out
    assert "#0 (trial 1 of 2) batch_size=8" in out
    assert "batch_size: 8 → 16" in out
    assert "grad_accum: 2 → 1; the total batch stays" in out
    *_, before, line = out.rstrip().splitlines()
    assert "copy" in before
    assert line == f"{sys.executable} train.py -b 16 --grad-accum 1 --max_steps 20 --output_dir out"
    code, out, err = tuner("plan", "--study", "train", "--best")
    assert (code, err) == (0, "")
    folder, started = (text for text in out.splitlines() if text and text[0] != "#")
    assert (folder, started) == (f"cd {tmp_path}", line)
    code, out, _ = tuner("plan", "--study", "train", "--best", "--devices", "cpu:2")
    *_, remark, started = filter(None, out.splitlines())
    assert remark.startswith("cd ")
    assert re.fullmatch(rf"OMP_NUM_THREADS=\d+ {re.escape(line)}", started)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", "/bin/true")  # what workers do that find nothing left, without their imports
        code, out, _ = tuner("optimize", "--n-trials", "2", "--workers", "2", "--", *train)
    assert (code, out.rstrip().splitlines()[-1]) == (0, line)
    said: list[str] = []
    result = optimize(train, trials=2, say=said.append)
    assert any("was made from this command" in text for text in said)
    assert (result.command, result.best and result.best["batch_size"]) == (line, 16)
    assert result.gain is not None
    assert result.gain.times > 1.0
    _, out, err = tuner("optimize", "--n-trials", "2", "--json", "--", *train)
    assert (json.loads(out.splitlines()[-1])["command"], err.splitlines()[-1]) == (line, line)


def test_where_samples_are_unknown_iterations_compare_what_changes_no_iteration(
    tuner: Tuner, train: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(silent().replace("args.grad_accum - 1", "args.workers == 0"))
    searched = ("--yes", "--devices", "cpu:1", "--search", "workers=0,2")
    assert tuner("init", *searched, "--", *train)[0] == 0
    shorten(tmp_path / "studies/train.yaml")
    code, out, _ = tuner("optimize", "--n-trials", "2", "--", *train)
    assert code == 0
    own, best = (line for line in out.splitlines() if line.startswith(("your command: ", "the best: ")))
    assert " iterations/s" in own
    assert re.search(r", [\d.]+ ± [\d.]+ times as many$", best)
    assert "samples are not counted" in out
    assert "--workers 2" in out.rstrip().splitlines()[-1]


def test_without_a_speed_there_is_no_line_to_copy(tuner: Tuner, train: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(silent())
    assert tuner("init", "--devices", "cpu:1", "--search", "batch-size=8,16", "--", *train)[0] == 0
    shorten(tmp_path / "studies/train.yaml")
    assert load("train").objective == "min_avg_util"
    code, out, _ = tuner("optimize", "--n-trials", "2", "--", *train)
    assert code == 0
    assert "samples are not counted" in out
    said = " ".join(out.split())
    # the latter two where other programs have disturbed one or both
    assert re.search(r"speeds are unknown|which config is faster is unknown|no other config was measured", said)
    assert "your command stays as it is" in said
    assert "copy:" not in out


def test_a_command_whose_speeds_cannot_be_compared_is_not_searched(tuner: Tuner, train: list[str]) -> None:
    Path("train.py").write_text(silent())
    code, _, err = tuner("optimize", "--yes", "--devices", "cpu:1", "--search", "batch-size=8,16", "--", *train)
    assert (code, "samples are unknown: " in err, "objective: iterations_per_s" in err) == (2, True, True)
    assert not Path("studies").exists()


def test_what_cannot_be_made_faster_is_refused(tuner: Tuner, train: list[str]) -> None:
    alone = ["sh", "-c", "for n in 1 2 3 4; do echo step $n; sleep 0.1; done", "train", "--batch-size", "8"]
    code, _, err = tuner("optimize", "--", *alone)
    assert (code, "only batch-size could vary" in err, "--free-batch" in err) == (2, True, True)
    for arguments in ((), ("--study", "reference", "--", *train)):
        code, _, err = tuner("optimize", *arguments)
        assert (code, "name a command" in err) == (2, True)
    for option in (["--free-batch"], ["--name", "other"]):
        code, _, err = tuner("optimize", "--study", "reference", *option)
        assert (code, "--name" in err, "belong to a command" in err) == (2, True, True)
    assert not Path("studies").exists()


def test_another_command_does_not_take_a_study_over(tuner: Tuner, train: list[str]) -> None:
    Path("studies").mkdir()
    Path("studies/train.yaml").write_text("# Made by `tuner init` from: another\n")
    code, _, err = tuner("optimize", "--", *train)
    assert (code, "studies/train.yaml was made from another command" in err) == (2, True)


@pytest.mark.parametrize(("tag", "other"), [("a  b", "a b"), ("a\tb", "a b"), ("\x01", "\x02"), ("a\n", "a")])
def test_a_study_is_reused_only_where_the_argument_lists_are_equal(
    tuner: Tuner, train: list[str], tag: str, other: str
) -> None:
    Path("studies").mkdir()
    Path("studies/train.yaml").write_text(f"{origin_line([*train, '--tag', tag])}\nname: train\n")
    code, out, err = tuner("optimize", "--", *train, "--tag", other)
    assert (code, "studies/train.yaml was made from another command" in err) == (2, True)
    _, out, err = tuner("optimize", "--", *train, "--tag", tag)
    assert "was made from this command" in out


def test_a_person_at_a_terminal_is_asked_on_one_screen(train: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        words = ["-m", "tuner", "init", "--devices", "cpu:1", "--", *train, "--rounds", "12"]
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - a terminal needs a process of its own
    printed = b""
    while b"out] " not in printed:
        printed += os.read(terminal, 4096)
    os.write(terminal, b"workers=\n")
    while True:
        try:
            printed += os.read(terminal, 4096)
        except OSError:
            break
    assert os.waitpid(pid, 0)[1] == 0
    assert b"the total batch stays" in printed
    assert list(load("train").space) == ["batch_size"]
