"""A training whose steps are counted and not counted in turn, within this one process.

    python counted_training.py DEVICE MODE SECONDS

It prints a JSON object: the time per step of each pair of blocks, the losses, and the number of compiled graphs. With 0
seconds it trains a fixed number of blocks and takes nothing away, so that losses and graphs can be compared with those
of a process that does not count.
"""

import json
import sys
import time
from inspect import unwrap
from itertools import islice
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import dataloader as loaders

BATCH = 16
WIDTH = 32
LAYERS = 4
"""A step of this training is short, so that a few microseconds show."""
STEPS = 10
"""The steps of a block."""
PASS = 500
"""The steps of a pass over the data, whose begin and end are measured with no step."""
FIRST_BLOCKS = 40
"""The blocks before the measured ones: the first steps are looked at closely, and a compiler works."""


class Counters:
    """The places where counting comes into a training. It is taken away from them and put back."""

    def __init__(self, module: torch.nn.Module) -> None:
        """Remember what counts now, and what stands there without counting."""
        engine = torch.autograd.Variable._execution_engine
        self._hooks = _global_optimizer_post_hooks
        self._kept_hooks = dict(self._hooks)
        self._places: list[tuple[Any, str, Any, Any]] = [
            (owner, name, counted, unwrap(counted))
            for owner, name, counted in (
                (loaders._BaseDataLoaderIter, "__next__", loaders._BaseDataLoaderIter.__next__),
                (type(module), "__call__", type(module).__call__),
            )
        ]
        self._places.append((torch.autograd.Variable, "_execution_engine", engine, type(engine).__mro__[1]()))

    def attach(self) -> None:
        """Count from now on."""
        for owner, name, counted, _ in self._places:
            setattr(owner, name, counted)
        self._hooks.update(self._kept_hooks)

    def detach(self) -> None:
        """Count no longer."""
        for owner, name, _, plain in self._places:
            setattr(owner, name, plain)
        self._hooks.clear()


class Training:
    """A small network, its optimizer and its data. On a CPU, its time is that which its own thread runs."""

    def __init__(self, device: str, mode: str) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        parts = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        model = torch.nn.Sequential(*parts).to(device)
        self.module: torch.nn.Module = torch.compile(model) if mode == "compiled" else model  # pyright: ignore[reportAttributeAccessIssue]
        self._device = device
        self._clock = time.thread_time if device == "cpu" else time.perf_counter
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self._data = TensorDataset(torch.randn(BATCH * PASS, WIDTH))
        self._batches, self._left = iter(DataLoader(self._data, batch_size=BATCH)), PASS
        self.losses: list[str] = []

    def block(self) -> float:
        """Train a block of steps, and return the microseconds of a step."""
        if not self._left:
            next(self._batches, None)
            self._batches, self._left = iter(DataLoader(self._data, batch_size=BATCH)), PASS
        self._left -= STEPS
        loss = torch.zeros(())
        began_s = self._clock()
        for (batch,) in islice(self._batches, STEPS):
            self._optimizer.zero_grad()
            loss = self.module(batch.to(self._device)).square().mean()
            loss.backward()
            self._optimizer.step()
        last = float(loss.item())  # waits for the device
        ended_s = self._clock()
        self.losses.append(float(last).hex())
        return 1e6 * (ended_s - began_s) / STEPS


def main() -> None:
    """Train as the command line says."""
    device, mode, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    training = Training(device, mode)
    for _ in range(FIRST_BLOCKS):
        training.block()
    pairs: list[tuple[float, float]] = []
    if seconds:
        switch = Counters(training.module)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            us = {}
            for counts in (True, False) if len(pairs) % 2 else (False, True):
                (switch.attach if counts else switch.detach)()
                us[counts] = training.block()
            pairs.append((us[False], us[True]))
    graphs = sum(counters["stats"].values())
    print(json.dumps({"pairs_us": pairs, "losses": training.losses, "graphs": graphs}))


if __name__ == "__main__":
    main()
