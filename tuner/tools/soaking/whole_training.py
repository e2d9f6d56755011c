"""The training for which memory is to last, and what may keep more memory than it needs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tuner.probe import HOUR_S, MIB_PER_GIB, DeviceSummary, ProbeResult, duration
from tuner.records.trial import ProbeRecord, SoakSettings
from tuner.running.workbench import Workbench
from tuner.search.memory_growth import PILING_UP, PROVOKED, SURE, USUAL, Expected, Lasts, lasts
from tuner.study import DeviceKind


class Keeper(NamedTuple):
    """What keeps freed memory for later, so that it counts as used."""

    name: str
    variables: tuple[str, ...]
    """The environment variables that change this, the usual one first."""
    value: str
    """The value with which freed memory is given back, as in YAML."""
    at_a_cost: bool
    """Whether that makes a training slower."""


KEEPERS: Mapping[DeviceKind, Keeper] = {
    "gpu": Keeper("torch", ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), "expandable_segments:True", False),
    "cpu": Keeper("the C library", ("MALLOC_MMAP_THRESHOLD_",), '"65536"', True),
}


def keeper(kind: DeviceKind, variables: Mapping[str, str]) -> Keeper | None:
    """Return what may keep far more memory than a training with these environment variables needs.

    On an H100 with a limit of 2.5 GB, batches that last were 1.5 to 2.4 times as large with the setting. On the CPU,
    twice as many environments of the reference trainer lasted (`benchmarks/results/memory.md`).
    """
    found = KEEPERS[kind]
    return None if any(name in variables for name in found.variables) else found


ANY_SOAK = SoakSettings()
"""A soak by the trainer's own command, within the device's own memory."""


MOST_SURE = 0.99
"""No soak is surer than this: what it does not meet is not in its models."""
SHORT_S = 60.0
"""A shorter soak says that memory lasts without a probability."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """The training for which memory is to last."""

    hours: float
    iterations: int | None = None
    """Its length, where it is known so: a smaller config then makes no more of them."""
    provoked: bool = False
    """Whether a soak meets what needs most memory."""
    keeper: Keeper | None = None
    """What may keep far more memory than the training needs."""
    soak: SoakSettings = ANY_SOAK
    """What a soak meets, without its length and that of the training."""

    @classmethod
    def of(cls, bench: Workbench, hours: float | None = None, iterations: int | None = None) -> "Training":
        """Return the training that a study means; `hours` replace its `search.training_hours`."""
        return cls(
            hours=hours or bench.spec.search.training_hours,
            iterations=iterations,
            provoked=bench.spec.soak.shows_worst,
            keeper=keeper(bench.kind, {**os.environ, **bench.variables}),
            soak=SoakSettings(
                flags=bench.spec.soak.flags,
                command=bench.spec.soak.command,
                memory_mib=bench.spec.environment.memory_mib,
            ),
        )

    def lasts(self, devices: tuple[DeviceSummary, ...], probe: ProbeResult | ProbeRecord) -> Lasts | None:
        """Return whether memory lasts, by a soak and the devices in it; None where it is not known."""
        if self.iterations is None:
            return lasts(devices, self.hours, self._expected)
        if not probe.iterations or probe.iterations < 2 or probe.total_s is None:
            return None
        each_s = (probe.total_s - (probe.start_up_s or 0.0)) / (probe.iterations - 1)
        return lasts(devices, self.iterations * each_s / HOUR_S, self._expected)

    @property
    def _expected(self) -> Expected:
        """What is known of its memory before a soak."""
        if not self.provoked:
            return USUAL
        return PILING_UP if self.keeper else PROVOKED

    def in_short(self, found: Lasts) -> str:
        """Return whether memory lasts, in one sentence part."""
        unit, by = ("GiB", MIB_PER_GIB) if found.total_mib >= 10 * MIB_PER_GIB else ("MiB", 1.0)
        digits = 1 if by > 1.0 else 0
        now, most, total = (f"{mib / by:.{digits}f}" for mib in (found.now_mib, found.most_mib, found.total_mib))
        shape = {"flat": "flat", "steps": "in steps that become rarer", "slope": "growing all the time"}[found.kind]
        chance = "less than 1" if found.chance < 0.01 else f"{min(found.chance, MOST_SURE) * 100:.0f}"
        how_sure = f" with {chance} % probability"
        if found.seen_s < SHORT_S and found.chance >= SURE:
            how_sure = f", as far as a soak of {duration(found.seen_s)} can show"
        return f"memory lasts {self}{how_sure}: {now} {unit} now, {shape}, at most {most} of {total}"

    def __str__(self) -> str:
        """Return its length in words."""
        return f"{self.iterations:,} iterations" if self.iterations else f"{self.hours:g} h"
