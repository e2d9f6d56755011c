"""The number formats of a run on one device, and the settings of torch that a run changes for its whole process."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from tuner.errors import ConfigRefusedError
from tuner.trainers.reference.kernels import Kernels, Precision

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
