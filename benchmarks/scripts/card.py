"""On one GPU: the search from the examples' own flags, plain runs of both commands, and their losses for three seeds.

    python -m benchmarks.scripts.card --limit-s 530 --out FOLDER

Each script has its share of the time. About half of it goes to `tuner optimize`, which keeps what is learnt and may
vary the precision. The rest goes to plain runs of the user's own command and of the best, seed by seed. A row is
written after each run: samples/s by the side file, and the loss after each printed count of the script.
"""

import argparse
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.scripts.trial import HERE, Place, plain_run, truth_of

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


def seeds(name: str, place: Place, measure_s: float, until_s: float) -> Iterator[str]:
    """Run both commands seed by seed while there is time, and yield a row for each run."""
    for seed in range(3):
        added = SEEDED[name].format(seed=seed)
        for which, script in (("own", place.folder / "own.sh"), ("best", place.folder / "best.sh")):
            if time.monotonic() + measure_s + SETTLE_S > until_s:
                yield f"{name}\t{which}\t{seed}\tno time is left"
                return
            (place.folder / f"{which}-seed.sh").write_text(f"{script.read_text().rstrip()} {added}\n")
            side = place.folder / f"{which}{seed}.tsv"
            plain_run(["bash", f"{which}-seed.sh"], place, side, SETTLE_S + measure_s)
            rate = 0.0
            if truth := truth_of(side):
                with suppress(ValueError):
                    rate = truth.rate(truth.first_s + SETTLE_S, truth.last_s)
            seen = losses(name, side.with_suffix(".log").read_text())
            some = {at: seen[at] for at in sorted(seen)[:: max(1, len(seen) // 8)]}
            yield f"{name}\t{which}\t{seed}\t{rate:.1f}\t{some}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--limit-s", type=float, default=530.0, help="the time of all scripts")
    parser.add_argument("--measure-s", type=float, default=10.0, help="the measured time of a plain run")
    parser.add_argument("--only", action="append", choices=COMMANDS, help="one script; repeat for more")
    parser.add_argument("--small", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--out", type=Path, default=Path("runs/card"), help="where the rows and logs are written")
    parser.add_argument("--work", type=Path, default=Path("runs/card-work"), help="a folder, which is emptied")
    args = parser.parse_args()
    names = args.only or list(COMMANDS)
    ends_s = time.monotonic() + args.limit_s
    shutil.rmtree(args.work, ignore_errors=True)
    args.out.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        began_s = time.monotonic()
        share_s = (ends_s - began_s) / (len(names) - number)
        folder = (args.work / name).absolute()
        folder.mkdir(parents=True)
        for file in ("truth_file.py", f"train_{name}.py"):
            shutil.copy(HERE / file, folder)
        place = Place(folder=folder, python=args.python.absolute())
        typed = (SMALL if args.small else COMMANDS)[name]
        searched = [word for one in SEARCHES[name] for word in ("--search", one)]
        limits = ("--yes", "--name", "s", "--seconds", "60", "--python", str(place.python))
        hours = str(0.45 * share_s / 3600)
        _, _, shown = place.tuner(
            folder / "optimize.tsv", "optimize", *limits, "--hours", hours, *searched, "--", *shlex.split(typed)
        )
        (args.out / f"{name}.log").write_text(shown)
        _, code, best = place.tuner(folder / "plan.tsv", "plan", "--study", "s", "--best")
        spent_s = time.monotonic() - began_s
        rows = [f"{name}\tsearch\t{spent_s:.0f} s\tno best: {shown[-300:]!r}"] if code else []
        if not code:
            (folder / "own.sh").write_text(typed)
            (folder / "best.sh").write_text(best)
            (args.out / f"{name}-best.sh").write_text(best)
            rows = (
                row
                for part in ([f"{name}\tsearch\t{spent_s:.0f} s\t{best.splitlines()[-1]}"],
                             seeds(name, place, args.measure_s, began_s + share_s))
                for row in part
            )  # fmt: skip
        for row in rows:
            print(row, flush=True)
            with (args.out / "rows.tsv").open("a") as table:
                table.write(f"{row}\n")


if __name__ == "__main__":
    main()
