"""The small real scripts of `examples/`, from `tuner init` to a first value.

They run with `pytest -m trainers`. TRAINERS_PYTHON names a Python that has their libraries.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests_docs import ROOT

PYTHON = Path(os.environ.get("TRAINERS_PYTHON", sys.executable)).absolute()
COMMANDS = {
    "stable_baselines3": "python examples/sb3_ppo.py --n-envs 4 --n-steps 32 --batch-size 32",
    "lightning": "python examples/lightning_ddp.py --devices 2 --batch-size 8 --num-workers 0",
    "transformers": "torchrun --nproc-per-node 2 examples/huggingface_gpt2.py --per_device_train_batch_size 4",
    "accelerate": "accelerate launch --num_processes 2 examples/huggingface_gpt2.py --per_device_train_batch_size 2",
    "rsl_rl": "python examples/rsl_rl_ppo.py --num_envs 16 --num_steps 8 --num_mini_batches 1",
    "tyro": "python examples/cleanrl_ppo.py --num-envs 4 --num-steps 64",
    "skrl": "python examples/skrl_ppo.py --num_envs 16 --rollouts 32",
    "torch": "torchrun --nproc-per-node 2 examples/torchrun_ddp.py --batch-size 16 --num-workers 0",
}
"""The library that a script needs → the command."""
VALUES = re.compile(r"^min_avg_util: \d+\.\d ± \d+\.\d$.*^samples_per_s: \d+\.\d ± \d+\.\d$", re.MULTILINE | re.DOTALL)


@pytest.mark.trainers
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", COMMANDS)
def test_an_example_has_a_first_value_without_an_edit(module: str, tmp_path: Path) -> None:
    if subprocess.run([PYTHON, "-c", f"import torch, {module}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{PYTHON} has no {module}; name another Python in TRAINERS_PYTHON")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def tuner(*words: str) -> str:
        command = [sys.executable, "-m", "tuner", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, check=True, stdout=subprocess.PIPE, text=True, timeout=900
        ).stdout

    tuner("init", "--name", "example", "--", *shlex.split(COMMANDS[module]))
    shown = tuner("try", "--study", "example")
    assert VALUES.search(shown), shown
