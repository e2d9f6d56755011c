"""`tuner soak` and `tuner told` with real processes whose memory the kernel limits, without a GPU."""

import sys
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file

TRAINER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from progress import report
kept, buffer = bytearray(int(sys.argv[1]) << 20), []
for iteration in range(100_000):
    buffer.append(bytearray(int(sys.argv[3]) << 10))
    time.sleep(0.01)
    report(iteration=iteration, samples=int(sys.argv[1]) * (iteration + 1))
"""


def limited(folder: Path, *, grow_kib: int) -> Path:
    """Write a study of a trainer that has 100 MiB, keeps `num_envs` MiB, and grows by so many KiB each iteration."""
    trainer = folder / "grow.py"
    trainer.write_text(TRAINER)
    package = Path(sys.modules["tuner"].__file__ or "").parent
    command = [sys.executable, str(trainer), "{num_envs}", str(package), str(grow_kib)]
    return study_file(
        folder,
        trainer={"name": "command", "options": {"command": command, "cases": ["walk"]}},
        devices="cpu:1",
        space={"num_envs": {"ladder": [20, 50, 60, 70, 78, 120]}},
        objective="samples_per_s",
        environment={"memory_mib": 100},
        probe={"iterations": 8, "window_seconds": 0.3, "headroom_pct": 0, "sample_seconds": 0.05},
        search={"trials": 5, "training_hours": 0.002, "sampler": "random", "seeds_per_variant": 5},
    )


@pytest.mark.timeout(300)
def test_the_best_moves_to_a_size_that_lasts_and_a_told_failure_to_the_next(tuner: Tuner, tmp_path: Path) -> None:
    study = limited(tmp_path, grow_kib=16)
    code, out, err = tuner("optimize", "--study", study)
    assert code == 0, out + err
    asked = "soak", "--study", study, "--minutes", 0.04, "--hours", 0.005
    code, out, err = tuner(*asked)
    assert code == 0, out + err
    assert "growing all the time" in out
    assert "MiB now" in out
    chosen = int(out.rsplit("train with num_envs=", 1)[1].split()[0])
    assert 20 <= chosen <= 70  # 18 s of training add up to 28 MiB
    code, again, _ = tuner(*asked)
    assert code == 0
    assert f"train with num_envs={chosen}" in again
    code, planned, err = tuner("plan", "--study", study, "--set", "num_envs=60", "--predict")
    assert code == 0, err
    assert "90 % sure" in planned
    code, said, err = tuner("told", "--study", study, "--oom")
    assert "host_oom" in said
    assert f"train with num_envs={chosen}" not in said
