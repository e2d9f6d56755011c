"""`tuner soak` and `tuner told` with real processes whose memory the kernel limits, without a GPU."""

import csv
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from test_width import fit
from tests_cli import Tuner, study_file

pytestmark = pytest.mark.early

LIMIT_MIB = 100
SOAK_MINUTES, HOURS = 0.025, 0.00417
"""The training takes ten times as long as the soak."""
RUNGS = [20, 40, *(round(50 * 1.05**power) for power in range(12))]
TRAINER = """
import sys, time
size, package, every = int(sys.argv[1]), sys.argv[2], int(sys.argv[-1])
grow_kib, wait_s, iterations = map(float, sys.argv[3:6])
sys.path.insert(0, package)
from progress import report
kept, buffer = b"x" * (size << 20), []
for iteration in range(int(iterations)):
    buffer.append(b"x" * int(grow_kib * 1024))
    if iteration % every == every - 1:
        evaluation = b"x" * (size << 19)
        time.sleep(wait_s)
        del evaluation
    time.sleep(wait_s)
    report(iteration=iteration, samples=size**4 * (iteration + 1))
"""
"""It keeps so many MiB, grows in each iteration, and needs half as much again for an evaluation.

Its samples grow so much with its size that a busy machine does not make a smaller size look as fast.
"""


def limited(folder: Path, grow_kib: int, every: int, soak: str) -> list[str]:
    """Write a study of a trainer that has 100 MiB, and return the trainer's command line."""
    trainer = folder / "grow.py"
    trainer.write_text(TRAINER)
    package = Path(sys.modules["tuner"].__file__ or "").parent
    command = [sys.executable, str(trainer), "{num_envs}", str(package), str(grow_kib), "0.01", "1e6", str(every)]
    study_file(
        folder,
        trainer={"name": "command", "options": {"command": command, "cases": ["walk"]}},
        devices="cpu:1",
        space={"num_envs": {"ladder": RUNGS}},
        objective="samples_per_s",
        environment={"memory_mib": LIMIT_MIB},
        probe={"iterations": 8, "window_seconds": 0.3, "headroom_pct": 0, "sample_seconds": 0.02},
        search={"trials": 2, "training_hours": 0.0001, "sampler": "random", "seeds_per_variant": 2},
        soak={"flags": soak, "worse": False},
    )
    return command


def survives(command: list[str], size: int, iterations: int) -> bool:
    """Return whether a training with this size ends by itself; it needs no time between iterations."""
    words = [str(size) if word == "{num_envs}" else word for word in command]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_MIB << 20, LIMIT_MIB << 20))

    words[-3:-1] = "0", str(iterations)
    done = subprocess.run(words, preexec_fn=limit, capture_output=True, check=False)
    return done.returncode == 0


def soaked(tuner: Tuner, folder: Path) -> tuple[int, int]:
    """Search and soak; return the size to train with, and the iterations that a training of those hours makes."""
    code, out, err = tuner("optimize", "--study", folder / "demo.yaml")
    assert code == 0, out + err
    code, out, err = tuner("soak", "--study", folder / "demo.yaml", "--minutes", SOAK_MINUTES, "--train-hours", HOURS)
    assert code == 0, out + err
    fit(out)
    chosen = int(" ".join(out.split()).rsplit("train with num_envs=", 1)[1].split()[0])
    (file,) = folder.rglob("trials.tsv")
    rows = csv.DictReader(file.read_text().splitlines(), delimiter="\t")
    *_, soak = [row for row in rows if row["num_envs"] == str(chosen)]
    return chosen, round(float(soak["samples_per_s"]) / chosen**4 * HOURS * 3600)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "num_envs=8"], "walk, run; name one with --cases"),
        (["--cases", "walk", "--set", "num_envs=9"], "num_envs must be one of"),
    ],
)
def test_a_soak_of_another_config_needs_one_case_and_a_value_of_the_space(
    tuner: Tuner, tmp_path: Path, words: list[str], said: str
) -> None:
    study = study_file(tmp_path, cases=["walk", "run"])
    code, _, err = tuner("soak", "--study", study, *words)
    assert code == 2
    assert said in err


