"""Small real trainers whose memory changes late, for `benchmarks/memory/show.py`: on the CPU, or on one GPU.

    python train.py --trainer loop --condition evaluation --batch-size 64

The conditions: `evaluation` and `checkpoints` come every so many steps and need memory of their own, a `buffer` grows
with each step, `lengths` vary from batch to batch, `both` does both, and `plain` changes nothing. On a GPU there are
also `compiled` (changing shapes under torch.compile) and `fragments` (blocks of many sizes that live for long).
`--cap-mib` limits the memory.
"""

import argparse
import contextlib
import ctypes
import io
import json
import os
import random
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tuner"))
from progress import report  # the one file that a trainer copies

M_MMAP_THRESHOLD = -3
WIDTH, LAYERS, LENGTH = 128, 4, 16
LONGEST, USUAL = 3.0, 1.0
"""The longest batch, in multiples of the usual length."""


class Net(nn.Module):
    """A tower of cheap layers: its activations need most of the memory, and little time."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.ParameterList(nn.Parameter(torch.randn(WIDTH)) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for scale in self.scale:
            x = x * scale
        return self.head(x.mean(dim=1)).square().mean()


class Work:
    """The model, its data and what else happens beside training, in the same way for every trainer."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.device = asked, torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.random, self.step, self.buffer = random.Random(asked.seed), 0, list[torch.Tensor]()
        self.fragments: list[torch.Tensor] = []
        torch.manual_seed(asked.seed)
        self.net = Net()

    def batch(self, size: int) -> torch.Tensor:
        """Return the next batch: samples x length x width."""
        times = USUAL
        if self.asked.condition in {"lengths", "compiled", "both"}:
            drawn = min(LONGEST, self.random.lognormvariate(-0.35, 0.55))
            times = LONGEST if self.asked.longest_first and self.step < 3 else drawn
        return torch.ones(size, max(1, round(LENGTH * times)), WIDTH, device=self.device)

    def after(self, size: int) -> None:
        """Do what comes after a step: evaluate, save, grow."""
        self.step += 1
        every = self.asked.every
        condition = self.asked.condition
        if condition == "evaluation" and self.step % every == 0:
            with torch.no_grad():
                outputs = [self.batch(size) for _ in range(20)]  # kept until the end, as metrics do
                float(sum(one.mean() for one in outputs))
        elif condition == "checkpoints" and self.step % every == 0:
            state = {"net": self.net.state_dict(), "data": torch.zeros(self.asked.state_mib << 18)}
            saved = io.BytesIO()
            torch.save(state, saved)
        elif condition in {"buffer", "both"}:
            self.buffer.append(torch.ones(round(self.asked.grow_kib * 256), device=self.device))
        elif condition == "fragments":
            kept = [one for one in self.fragments if self.random.random() > 0.1]
            self.fragments = [
                *kept,
                torch.empty(self.random.randint(1, self.asked.block_mib) << 18, device=self.device),
            ]
        self.tell(size)

    def tell(self, size: int) -> None:
        """Report a step, and stop after the last."""
        more = {}
        if self.device.type == "cuda":
            stats = torch.cuda.memory_stats()
            more = {
                "alloc_retries": stats["num_alloc_retries"],
                "allocated_mib": stats["allocated_bytes.all.peak"] / 2**20,
                "reserved_mib": stats["reserved_bytes.all.peak"] / 2**20,
            }
        time.sleep(self.asked.wait_s)
        report(iteration=self.step - 1, samples=self.step * size, **more)


def loop(work: Work, size: int) -> None:
    """Train in a plain loop."""
    net = work.net.to(work.device)
    run = torch.compile(net, dynamic=True) if work.asked.condition == "compiled" else net
    optimizer = torch.optim.Adam(net.parameters())
    while work.step < work.asked.steps:
        optimizer.zero_grad()
        run(work.batch(size)).backward()
        optimizer.step()
        work.after(size)


def with_accelerate(work: Work, size: int) -> None:
    """Train in the loop of accelerate's examples."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=work.device.type == "cpu")
    net, optimizer = accelerator.prepare(work.net, torch.optim.Adam(work.net.parameters()))
    while work.step < work.asked.steps:
        optimizer.zero_grad()
        accelerator.backward(net(work.batch(size)))
        optimizer.step()
        work.after(size)


def with_lightning(work: Work, size: int) -> None:
    """Train by Lightning's Trainer."""
    trainer, module = lightning(work, size)
    trainer.fit(module)


