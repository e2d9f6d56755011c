"""What computes gradients, and in which precision; graphs, memory and transfer between devices."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.errors import ConfigRefusedError
from tuner.trainers.reference.launch_settings import Kernels, Precision

BF16_FROM = (8, 0)
"""The first compute capability with bf16 in its matrix units: Ampere (NVIDIA, CUDA C++ Programming Guide, table of
compute capabilities)."""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class Numerics:
    """The number format in which the layers of the networks compute on a device; all other work is fp32."""

    device: torch.device
    dtype: torch.dtype = torch.float32

    def layers(self) -> AbstractContextManager[object]:
        """Let layers compute in the format inside this context."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def exact(self) -> AbstractContextManager[object]:
        """Let everything compute in fp32 inside this context, also inside `layers()`."""
        return torch.autocast(self.device.type, enabled=False)

    def scaler(self) -> torch.amp.GradScaler:
        """Return what scales losses so that gradients do not vanish in fp16; in other formats it changes nothing."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)


def numerics(precision: Precision, device: torch.device) -> Numerics:
    """Choose the number format on a device. Raises ConfigRefusedError for bf16 on a GPU without bf16."""
    if device.type != "cuda":
        return Numerics(device, DTYPES["fp32" if precision == "auto" else precision])
    has_bf16 = torch.cuda.get_device_capability(device) >= BF16_FROM
    if precision == "bf16" and not has_bf16:
        name = torch.cuda.get_device_name(device)
        raise ConfigRefusedError(f"precision bf16: {name} has no bf16; use fp16, or auto, which chooses fp16 there")
    chosen = ("bf16" if has_bf16 else "fp16") if precision == "auto" else precision
    return Numerics(device, DTYPES[chosen])


def prepare_process(asked: Kernels, device: torch.device, ranks: int) -> None:
    """Set what a run changes for its whole process, also back to the default after another run in a session.

    One thread is best for layers of this size, where threads wait for each other longer than they compute. Only a
    rollout on the CPU beside a GPU has large layers there, so the ranks then share the cores.
    """
    torch.set_float32_matmul_precision("high" if asked.tf32 else "highest")
    torch.backends.cudnn.benchmark = asked.cudnn_benchmark
    beside_gpu = asked.rollout_device == "cpu" and device.type == "cuda"
    torch.set_num_threads(max(len(os.sched_getaffinity(0)) // ranks, 1) if beside_gpu else 1)


LEARNING_RATE = 5e-4

Samples = dict[str, Tensor]
"""Columns of equal length, one sample per row."""


class NetworkLoss(nn.Module):
    """A network together with what it minimises: `forward(samples)` returns the loss of a minibatch, a scalar."""

    columns: tuple[str, ...]
    """The columns of the samples that it reads."""
    compiles = True
    """Whether torch.compile can compile it."""


class Learner:
    """Minimises one loss; `wrap` joins it with its copies on other ranks before the first step."""

    def __init__(
        self,
        loss: NetworkLoss,
        *,
        epochs: int,
        minibatch: int,
        wrap: Callable[[NetworkLoss], nn.Module],
        formats: Numerics | None = None,
        compiled: bool = False,
    ) -> None:
        """`formats`: the number formats of the layers; None for fp32. `compiled`: compile the loss where it can be."""
        self._columns = loss.columns
        self._formats = formats or Numerics(next(loss.parameters()).device)
        self._scaler = self._formats.scaler()
        if compiled and loss.compiles:
            loss.compile(dynamic=False)
        self._loss = wrap(loss)
        self._optimiser = torch.optim.Adam(loss.parameters(), lr=LEARNING_RATE, fused=True)
        self._epochs = epochs
        self._minibatch = minibatch

    def update(self, samples: Samples) -> Tensor:
        """Train on the samples for all epochs, in minibatches drawn anew in each epoch; return the last loss."""
        columns = {name: samples[name] for name in self._columns}
        any_column = columns[self._columns[0]]
        loss = torch.zeros(())
        for _ in range(self._epochs):
            for rows in torch.randperm(len(any_column), device=any_column.device).split(self._minibatch):
                batch = {name: column.index_select(0, rows) for name, column in columns.items()}
                with self._formats.layers():
                    loss = self._loss(batch)
                self._optimiser.zero_grad()
                self._scaler.scale(loss).backward()
                self._scaler.step(self._optimiser)
                self._scaler.update()
        return loss.detach()


BYTES_PER_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CardMemory:
    """The memory of a GPU in MiB."""

    total_mib: float
    allocated_mib: float
    """What the tensors of this rank hold."""
    free_mib: float
    """What no process on the GPU has reserved."""

    def __str__(self) -> str:
        return f"memory {self.total_mib:.0f} MiB total, {self.allocated_mib:.0f} allocated, {self.free_mib:.0f} free"


def card_memory(device: torch.device) -> CardMemory | None:
    """Read the memory of a GPU; None for a CPU."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    allocated = torch.cuda.memory_allocated(device)
    return CardMemory(
        total_mib=total / BYTES_PER_MIB, allocated_mib=allocated / BYTES_PER_MIB, free_mib=free / BYTES_PER_MIB
    )


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