def test_without_a_search_nothing_is_soaked_and_that_is_said(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, cases=["walk", "run"])
    code, out, err = tuner("soak", "--study", study)
    assert (code, out, "`tuner optimize` creates it" in err) == (2, "", True)
    assert not (tmp_path / "runs").exists()
    assert tuner("optimize", "--study", study, "--cases", "walk", "--n-trials", "1")[0] == 0
    code, out, err = tuner("soak", "--study", study, "--cases", "run")
    assert code == 2
    assert f"no best config yet for run; `tuner optimize --study {study}` searches first, and --set" in err
    code, out, err = tuner("soak", "--study", study, "--minutes", "0.02", "--train-hours", "0.001")
    assert (code, err) == (0, "")
    assert "no soak for run" in out
    assert "case walk: " in out
    assert "case run: " not in out


@pytest.fixture
def narrow(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> Tuner:
    """Run the command line for a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return tuner


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("grow_kib", "every", "soak"),
    [pytest.param(16, 10**6, "", id="growing", marks=pytest.mark.minutes), pytest.param(0, 300, "2", id="evaluation")],
)
def test_what_a_soak_recommends_survives_ten_times_as_long_with_most_of_the_memory(
    narrow: Tuner, tmp_path: Path, grow_kib: int, every: int, soak: str
) -> None:
    command = limited(tmp_path, grow_kib, every, soak)
    chosen, iterations = soaked(narrow, tmp_path)
    assert survives(command, chosen, iterations)
    assert not survives(command, next(size for size in RUNGS if 0.9 * size > chosen), iterations)
    if soak:
        return
    study = "--study", tmp_path / "demo.yaml"
    code, again, _ = narrow("soak", *study, "--minutes", SOAK_MINUTES, "--train-hours", HOURS)
    assert code == 0
    assert f"train with num_envs={chosen}" in " ".join(again.split())
    code, planned, err = narrow("plan", *study, "--set", f"num_envs={RUNGS[2]}", "--predict")
    assert code == 0, err
    assert "90 % sure" in " ".join(planned.split())
    code, said, err = narrow("failed", *study, "--oom")
    assert "host_oom" in said
    fit(said)
    assert f"train with num_envs={chosen}" not in " ".join(said.split())
    _, again, _ = narrow("soak", *study, "--minutes", SOAK_MINUTES, "--iterations", 10)
    assert "memory lasts 10 iterations" in " ".join(again.split())


def test_a_log_without_a_line_s_end_fills_no_memory_and_a_pipe_is_no_log(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path)
    assert tuner("optimize", "--study", study, "--n-trials", "1")[0] == 0
    with (tmp_path / "long.log").open("wb") as file:
        file.truncate(8 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\nMemoryError\n")
    code, out, err = tuner("failed", "--study", study, "--log", tmp_path / "long.log")
    assert "MemoryError" in out + err
    os.mkfifo(tmp_path / "pipe")
    code, _, err = tuner("failed", "--study", study, "--log", tmp_path / "pipe")
    assert (code, "it is no regular file" in err or "cannot be read" in err) == (2, True)


def test_out_of_memory_is_told_of_a_named_config_although_none_is_the_best(tuner: Tuner, tmp_path: Path) -> None:
    fails = {"name": "command", "options": {"command": [sys.executable, "-c", "1/0", "{num_envs}"], "cases": ["walk"]}}
    study = study_file(tmp_path, trainer=fails, devices="cpu:1")
    assert tuner("optimize", "--study", study, "--n-trials", "1")[0] != 0
    assert "no best config yet" in tuner("failed", "--study", study, "--oom")[2]
    code, out, err = tuner("failed", "--study", study, "--set", "num_envs=16", "--oom")
    assert (code, "num_envs=16" in out, "no other config of walk may be the best" in err) == (2, True, True)
