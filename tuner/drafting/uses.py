"""How a command used the devices while it was watched."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.probe import IDLE_PCT, Device, DeviceSample, Progress

USED_MIB = 300.0
"""A card is used if its memory grows by more than this, in MiB: the least that a process of CUDA takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """How a command used one device while it was watched."""

    device: Device
    util_pct: float | None
    mem_peak_mib: float | None
    worked: bool


def used(reports: Sequence[Progress], samples: Sequence[DeviceSample], devices: Sequence[Device]) -> list[Used]:
    """Return how a command used each device, from its first iteration on."""
    begin_s = reports[0].t_s if len(reports) > 1 else 0.0
    return [
        _used(device, [sample for sample in samples if sample.device == place], begin_s)
        for place, device in enumerate(devices)
    ]


def _used(device: Device, samples: Sequence[DeviceSample], begin_s: float) -> Used:
    shares = [sample.util_pct for sample in samples if sample.util_pct is not None and sample.t_s >= begin_s]
    memory = [sample.mem_used_mib for sample in samples if sample.mem_used_mib is not None]
    util_pct = fmean(shares) if shares else None
    grew = bool(memory) and max(memory) - memory[0] > USED_MIB
    worked = (util_pct or 0.0) > 0 or grew if device.is_gpu else (util_pct or 0.0) >= IDLE_PCT
    return Used(device=device, util_pct=util_pct, mem_peak_mib=max(memory, default=None), worked=worked)


def devices_of(watched: str, ranks: int | None, uses: Sequence[Used]) -> str:
    """Return the devices that a command has used, as a study names them.

    Args:
        watched: the devices that were watched, as a study names them.
        ranks: the processes whose optimizer steps, where these are counted: on the CPU, each is a rank.
        uses: how each device was used.
    """
    working = [use.device for use in uses if use.worked]
    if not uses[0].device.is_gpu and (ranks or len(working) not in {0, len(uses)}):
        return f"cpu:{ranks or len(working)}"
    if len(working) in {0, len(uses)}:
        return watched
    return ",".join(device.name.removeprefix("cuda:") for device in working)
