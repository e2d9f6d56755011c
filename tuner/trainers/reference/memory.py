"""The memory of a rank's GPU."""

from dataclasses import dataclass

import torch

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
