"""Measures how long it takes from `tuner init` to a first value, for a small real script of each popular trainer.

    python -m benchmarks.probes.trainers --python /path/to/python > benchmarks/results/trainers.md

`--python` is a Python that has the trainers' libraries. Each example runs in a folder of its own: `tuner init` watches
the command, and `tuner try` probes the study that `init` has written. No line of the study is edited.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tuner.devices.found import describe_machine, open_devices

ROOT = Path(__file__).parents[2]
LIMIT_S = 900


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A script of `examples/` and how it is started."""

    command: str
    module: str
    """The library that it needs, besides torch."""


EXAMPLES = {
    "Stable-Baselines3": Example(
        command="python examples/sb3_ppo.py --n-envs 4 --n-steps 32 --batch-size 32", module="stable_baselines3"
    ),
    "Lightning, DDP": Example(
        command="python examples/lightning_ddp.py --devices 2 --batch-size 8 --num-workers 0", module="lightning"
    ),
    "Hugging Face, torchrun": Example(
        command="torchrun --nproc-per-node 2 examples/huggingface_gpt2.py --per_device_train_batch_size 4",
        module="transformers",
    ),
    "Hugging Face, accelerate": Example(
        command="accelerate launch --num_processes 2 examples/huggingface_gpt2.py --per_device_train_batch_size 2",
        module="accelerate",
    ),
    "rsl_rl": Example(
        command="python examples/rsl_rl_ppo.py --num_envs 16 --num_steps 8 --num_mini_batches 1", module="rsl_rl"
    ),
    "CleanRL style": Example(command="python examples/cleanrl_ppo.py --num-envs 4 --num-steps 64", module="tyro"),
    "skrl": Example(command="python examples/skrl_ppo.py --num_envs 16 --rollouts 32", module="skrl"),
    "torchrun, plain": Example(
        command="torchrun --nproc-per-node 2 examples/torchrun_ddp.py --batch-size 16 --num-workers 0", module="torch"
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What one example took and measured."""

    init_s: float
    try_s: float
    study: str
    """The study file."""
    shown: str
    """What `tuner try` printed."""

    def read(self, name: str) -> str:
        """Return a metric as `tuner try` printed it."""
        found = re.search(rf"^{name}: (.+)$", self.shown, re.MULTILINE)
        return found[1] if found else "-"

    @property
    def devices(self) -> str:
        """The devices in the study file."""
        found = re.search(r"^devices: '?([^'#\n]+)'?", self.study, re.MULTILINE)
        return found[1].strip() if found else "-"

    @property
    def progress(self) -> str:
        """The preset in the study file, or `lines` where the patterns were found by their form."""
        found = re.search(r"^    progress: (\w+)$", self.study, re.MULTILINE)
        return found[1] if found else "lines"


def first_value(example: Example, python: Path, folder: Path) -> Figures:
    """Make a study from the example's command, and probe it once. Raises CalledProcessError where a command fails."""
    (folder / "examples").symlink_to(ROOT / "examples")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def tuner(*words: str) -> tuple[float, str]:
        began_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *words],
            cwd=folder,
            env=environ,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
        )
        return time.monotonic() - began_s, done.stdout

    init_s, _ = tuner("init", "--name", "example", "--", *shlex.split(example.command))
    try_s, shown = tuner("try", "--study", "example")
    return Figures(init_s=init_s, try_s=try_s, study=(folder / "studies/example.yaml").read_text(), shown=shown)


def page(figures: dict[str, Figures], machine: dict[str, str], load: float) -> str:
    """Return the page of results."""
    rows = [
        f"| {name} | {one.progress} | {one.devices} | {one.init_s:.0f} | {one.try_s:.0f} | "
        f"{(one.init_s + one.try_s) / 60:.1f} | 0 | {one.read('min_avg_util')} | {one.read('samples_per_s')} |"
        for name, one in figures.items()
    ]
    commands = [f"- {name}: `{EXAMPLES[name].command}`" for name in figures]
    return "\n".join(
        [
            "# From a command to a first value",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, {machine['memory']}, no GPU. "
            f"The load average was {load:.0f} at the end.",
            "",
            "`python -m benchmarks.probes.trainers --python PYTHON > benchmarks/results/trainers.md`",
            "",
            "`tuner init` watches the command once and writes a study file. `tuner try` probes one config of that",
            "study. No line of the study file was edited. Utilisation is that of the CPU cores of each rank.",
            "",
            "| trainer | progress by | devices | init, s | try, s | minutes | lines edited | util, % | samples/s |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "The commands:",
            "",
            *commands,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--only", action="append", choices=EXAMPLES, help="one example; repeat for more")
    args = parser.parse_args()
    figures: dict[str, Figures] = {}
    for name in args.only or EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = first_value(EXAMPLES[name], args.python.absolute(), Path(folder))
        print(name, figures[name].shown, sep="\n", file=sys.stderr)
    print(page(figures, describe_machine(open_devices("cpu:1")), os.getloadavg()[0]))


if __name__ == "__main__":
    main()
