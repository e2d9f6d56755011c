"""A small real training that prints its progress in one of the ways in which popular trainers print it.

    torchrun --nproc-per-node 2 benchmarks/probes/printing.py --style tqdm --batch-size 32

`benchmarks/probes/truth.py` probes it. Each rank also writes the time and its own samples after each step into a file
of the folder that TRUTH names. No line tells the tuner about it.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tqdm import tqdm

STEPS, EVERY, ACCUMULATED = 200, 10, 4
"""The steps of an epoch; the steps from one printed line to the next; the batches of a step of `accumulation`."""

Lines = Callable[[int, int, float], str]
STYLES: dict[str, Lines] = {
    "epochs": lambda epoch, step, s: f"Epoch: [{epoch}]  [{step:3d}/{STEPS}]  eta: 0:00:07  lr: 0.1  time: {s:.4f}",
    "shares": lambda epoch, step, s: f"Train: {epoch} [{step:>4d}/{STEPS} ({step // 2:>3d}%)]  Time: {s:.3f}s  LR: 0.1",
    "bar": lambda epoch, step, s: f"{step}/{STEPS} {'━' * (step // 10)} {s * (STEPS - step):.0f}s {s * 1e3:.0f}ms/step",
    "accumulation": lambda epoch, step, s: f"iter {epoch * STEPS + step}: loss 2.3, time {s * 1e3:.2f}ms, mfu 1.08%",
    "dictionary": lambda epoch, step, s: f"{{'loss': 2.3, 'lr': 4.5e-05, 'epoch': {epoch + step / STEPS:.4f}}}",
    "speed": lambda epoch, step, s: f"step {epoch * STEPS + step}: {64 / s:.1f} samples/s (mean over the last 100)",
    "brackets": lambda epoch, step, s: f"Epoch[{epoch + 1}] Iteration[{step + 1}/{STEPS}] Loss: 2.3",
    "steps": lambda epoch, step, s: (
        f"stop] epoch={epoch}/micro_step={4 * step}/global_step={epoch * STEPS + step}, lr=[0.1]"
    ),
    "process": lambda epoch, step, s: f"INFO | pid{os.getpid()} | step={epoch * STEPS + step} loss=2.3 lr=1.00e-03",
    "table": lambda epoch, step, s: (
        f"| updates | {epoch * STEPS + step} |\n| serial_timesteps | {step} |\n"
        f"| total_timesteps | {64 * (epoch * STEPS + step):.4e} |\n| time_elapsed | {int(epoch * STEPS * s)} |"
    ),
    "records": lambda epoch, step, s: (
        f'{{"ts": {time.time():.0f}, "global_step": {epoch * STEPS + step}, "loss": 2.3}}'
    ),
}
"""Style → the line of a step; the arguments are the epoch, its step, and the seconds of a step."""
EACH_RANK = ("tqdm", "validation", "evaluation")
"""The styles in which every rank prints bars of tqdm. `tqdm` has a bar for each epoch, and `validation` a second one.
With `evaluation` a bar goes on over all epochs, and after each epoch a bar of an evaluation comes inside it."""
EVALUATED = 80
"""The steps of an evaluation."""


def steps(style: str, epoch: int) -> Iterable[int]:
    """Return the steps of an epoch, as a bar in the styles that have one."""
    if style == "tqdm":
        return tqdm(range(STEPS), desc=f"Epoch {epoch}")
    return tqdm(range(STEPS)) if style == "validation" else range(STEPS)


def main() -> None:
    """Train for ever."""
    # here, because who only compares need not wait for torch
    import torch  # noqa: PLC0415
    from torch import distributed, nn  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--style", choices=(*STYLES, *EACH_RANK), required=True)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches = ACCUMULATED if args.style == "accumulation" else 1
    began_s, done = time.perf_counter(), 0

    def train() -> None:
        nonlocal done
        for _ in range(batches):
            loss = nn.functional.cross_entropy(
                model(torch.randn(args.batch_size, 64)), torch.randint(10, (args.batch_size,))
            )
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        truth.write(f"{time.monotonic():.4f} {done * batches * args.batch_size}\n")

    def evaluate() -> None:
        with torch.no_grad():
            for _ in tqdm(range(EVALUATED)):
                model.module(torch.randn(4 * args.batch_size, 64))

    with (Path(os.environ["TRUTH"]) / f"{os.getpid()}").open("w", buffering=1) as truth:
        epoch = 0
        whole = tqdm(total=100 * STEPS, disable=args.style != "evaluation")
        while True:
            for step in steps(args.style, epoch):
                train()
                whole.update()
                if args.style in STYLES and rank == 0 and step % EVERY == 0:
                    print(STYLES[args.style](epoch, step, (time.perf_counter() - began_s) / done), flush=True)
            if args.style in {"validation", "evaluation"}:
                evaluate()
            epoch += 1


if __name__ == "__main__":
    main()
