"""Devices that replay a recording."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample

_FLAT_COLUMNS = 3  # of one card in the older format: utilisation, memory, power
_GPM_FIELDS = {
    "SM_UTIL": "sm_pct",
    "SM_OCCUPANCY": "occupancy_pct",
    "ANY_TENSOR_UTIL": "tensor_pct",
    "DRAM_BW_UTIL": "dram_pct",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """A probe as it was recorded on real cards."""

    devices: tuple[Device, ...]
    samples: tuple[DeviceSample, ...]
    """The samples sorted by time. All cards that were measured at one moment stand together."""
    marks_s: tuple[float, ...]
    """The time at which the recorder saw the end of each iteration."""
    error_s: float | None = None
    """The time at which the recorder saw the first error line of a rank; None if there was none."""
    total_s: float
    exit_code: int
    """The trainer's exit code. A negative code is the number of the signal that ended the trainer."""


def load_recording(path: Path) -> Recording:
    """Read a recording. Its rows are `[t_s, [util, mem, power, gpm or null], …]`, or flat lists without GPM."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    names = raw.get("gpm_names", [])
    rows = [(row[0], _cards(row[1:])) for row in raw["series"]]
    samples = [_sample(t_s, device, card, names) for t_s, cards in rows for device, card in enumerate(cards)]
    return Recording(
        devices=tuple(Device(name=f"cuda:{index}", model="recorded GPU") for index in range(len(rows[0][1]))),
        samples=tuple(samples),
        marks_s=tuple(raw["iters_t"]),
        error_s=raw.get("first_err_s"),
        total_s=raw["elapsed"],
        exit_code=raw["rc"],
    )


def _cards(values: list[Any]) -> list[list[Any]]:
    if isinstance(values[0], list):
        return values
    return [[*values[start : start + _FLAT_COLUMNS], None] for start in range(0, len(values), _FLAT_COLUMNS)]


def _sample(t_s: float, device: int, card: list[Any], gpm_names: Sequence[str]) -> DeviceSample:
    util_pct, mem_used_mib, power_w, gpm = card
    gpm_pct = {
        _GPM_FIELDS[name]: value for name, value in zip(gpm_names, gpm or (), strict=False) if name in _GPM_FIELDS
    }
    return DeviceSample(
        t_s=t_s, device=device, util_pct=util_pct, mem_used_mib=mem_used_mib, power_w=power_w, **gpm_pct
    )


class ReplayedSource:
    """Returns recorded samples as if they were measured now: the last samples at or before the requested time."""

    label = "nvml"

    def __init__(self, recording: Recording) -> None:
        self.devices = recording.devices
        self._moments = [(t_s, list(cards)) for t_s, cards in groupby(recording.samples, key=lambda sample: sample.t_s)]

    def attach(self, pid: int) -> None:
        """Do nothing, because the recording contains whole cards."""

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Return the recorded samples with the time `t_s`. All values are None before the recording begins."""
        index = bisect_right(self._moments, t_s, key=lambda moment: moment[0]) - 1
        if index < 0:
            return [DeviceSample(t_s=t_s, device=device) for device in range(len(self.devices))]
        return [replace(sample, t_s=t_s) for sample in self._moments[index][1]]
