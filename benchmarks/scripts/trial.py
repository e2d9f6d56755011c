"""Does with twenty training scripts what a new user would do, and compares what `tuner` tells with the side files.

    python -m benchmarks.scripts.trial --python PYTHON [--hints] [--only NAME] > benchmarks/results/scripts.md

`--python` is a Python that has the packages of `requirements.txt`. Each script runs in a folder of its own below
`--work`. `tuner init` watches the command, and `tuner try` probes the study that it has written. No line is edited.
The truth is that of the same probe and the same window. With `--hints`, the study is also tried with the line on
samples that the script's author would take from its comments. A row is written as soon as it is known; the same command
goes on with the scripts that have none. Whether the best is faster is measured by `benchmarks.scripts.faster`.
"""

import argparse
import csv
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten

import psutil

from benchmarks.scripts.judged import Truth, hints, off_pct, read_told, read_truth, reason, verdict
from tuner.devices.found import describe_machine, open_devices
from tuner.probe.series import read_series

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
class Row:
    """What one script has shown; a number that nobody knows is empty."""

    name: str
    minutes: str
    told: str
    error: str
    true: str
    off_pct: str
    elsewhere_pct: str
    """The share of the window that went to evaluation and checkpoints."""
    verdict: str
    hinted: str = ""
    """The verdicts with the study's own hints; empty where they were not tried."""


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


def first_value(name: str, place: Place) -> Row:
    """Make a study from a script's command, and probe it. Whatever goes wrong is in the row."""
    began_s = time.monotonic()
    made = (
        "init",
        "--seconds",
        SECONDS,
        "--python",
        str(place.python),
        "--name",
        "study",
        "--",
        *shlex.split(COMMANDS[name]),
    )
    _, code, shown = place.tuner(place.folder / "init.tsv", *made)
    if code:
        return _row(name, began_s, verdict=f"refused: {reason(shown)}")
    return probed(name, place, "study", began_s)


def probed(name: str, place: Place, study: str, began_s: float) -> Row:
    """Probe a study, and compare the speed that `tuner try` tells with the side file of the same window."""
    side = place.side(f"{study}-try")
    shutil.rmtree(place.folder / "runs" / study / "try", ignore_errors=True)
    pid, code, shown = place.tuner(side, "try", "--study", study)
    if code:
        return _row(name, began_s, verdict=f"refused: {reason(shown)}")
    told = read_told(shown)
    truth, window = truth_of(side), window_of(place, study)
    true = share = None
    if truth and window and (origin_s := truth.start_below(pid)) is not None:
        begin_s, end_s = (origin_s + t_s for t_s in window)
        with suppress(ValueError):
            rate = truth.training_rate if told.is_apart else truth.rate
            true, share = rate(begin_s, end_s), truth.share_of_other(begin_s, end_s)
    return _row(
        name,
        began_s,
        told=_shown(told.value),
        error=_shown(told.error),
        true=_shown(true),
        off_pct=_shown(off_pct(told, true), "+.1f"),
        elsewhere_pct=_shown(None if share is None else 100 * share, ".0f"),
        verdict=verdict(told, true, TOKENS.get(name, 0)),
    )


def window_of(place: Place, study: str) -> tuple[float, float] | None:
    """Return when the window of the last probe of `tuner try` began and ended, in seconds since its start."""
    series = [found for path in (place.folder / "runs" / study / "try").glob("*") if (found := read_series(path))]
    return series[-1].window_s if series else None


def truth_of(side: Path) -> Truth | None:
    """Return what a side file says; None where nothing has trained."""
    if not side.exists():
        return None
    truth = read_truth(side.read_text())
    return truth if truth.samples else None


def hinted(name: str, place: Place) -> str:
    """Try the study with the line on samples that fits the script, where it shows one; return the verdict."""
    file = place.folder / "studies/study.yaml"
    found: list[str] = []
    for number, text in enumerate(hints(file.read_text(), ANSWERS.get(name, "a batch of each rank"))):
        study = f"hint{number}"
        (place.folder / f"studies/{study}.yaml").write_text(text.replace("name: study", f"name: {study}"))
        row = probed(name, place, study, time.monotonic())
        found.append(f"{row.verdict} ({row.off_pct} %)" if row.off_pct else row.verdict)
    return "; ".join(found) or "none"


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


