"""What an iteration copies between the CPU and a GPU, where the rollout runs on the CPU beside a GPU."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.trainers.reference.learner import Samples
from tuner.trainers.reference.memory import BYTES_PER_MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Copies between the CPU and a GPU."""

    mib: float
    seconds: float

    def __add__(self, other: "Transfer") -> "Transfer":
        return Transfer(mib=self.mib + other.mib, seconds=self.seconds + other.seconds)

    def __str__(self) -> str:
        return f"transfer {self.mib:.1f} MiB in {1000 * self.seconds:.1f} ms"


def copy_over(pairs: Iterable[tuple[Tensor, Tensor]]) -> Transfer:
    """Copy the second tensor of each pair into the first, and return how much that was and how long it took."""
    start_s, copied = time.monotonic(), 0
    for into, source in pairs:
        into.copy_(source)
        copied += source.nbytes
    return Transfer(mib=copied / BYTES_PER_MIB, seconds=time.monotonic() - start_s)


def brought(samples: Samples, device: torch.device) -> tuple[Samples, Transfer]:
    """Return the samples on another device, and how much was copied and how long it took."""
    there = {name: torch.empty_like(column, device=device) for name, column in samples.items()}
    transfer = copy_over((there[name], column) for name, column in samples.items())
    return there, transfer
