"""A training whose steps are counted and not counted in turn, within this one process.

    python counted_training.py DEVICE MODE SECONDS

It prints a JSON object: the time per step of each pair of blocks, the losses, and the number of compiled graphs. With 0
seconds it trains a fixed number of blocks and takes nothing away, so that losses and graphs can be compared with those
of a process that does not count.
"""

import json
import sys
import time
from collections.abc import Callable
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
    """The places where counting comes into a training: each asks a switch which of two functions it calls.

    No class of a loader or a module is changed between two blocks: Python would forget what it remembers of its
    methods. The engine that computes gradients is exchanged, as the counting itself does.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        """Find what counts now, and what stands there without counting."""
        self._counts = True
        self._hooks = _global_optimizer_post_hooks
        self._kept_hooks = dict(self._hooks)
        for owner, name in ((loaders._BaseDataLoaderIter, "__next__"), (type(module), "__call__")):
            counted = getattr(owner, name)
            setattr(owner, name, self._either(counted, unwrap(counted)))
        self._other_engine = torch._C._ImperativeEngine()
        # half of the time is not counted, and a record comes after so many counted steps as in any other training
        sys.modules["tuner_inside.steps"].RECORD_EVERY_S *= 2  # pyright: ignore[reportAttributeAccessIssue]

    def _either(self, counted: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return (counted if self._counts else plain)(*args, **kwargs)

        return call

    def switch(self, *, counts: bool) -> None:
        """Count from now on, or count no longer."""
        if counts != self._counts:
            other, variable = self._other_engine, torch.autograd.Variable
            self._other_engine = variable._execution_engine
            setattr(variable, "_execution_engine", other)  # noqa: B010 - its type is fixed in torch's stubs
        self._counts = counts
        self._hooks.clear()
        if counts:
            self._hooks.update(self._kept_hooks)


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
        places = Counters(training.module)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            us = {}
            for counts in (True, False) if len(pairs) % 2 else (False, True):
                places.switch(counts=counts)
                us[counts] = training.block()
            pairs.append((us[False], us[True]))
    graphs = sum(counters["stats"].values())
    print(json.dumps({"pairs_us": pairs, "losses": training.losses, "graphs": graphs}))


if __name__ == "__main__":
    main()