def trial(name: str, args: argparse.Namespace) -> Row:
    """Do with one script all that was asked for."""
    place = prepared(place_of(name, args), name)
    row = first_value(name, place)
    if args.hints and not row.verdict.startswith("refused"):
        return replace(row, hinted=hinted(name, place))
    return row


def _row(name: str, began_s: float, *, verdict: str, **known: str) -> Row:
    unknown = dict.fromkeys(("told", "error", "true", "off_pct", "elsewhere_pct"), "")
    minutes = f"{(time.monotonic() - began_s) / 60:.1f}"
    return Row(name=name, minutes=minutes, verdict=verdict, **(unknown | known))


def _shown(number: float | None, form: str = ".1f") -> str:
    return "" if number is None else format(number, form)


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a table; none where there is no table."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return [Row(**one) for one in csv.DictReader(lines, dialect="excel-tab")]


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write a table, sorted as the commands are."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        table = csv.DictWriter(lines, [one.name for one in fields(Row)], dialect="excel-tab")
        table.writeheader()
        table.writerows(asdict(one) for one in sorted(rows, key=lambda row: list(COMMANDS).index(row.name)))


def page(rows: Sequence[Row], machine: dict[str, str], title: str, load: float) -> str:
    """Return the page of results."""
    right = sum(row.verdict.startswith("right") for row in rows)
    counts = {
        word: sum(row.verdict.startswith(word) for row in rows) for word in ("refused", "unknown", "vague", "WRONG")
    }
    return "\n".join(
        [
            f"# {title}",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, {machine['memory']}, no GPU. "
            f"The load average was {load:.0f} at the end.",
            "",
            f"Of {len(rows)} scripts, {right} are right, {counts['refused']} refused, {counts['unknown']} unknown, "
            f"{counts['vague']} vague, and {counts['WRONG']} wrong in silence.",
            "",
            "| script | minutes | lines edited | told samples/s | true | error, % | elsewhere, % | verdict "
            "| with the study's hints |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_line(row) for row in rows),
            "",
            "Minutes are those of `tuner init` and `tuner try`. The truth is that of the probe's own window, by the",
            "side file. Elsewhere is the share of the window in which the script evaluated or saved.",
            "The user's environment asks for one thread per process; `tuner` may set another number.",
            "",
            "The commands:",
            "",
            *(f"- {row.name}: `{COMMANDS[row.name]}`" for row in rows),
        ]
    )


def _line(row: Row) -> str:
    told = f"{row.told} ± {row.error}" if row.error else row.told
    said = shorten(row.verdict, 120, placeholder=" …")
    cells = (row.name, row.minutes, "0", told, row.true, row.off_pct, row.elsewhere_pct, said, row.hinted)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--only", action="append", choices=COMMANDS, help="one script; repeat for more")
    parser.add_argument("--hints", action="store_true", help="also follow the study's own hints on samples")
    parser.add_argument("--work", type=Path, default=Path("runs/scripts"), help="the folder of all scripts")
    parser.add_argument("--title", default="Twenty training scripts, without an edited line")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    table = args.work / "rows.tsv"
    for name in args.only or COMMANDS:
        rows = read_rows(table)
        known = next((row for row in rows if row.name == name and not args.only), None)
        if known and (not args.hints or known.hinted or known.verdict.startswith("refused")):
            continue
        row = replace(known, hinted=hinted(name, place_of(name, args))) if known else trial(name, args)
        write_rows(table, [*(one for one in rows if one.name != name), row])
        print(*asdict(row).values(), sep=" | ", file=sys.stderr, flush=True)
    print(page(read_rows(table), describe_machine(open_devices("cpu:1")), args.title, os.getloadavg()[0]))


if __name__ == "__main__":
    main()
