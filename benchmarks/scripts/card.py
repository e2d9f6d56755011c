"""On one GPU: the search from the examples' own flags, plain runs of both commands, and their losses for three seeds.

    python -m benchmarks.scripts.card --out FOLDER

`tuner optimize` searches each script for five minutes. It keeps what is learnt and may vary the precision. Then the
user's own command and the best run, seed by seed. A row is written after each run: samples/s by the side file, and the
loss after each printed count of the script. The same command again goes on: it keeps the bests and the rows in `--out`.
"""

import argparse
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from benchmarks.scripts.commands import HERE, Place, plain_run, truth_of

NANOGPT = "--block_size=512 --n_layer=8 --n_embd=768 --n_head=12 --batch_size=8 --gradient_accumulation_steps=8"
COMMANDS = {
    "nanogpt": f"python train_nanogpt.py {NANOGPT} --max_iters=100000",
    "huggingface": "python train_huggingface.py --hidden_size 768 --num_layers 8 --block_size 512 "
    "--train_texts 1000000 --per_device_train_batch_size 8 --gradient_accumulation_steps 4 "
    "--logging_steps 5 --eval_strategy no --save_strategy no --output_dir out-clm",
    "imagenet": "python train_imagenet.py -a resnet18 -b 256 -j 4 --dist-url tcp://127.0.0.1:23456 "
    "--multiprocessing-distributed --world-size 1 --rank 0 --dummy --dummy-images 256000 --image-size 224 --width 64",
}
SEARCHES = {
    "nanogpt": ("dtype=float32,bfloat16", "tf32=False,True", "compile=False,True"),
    "huggingface": ("bf16=false,true", "torch_compile=false,true", "per_device_train_batch_size=8,16,32"),
    "imagenet": ("amp=false,true", "channels-last=false,true", "workers=4,8,16"),
}
"""Script → what may vary. To name a precision is to allow it."""
SMALL = {
    "nanogpt": "python train_nanogpt.py --device=cpu --batch_size=4 --gradient_accumulation_steps=4",
    "huggingface": "python train_huggingface.py --use_cpu --per_device_train_batch_size 4 "
    "--gradient_accumulation_steps 4 --logging_steps 5 --eval_strategy no --save_strategy no --output_dir out-clm",
    "imagenet": "python train_imagenet.py -b 32 -j 2 --multiprocessing-distributed --dummy",
}
"""The same scripts for a try on a CPU."""
SEEDED = {"nanogpt": "--seed={seed}", "huggingface": "--seed {seed}", "imagenet": "--seed {seed}"}
LOSSES = {
    "nanogpt": re.compile(r"^iter (?P<at>\d+): loss (?P<loss>[\d.]+)", re.MULTILINE),
    "huggingface": re.compile(r"\{'loss': '?(?P<loss>[\d.]+)"),
    "imagenet": re.compile(r"^Epoch: \[0\]\[ *(?P<at>\d+)/.*?Loss (?P<loss>[\d.e+-]+)", re.MULTILINE),
}
"""Script → how it prints its loss; where it prints no count, the losses are numbered."""
SETTLE_S, LEAST_S = 3.0, 5.0
"""What is left out of a plain run, and the least that is measured."""


def losses(name: str, log: str) -> dict[int, float]:
    """Return the losses of a run by the count that the script prints with them."""
    found = list(LOSSES[name].finditer(log))
    return {int(one.groupdict().get("at") or number): float(one["loss"]) for number, one in enumerate(found)}


def searched(name: str, place: Place, typed: str, seconds: float, out: Path) -> Iterator[str]:
    """Search with a script's command, keep the best command in `out`, and yield a row."""
    began_s = time.monotonic()
    named = [word for one in SEARCHES[name] for word in ("--search", one)]
    limits = ("--yes", "--name", "s", "--seconds", "60", "--python", str(place.python), "--hours", str(seconds / 3600))
    _, _, shown = place.tuner(place.folder / "optimize.tsv", "optimize", *limits, *named, "--", *shlex.split(typed))
    (out / f"{name}.log").write_text(shown)
    _, code, best = place.tuner(place.folder / "plan.tsv", "plan", "--study", "s", "--best")
    if code == 0:
        (out / f"{name}-best.sh").write_text(best)
    said = f"no best: {shown[-300:]!r}" if code else best.splitlines()[-1]
    yield f"{name}\tsearch\t{time.monotonic() - began_s:.0f} s\t{said}"


def seeds(name: str, place: Place, commands: Mapping[str, str], settings: argparse.Namespace) -> Iterator[str]:
    """Run both commands seed by seed, those that have no row yet, and yield a row for each run."""
    rows = settings.out / "rows.tsv"
    done = {tuple(line.split("\t")[:3]) for line in rows.read_text().splitlines()} if rows.exists() else set()
    for seed in range(3):
        added = SEEDED[name].format(seed=seed)
        for which, command in commands.items():
            if (name, which, str(seed)) in done:
                continue
            (place.folder / f"{which}-seed.sh").write_text(f"{command.rstrip()} {added}\n")
            side = place.folder / f"{which}{seed}.tsv"
            plain_run(["bash", f"{which}-seed.sh"], place, side, SETTLE_S + settings.measure_s)
            rate = 0.0
            if truth := truth_of(side):
                with suppress(ValueError):
                    rate = truth.rate(truth.first_s + SETTLE_S, truth.last_s)
            seen = losses(name, side.with_suffix(".log").read_text())
            some = {at: seen[at] for at in sorted(seen)[:: max(1, len(seen) // 8)]}
            yield f"{name}\t{which}\t{seed}\t{rate:.1f}\t{some}"


def one_script(name: str, settings: argparse.Namespace) -> Iterator[str]:
    """Search and run one script in a folder of its own; yield the rows."""
    folder = (settings.work / name).absolute()
    folder.mkdir(parents=True)
    for file in ("truth_file.py", f"train_{name}.py"):
        shutil.copy(HERE / file, folder)
    place = Place(folder=folder, python=settings.python.absolute())
    typed, best = (SMALL if settings.small else COMMANDS)[name], settings.out / f"{name}-best.sh"
    if not best.exists():
        yield from searched(name, place, typed, settings.search_s, settings.out)
    if best.exists():
        yield from seeds(name, place, {"own": typed, "best": best.read_text()}, settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--search-s", type=float, default=300.0, help="the time of a search, in which probes begin")
    parser.add_argument("--measure-s", type=float, default=10.0, help="the measured time of a plain run")
    parser.add_argument("--only", action="append", choices=COMMANDS, help="one script; repeat for more")
    parser.add_argument("--small", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--out", type=Path, default=Path("runs/card"), help="where the rows and logs are written")
    parser.add_argument("--work", type=Path, default=Path("runs/card-work"), help="a folder, which is emptied")
    settings = parser.parse_args()
    shutil.rmtree(settings.work, ignore_errors=True)
    settings.out.mkdir(parents=True, exist_ok=True)
    for name in settings.only or COMMANDS:
        for row in one_script(name, settings):
            print(row, flush=True)
            with (settings.out / "rows.tsv").open("a") as table:
                table.write(f"{row}\n")


if __name__ == "__main__":
    main()
