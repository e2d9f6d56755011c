"""What limits a case: its memory's bandwidth, its arithmetic, or what feeds the devices. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Bound(StrEnum):
    """The class of a case, by what its devices did over the window."""

    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    HOST = "launch- or host-bound"
    BALANCED = "balanced"


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """Where a class begins, in percent of what the card can do at most. The idea is that of the roofline model.

    Sources: S. Williams et al., "Roofline", CACM 52(4), 2009; NVIDIA DCGM user guide, "Profiling Metrics": SM activity
    of 80 % is necessary for effective use, less than 50 % likely shows ineffective use, and about 80 % of the memory
    cycles are the most that is achievable; the rule `SpeedOfLight` of Nsight Compute, which calls a unit the limit from
    60 % of its achievable maximum on.
    """

    sm_busy: float = 80.0
    """From here on the multiprocessors themselves are the limit."""
    sm_waiting: float = 50.0
    """Below, the multiprocessors mostly wait for work."""
    dram: float = 48.0
    """60 % of the 80 % of memory cycles that are achievable."""
    tensor: float = 60.0
    """60 % of the tensor cores' cycles."""
    util_waiting: float = 80.0
    """Where multiprocessors are not measured: a device that idles for a fifth of the time waits for work."""


USUAL = Thresholds()


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """What the least busy device of a probe did over the window, in percent of the most it can do. None is unknown."""

    util: float | None = None
    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None
    power_w: float | None = None
    """The mean power of all devices together, in watts."""
    mem_share: float | None = None
    """The share of a device's memory that was in use at the peak."""

    @classmethod
    def of(cls, metrics: Mapping[str, float | None]) -> "Profile":
        """Read a profile from the metrics of a trial."""
        headroom = metrics.get("headroom_pct")
        return cls(
            util=metrics.get("min_avg_util"),
            sm=metrics.get("min_avg_sm"),
            tensor=metrics.get("min_avg_tensor"),
            dram=metrics.get("min_avg_dram"),
            power_w=metrics.get("power_mean_w"),
            mem_share=None if headroom is None else 100.0 - headroom,
        )

    def __str__(self) -> str:
        known = {"utilisation": self.util, "SM": self.sm, "tensor": self.tensor, "DRAM": self.dram}
        parts = [f"{name} {share:.0f} %" for name, share in known.items() if share is not None]
        return ", ".join([*parts, *([f"{self.power_w:.0f} W"] if self.power_w is not None else [])])


def bound(profile: Profile, limits: Thresholds = USUAL) -> Bound | None:
    """Return the class of a profile; None where what was measured does not tell.

    Utilisation alone says that a device waits. It does not say what a busy device is busy with.
    """
    dram, tensor = profile.dram or 0.0, profile.tensor or 0.0
    if dram >= limits.dram and dram / limits.dram >= tensor / limits.tensor:
        return Bound.MEMORY
    if tensor >= limits.tensor:
        return Bound.COMPUTE
    if profile.sm is None:
        return Bound.HOST if profile.util is not None and profile.util < limits.util_waiting else None
    if profile.sm >= limits.sm_busy:
        return Bound.COMPUTE
    return Bound.HOST if profile.sm < limits.sm_waiting else Bound.BALANCED


ROOM_FOR_TWO = 45.0
"""A second job of the same size fits beside the first where the first uses at most this share of the memory."""
IDLE_TENSOR = 10.0
"""Below this share the tensor cores count as unused."""


def advice(kind: Bound, profile: Profile) -> str:
    """Return what to do next with a case of this class."""
    match kind:
        case Bound.MEMORY:
            return "bf16 or fused kernels (torch.compile) move fewer bytes; a larger batch gains little"
        case Bound.COMPUTE:
            if profile.tensor is not None and profile.tensor < IDLE_TENSOR:
                return "the cards are near their limit; the tensor cores are idle, so bf16 or TF32 may still gain"
            return "the cards are near their limit; only less work per sample or more cards gain much"
        case Bound.HOST:
            more = "larger batches, more data workers, CUDA graphs or torch.compile give the devices more to do"
            fits = profile.mem_share is not None and profile.mem_share <= ROOM_FOR_TWO
            return f"{more}; two single-GPU jobs side by side fit into the memory" if fits else more
        case Bound.BALANCED:
            return "no part is near its limit; larger batches gain while memory lasts, and torch.compile may gain"
