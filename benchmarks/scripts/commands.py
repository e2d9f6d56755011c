"""Twenty training scripts: the commands that a user types, and plain runs of them beside their side files.

Each script runs in a folder of its own, under a Python that has the packages of `requirements.txt`. No line is edited.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.scripts.judged import Truth, read_truth

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_S, PLAIN_S, SETTLE_S, START_S = 900.0, 20.0, 2.0, 120.0
"""The longest command of `tuner`; a plain run's measured time; what is left out before; its longest start."""

SECONDS = "180"
"""The longest time to watch a command; the usual minute is too short for some on a machine that others use."""
COMMANDS = {
    "TRL": "python train_trl_sft.py --learning_rate 2.0e-5 --per_device_train_batch_size 4 "
    "--gradient_accumulation_steps 4 --eval_strategy steps --eval_steps 100 --output_dir out-sft",
    "HF Trainer": "torchrun --nproc_per_node 2 train_huggingface.py --use_cpu --per_device_train_batch_size 8 "
    "--gradient_accumulation_steps 2 --eval_strategy epoch --logging_steps 10 --output_dir out-clm",
    "ImageNet": "python train_imagenet.py -a resnet18 -b 32 -j 2 --dist-url tcp://127.0.0.1:23456 "
    "--multiprocessing-distributed --world-size 1 --rank 0 --dummy",
    "timm": "python train_timm.py --model convnet --synthetic -b 32 -j 2 --lr 0.05",
    "nanoGPT": "python train_nanogpt.py --device=cpu --compile=False --eval_iters=20 --log_interval=1 "
    "--block_size=64 --batch_size=8 --gradient_accumulation_steps=4",
    "Lightning": "python train_lightning.py --accelerator cpu --devices 2 --batch_size 32",
    "Keras": "python train_keras.py --batch-size 64",
    "YOLO": "python train_yolo.py train data=coco8.yaml model=yolo11n.yaml epochs=3 imgsz=64 batch=16 workers=0",
    "tianshou": "python train_tianshou.py --training-num 10 --batch-size 64",
    "RLlib": "python train_rllib.py --num-env-runners 1 --num-envs-per-env-runner 4 --train-batch-size 1000",
    "rsl_rl, Hydra": "python train_rsl_rl_hydra.py task=cartpole num_envs=64 agent.num_steps_per_env=24",
    "LeRobot": "python train_lerobot.py --policy.type=act --dataset.repo_id=user/pick --batch_size=8 --num_workers=2",
    "SB3": "python train_sb3.py --n-envs 4 --n-steps 256 --batch-size 64",
    "CleanRL": "python train_cleanrl.py --num-envs 4 --num-steps 128",
    "skrl": "python train_skrl.py --num_envs 16 --rollouts 32",
    "JAX": "python train_jax.py --batch-size 32",
    "sleeping loader": "python train_sleeping_loader.py --batch-size 32 --workers 2",
    "decoding loader": "python train_decoding_loader.py -b 32 -j 2",
    "accelerate": "accelerate launch --cpu train_accelerate.py --per_device_train_batch_size 8 "
    "--gradient_accumulation_steps 2",
    "torchtitan": "torchrun --nproc_per_node=2 --tee 3 --local-ranks-filter 0 --role rank train_torchtitan.py "
    "--training.local_batch_size 8",
}
"""Script → the command that a user types. Their order is that of the table."""
ANSWERS = {"ImageNet": "a batch of all ranks", "skrl": "a step of all environments"}
"""Script → what a counted iteration is, as its author knows it; for all others a batch of each rank."""
TOKENS = {"nanoGPT": 64, "torchtitan": 128}
"""Scripts that print tokens → the tokens of a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a script is tried: its folder, and the Python with its libraries."""

    folder: Path
    python: Path

    def environ(self, truth: Path) -> dict[str, str]:
        """Return the environment of a command that writes its side file to `truth`.

        The user asks for one thread per process, because threads that wait for each other measure other users. `tuner`
        may set another number.
        """
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        threads = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        return os.environ | threads | {"PATH": path, "TRUTH_FILE": str(truth), "COLUMNS": "200"}

    def side(self, name: str) -> Path:
        """Return a side file for `tuner`, beside the folder: what a probe writes in the folder ends with it."""
        file = self.folder.parent / "sides" / f"{self.folder.name}-{name}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def tuner(self, truth: Path, *words: str, limit_s: float = LIMIT_S) -> tuple[int, int, str]:
        """Run a command of `tuner` without a terminal; return its process, exit code and what it printed."""
        truth.unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "tuner", *words],
            cwd=self.folder,
            env=self.environ(truth)
            | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            shown, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            shown, _ = process.communicate()
        (self.folder / f"{truth.stem}.log").write_text(shown)
        return process.pid, process.returncode, shown


def truth_of(side: Path) -> Truth | None:
    """Return what a side file says; None where nothing has trained."""
    if not side.exists():
        return None
    truth = read_truth(side.read_text())
    return truth if truth.samples else None


def plain_rate(command: Sequence[str], place: Place, side: Path, seconds: float = PLAIN_S) -> float | None:
    """Run a command without `tuner` for so many seconds of training; return its samples per second by its side file."""
    plain_run(command, place, side, SETTLE_S + seconds)
    if truth := truth_of(side):
        begin_s = truth.first_s + SETTLE_S
        with suppress(ValueError):
            return truth.rate(begin_s, min(begin_s + seconds, truth.last_s))
    return None


def plain_run(command: Sequence[str], place: Place, side: Path, seconds: float) -> None:
    """Run a command without `tuner` until it has trained for so many seconds, and end it."""
    side.unlink(missing_ok=True)
    with side.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=place.folder, env=place.environ(side), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        began_s = time.monotonic()
        while process.poll() is None:
            time.sleep(1)
            truth = truth_of(side)
            trained_s = truth.last_s - truth.first_s if truth else 0.0
            if trained_s > seconds or time.monotonic() - began_s > START_S + seconds:
                break
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        _, left = psutil.wait_procs(below, timeout=5)
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def place_of(name: str, args: argparse.Namespace) -> Place:
    """Return where a script is tried."""
    folder = (args.work / name.replace(", ", "_").replace(" ", "_")).absolute()
    return Place(folder=folder, python=args.python.absolute())


def prepared(place: Place, name: str) -> Place:
    """Return the place, its folder emptied but for the script."""
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    for file in (HERE / "truth_file.py", *HERE.glob("train_*.py")):
        if file.name == "truth_file.py" or file.name in COMMANDS[name]:
            shutil.copy(file, place.folder)
    return place
