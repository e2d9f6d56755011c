"""The pairs of `show.py` with real trainers: the one that ships with `tuner`, and MimicKit, on CPU ranks."""

import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.memory.pairs import RESULTS, Pair

AGENT = {
    "steps_per_iter": 2,
    "actor_batch_size": 2,
    "test_episodes": 4,
    "iters_per_output": 20,
    "actor_epochs": 1,
    "critic_epochs": 1,
}
SMALLER = {
    "data/agents/deepmimic_pi_plus_ppo_agent.yaml": AGENT,
    "data/envs/deepmimic_pi_plus_env.yaml": {"episode_length": 1.0},
}
"""What MimicKit's files get here, so that a step takes seconds; every 20 steps the agent is tested and saved."""


@dataclass(frozen=True, kw_only=True)
class Real(Pair):
    """A real trainer, whose environments are the ladder. It is limited from outside, and says only how it ended."""

    case: str
    argv: str
    """The words of a whole run after Python, with places for the size, the seed, the steps, the samples and a port."""
    root: str = ""
    ladder: str = "num_envs"
    rivals: Sequence[str] = ()
    worse: bool = False
    """MimicKit tests and saves its agent in the first step, too, and the other trainer does so at its end at most."""

    def spec(self, python: str) -> dict[str, Any]:
        """Return the trainer and the case of the study."""
        options = {"engine_config": "data/engines/newton_engine.yaml"} if self.root else {}
        named = {"name": self.trainer, "root": self.copy(), "python": self.python, "options": options}
        return {"trainer": named, "cases": [self.case]}

    def whole(self, python: str, size: int, seed: int, folder: Path, more: str = "") -> dict[str, Any]:
        """Run a whole training with the limit of the pair."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        out = folder / f"{seed}-{size}-{self.steps}"
        shutil.rmtree(out, ignore_errors=True)
        most = size * self.samples * self.steps
        words = self.argv.format(size=size, seed=seed, steps=self.steps, most=most, port=port, out=out)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (self.cap_mib << 20, self.cap_mib << 20))

        log = out.with_suffix(".log")
        with log.open("w") as output:
            done = subprocess.run(
                [self.python, *words.split()],
                cwd=self.copy() or None,
                env={**os.environ, **self.variables},
                preexec_fn=limit,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return {"steps": self.steps} if done.returncode == 0 else {"error": log.read_text()[-300:], "steps": 0}

    @property
    def python(self) -> str:
        """Return the Python that runs the trainer."""
        return os.environ.get("MIMICKIT_PYTHON", "python3") if self.root else sys.executable

    def copy(self) -> str:
        """Return a copy of the checkout with the smaller files; empty where the trainer needs none."""
        if not self.root:
            return ""
        copy = (RESULTS / "MimicKit").resolve()
        if not copy.exists():
            shutil.copytree(self.root, copy, ignore=shutil.ignore_patterns(".git", "output"))
            yaml = YAML()
            for name, changes in SMALLER.items():
                content = yaml.load(copy / name)
                content.update(changes)
                yaml.dump(content, copy / name)
        return str(copy)


def rungs(first: int, count: int) -> tuple[int, ...]:
    """Return rungs about 2 % apart."""
    return tuple(dict.fromkeys(round(first * 1.02**power) for power in range(count)))


REFERENCE = Real(
    trainer="reference",
    condition="deepmimic",
    case="deepmimic_pi_plus_ppo",
    argv="-m tuner.trainers.reference --case deepmimic_pi_plus_ppo --devices cpu --master-port {port} "
    "--num-envs {size} --seed {seed} --iterations {steps} --out-dir {out}",
    cap_mib=440,
    samples=32,
    steps=300,
    rungs=rungs(128, 120),
    probed=30,
)
MIMICKIT = Real(
    trainer="mimickit",
    condition="evaluation",
    case="deepmimic_pi_plus_ppo",
    argv="mimickit/run.py --arg_file args/deepmimic_pi_plus_ppo_args.txt --engine_config "
    "data/engines/newton_engine.yaml --mode train --visualize false --logger txt --devices cpu --master_port {port} "
    "--num_envs {size} --rand_seed {seed} --max_samples {most} --out_dir {out}",
    root=os.environ.get("MIMICKIT_ROOT", ""),
    cap_mib=1400,
    samples=2,
    steps=60,
    rungs=rungs(40, 100),
    probed=16,
)
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""With this variable glibc gives each freed block back to the system, as `train.py` does by itself."""
GIVES_BACK = replace(REFERENCE, condition="freed blocks given back", variables=GIVEN_BACK, steps=150)
MIMICKIT_GIVES_BACK = replace(MIMICKIT, condition="evaluation, freed blocks given back", variables=GIVEN_BACK)
REAL = [*([MIMICKIT, MIMICKIT_GIVES_BACK] if MIMICKIT.root else []), REFERENCE, GIVES_BACK]