def lightning(work: Work, size: int, **options: object):
    """Return Lightning's trainer and module for the work; the module's `batch_size` may change before a fit."""
    import logging

    import lightning.pytorch as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.batch_size = work.net, size

        def training_step(self, _: object, number: int) -> torch.Tensor:
            return self.net(work.batch(self.batch_size))

        def on_train_batch_end(self, *_: object) -> None:
            work.after(self.batch_size)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.net.parameters())

        def train_dataloader(self) -> torch.utils.data.DataLoader:
            return torch.utils.data.DataLoader(range(10**9), batch_size=self.batch_size)

    usual = {"max_steps": work.asked.steps, "logger": False, "enable_checkpointing": False, "accelerator": "auto"}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "barebones": False}
    return pl.Trainer(**usual | quiet | options), Module()


TRAINERS = {"loop": loop, "accelerate": with_accelerate, "lightning": with_lightning}


def find_by_lightning(work: Work, size: int) -> int:
    """Return the batch size that Lightning's `scale_batch_size` finds, as its documentation calls it."""
    from lightning.pytorch.tuner import Tuner

    trainer, module = lightning(work, size, max_steps=-1, max_epochs=1)
    return (
        Tuner(trainer).scale_batch_size(module, mode="binsearch", steps_per_trial=3, init_val=size, max_trials=12) or 0
    )


def train_by_accelerate(asked: argparse.Namespace, size: int) -> dict[str, object]:
    """Train inside accelerate's `find_executable_batch_size`; return each size, and the steps until it ran out."""
    from accelerate.utils import find_executable_batch_size

    tried: list[tuple[int, int]] = []

    @find_executable_batch_size(starting_batch_size=size)
    def inner(batch_size: int) -> None:
        work = Work(asked)
        try:
            with_accelerate(work, batch_size)
        finally:
            tried.append((batch_size, work.step))

    inner()
    return {"tried": tried}


def cap(asked: argparse.Namespace) -> float | None:
    """Limit the memory: of a GPU by torch's own fraction, of the CPU by the kernel.

    Returns what NVML counts on the card beside torch's own memory: the context, the kernels and the driver's share.
    """
    if torch.cuda.is_available() and asked.cap_mib:
        beside_mib = asked.beside_mib or measure_beside_mib()
        total_mib = torch.cuda.get_device_properties(0).total_memory / 2**20
        torch.cuda.set_per_process_memory_fraction((asked.cap_mib - beside_mib) / total_mib)
        return beside_mib
    if asked.cap_mib:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (asked.cap_mib << 20,) * 2)
    return None


def measure_beside_mib() -> float:
    """Return what NVML counts on a card that no other process uses, less what torch's allocator holds."""
    import pynvml

    Net().cuda()(torch.ones(64, LENGTH, WIDTH, device="cuda")).backward()
    torch.cuda.synchronize()
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")  # not NVML's card 0
    used = pynvml.nvmlDeviceGetMemoryInfo(card).used
    beside_mib = (used - torch.cuda.memory_reserved()) / 2**20
    torch.cuda.empty_cache()
    return beside_mib


def main() -> None:
    """Train, or find a batch size, as the command line says; write what was found to `--told`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", default="loop", choices=TRAINERS)
    parser.add_argument("--condition", default="plain")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--every", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wait-s", type=float, default=0.02)
    parser.add_argument("--grow-kib", type=float, default=64.0)
    parser.add_argument("--state-mib", type=int, default=24)
    parser.add_argument("--cap-mib", type=int, default=0)
    parser.add_argument("--beside-mib", type=float, help="what the card holds beside torch's memory; 0: measure it")
    parser.add_argument("--block-mib", type=int, default=64)
    parser.add_argument("--longest-first", action="store_true")
    parser.add_argument("--find", choices=["lightning", "accelerate"])
    parser.add_argument("--told", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)  # a block that is freed goes back to the system, as it should
    beside_mib = cap(asked)
    work, told = Work(asked), {}
    try:
        if asked.find == "lightning":
            told = {"found": find_by_lightning(work, asked.batch_size)}
        elif asked.find == "accelerate":
            told = train_by_accelerate(asked, asked.batch_size)
        else:
            TRAINERS[asked.trainer](work, asked.batch_size)
    except (RuntimeError, MemoryError) as error:
        told = {"error": str(error)[:300]}
        raise
    finally:
        if asked.told:
            card = {}
            if work.device.type == "cuda":
                retries = torch.cuda.memory_stats()["num_alloc_retries"]
                peak_mib = torch.cuda.max_memory_reserved() / 2**20
                card = {"peak_mib": peak_mib, "alloc_retries": retries, "beside_mib": beside_mib}
            with contextlib.suppress(OSError):
                rows = dict(
                    line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
                )
                host = {name: int(rows[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS", "VmData")}
            asked.told.write_text(json.dumps({"steps": work.step, **card, "host": host, "pid": os.getpid(), **told}))


if __name__ == "__main__":
    main()
