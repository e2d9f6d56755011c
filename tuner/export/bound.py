"""What limits a case: its memory's bandwidth, its arithmetic, or what feeds the devices. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from tuner.probe import BUSY_PCT


class Bound(StrEnum):
    """The class of a case, by what its devices did over the window."""

    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    HOST = "launch- or host-bound"
    BALANCED = "balanced"


# Where a class begins, in percent of what the card can do at most. The idea is that of the roofline model. Sources:
# - S. Williams et al., "Roofline", CACM 52(4), 2009.
# - NVIDIA DCGM user guide, "Profiling Metrics": SM activity of 80 % is necessary for effective use, and less than
#   50 % likely shows ineffective use. About 80 % of the memory cycles are the most that is achievable.
# - The rule `SpeedOfLight` of Nsight Compute calls a unit the limit from 60 % of its achievable maximum on.
SM_BUSY_PCT = 80.0
"""From here on the multiprocessors themselves are the limit."""
DRAM_PCT = 48.0
"""60 % of the 80 % of memory cycles that are achievable."""
TENSOR_PCT = 60.0
"""60 % of the tensor cores' cycles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """What the least busy device of a probe did over the window, in percent of the most it can do. None is unknown."""

    util_pct: float | None = None
    sm_pct: float | None = None
    tensor_pct: float | None = None
    dram_pct: float | None = None
    power_w: float | None = None
    """The mean power of all devices together, in watts."""
    joules_per_sample: float | None = None
    """The energy of all devices for one sample."""
    mem_share_pct: float | None = None
    """The share of a device's memory that was in use at the peak."""
    on_gpu: bool = True
    """Whether the devices are GPUs, and not shares of the CPU."""
    others_pct: float | None = None
    """The share of the processors that other programs used."""
    data_pct: float | None = None
    """The share of the time that waits for a loader, as it is counted inside the training."""

    def __str__(self) -> str:
        """Return what was measured as text, without what is unknown."""
        shares = {"utilisation": self.util_pct, "SM": self.sm_pct, "tensor": self.tensor_pct, "DRAM": self.dram_pct}
        parts = [f"{name} {share:.0f} %" for name, share in shares.items() if share is not None]
        if self.power_w is not None:
            parts.append(f"{self.power_w:.0f} W")
        if self.joules_per_sample is not None:
            parts.append(f"{self.joules_per_sample:.3g} J/sample")
        return ", ".join(parts)


def bound(profile: Profile) -> Bound | None:
    """Return the class of a profile; None where what was measured does not show it.

    1. If the memory's bandwidth or the tensor cores have reached their limit, the part that is furthest beyond decides.
    2. Where the activity of the multiprocessors (SM) is unknown, utilisation shows only that a device waits, not what a
       busy device does.
    3. Otherwise they decide: they are busy, or mostly wait for work, or neither.

    While other programs use the processors, it is unknown what a device waits for.
    """
    # 1
    dram, tensor = (profile.dram_pct or 0.0) / DRAM_PCT, (profile.tensor_pct or 0.0) / TENSOR_PCT  # shares of a limit
    if max(dram, tensor) >= 1.0:
        return Bound.MEMORY if dram >= tensor else Bound.COMPUTE
    others_are_busy = (profile.others_pct or 0.0) >= BUSY_PCT
    of_waiting = None if others_are_busy else Bound.HOST
    # 2
    if profile.sm_pct is None:
        is_waiting = profile.util_pct is not None and profile.util_pct < 80.0  # idle for a fifth of the time
        return of_waiting if is_waiting else None
    # 3
    if profile.sm_pct >= SM_BUSY_PCT:
        return Bound.COMPUTE
    return of_waiting if profile.sm_pct < 50.0 else Bound.BALANCED


def advice(kind: Bound, profile: Profile) -> str:
    """Return what to do next with a case of this class."""
    match kind:
        case Bound.MEMORY:
            return "bf16 or fused kernels (torch.compile) move fewer bytes; a larger batch gains little"
        case Bound.COMPUTE:
            if profile.tensor_pct is not None and profile.tensor_pct < 10.0:  # they count as unused
                return "the cards are near their limit; the tensor cores are idle, so bf16 or TF32 may still gain"
            return "the cards are near their limit; only less work per sample or more cards gain much"
        case Bound.HOST:
            return _advice_for_waiting(profile)
        case Bound.BALANCED:
            return "no part is near its limit; larger batches gain while memory lasts, and torch.compile may gain"


def _advice_for_waiting(profile: Profile) -> str:
    """Return what to do where devices wait: how to give them more work."""
    if (profile.data_pct or 0.0) >= 50.0:  # the wait for data is what limits the training
        return f"{profile.data_pct:.0f} % of the time waits for data: more data workers or a faster loader gain most"
    if not profile.on_gpu:
        return "larger batches give the ranks more to do; they wait for data or for each other"
    more_work = "larger batches, more data workers, CUDA graphs or torch.compile give the devices more to do"
    fits_twice = profile.mem_share_pct is not None and profile.mem_share_pct <= 45.0  # twice this leaves a tenth free
    return f"{more_work}; two single-GPU jobs side by side fit into the memory" if fits_twice else more_work
