"""The training for which memory is to last, and what may keep more memory than it needs.

A soak is a long trial of one config, which shows whether its memory lasts.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.probe import HOUR_S, MIB_PER_GIB, DeviceSummary, ProbeResult, duration
from tuner.records.trial import ProbeRecord, SoakSettings
from tuner.running.workbench import Workbench
from tuner.search.memory_growth import PILING_UP, PROVOKED, SURE, USUAL, MemoryForecast, RecordPrior, forecast_memory
from tuner.study import DeviceKind


class CachingAllocator(NamedTuple):
    """The allocator of a trainer: it keeps freed memory for later, so that this memory counts as used."""

    name: str
    variables: tuple[str, ...]
    """The environment variables that change this, the most usual first."""
    value: str
    """The value with which freed memory is given back, as in YAML; the training may then be slower."""


ALLOCATORS: Mapping[DeviceKind, CachingAllocator] = {
    "gpu": CachingAllocator("torch", ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), "expandable_segments:True"),
    "cpu": CachingAllocator("the C library", ("MALLOC_MMAP_THRESHOLD_",), '"65536"'),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeTraining:
    """The training for which memory is to last."""

    hours: float
    iterations: int | None = None
    """The length of the training in iterations; None where `hours` are its length.

    Iterations say more where they are known: a smaller config takes less time for each, and makes no more of them.
    """
    meets_peak: bool = False
    """Whether a soak meets what needs most memory, such as the largest batch, so that nothing larger comes later."""
    allocator: CachingAllocator | None = None
    """What may keep far more memory than the training needs; None where freed memory is given back."""
    soak: SoakSettings = field(default_factory=SoakSettings)
    """The flags, command and limit of memory of a soak; by default the trainer's own command."""

    @classmethod
    def of(cls, bench: Workbench, hours: float | None = None, iterations: int | None = None) -> "WholeTraining":
        """Return the whole training for which a study searches.

        Args:
            bench: the study; its `soak` says how a soak provokes what needs most memory, and with which command.
            hours: the length of the training; None for the study's `search.training_hours`.
            iterations: the length in iterations, which replaces the hours; None where only hours are known.
        """
        # With its `value`, batches that lasted on an H100 with a limit of 2.5 GB were 1.5 to 2.4 times as large.
        # On the CPU, twice as many environments of the reference trainer lasted (`benchmarks/results/memory.md`).
        allocator = ALLOCATORS[bench.kind]
        is_set_already = any(name in os.environ or name in bench.variables for name in allocator.variables)
        return cls(
            hours=hours or bench.spec.search.training_hours,
            iterations=iterations,
            meets_peak=bench.spec.soak.provokes or not bench.spec.soak.worse,  # `worse: false`: nothing larger comes
            allocator=None if is_set_already else allocator,
            soak=SoakSettings(
                flags=bench.spec.soak.flags,
                command=bench.spec.soak.command,
                memory_mib=bench.spec.environment.memory_mib,
            ),
        )

    def forecast(self, devices: tuple[DeviceSummary, ...], probe: ProbeResult | ProbeRecord) -> MemoryForecast | None:
        """Return how surely memory lasts for the training; None where that is unknown.

        Args:
            devices: What the memory of each device did in a soak.
            probe: The soak so far, or its record.
        """
        if self.iterations is None:
            return forecast_memory(devices, self.hours, self._prior)
        if not probe.numbered_iterations or probe.window_s is None:  # an iteration's time is unknown
            return None
        iteration_s = probe.window_s / probe.numbered_iterations
        return forecast_memory(devices, self.iterations * iteration_s / HOUR_S, self._prior)

    def ineligibility(self, result: ProbeResult) -> str | None:
        """Return why a config that was soaked may not be the best; None where it may."""
        forecast = self.forecast(result.devices, result)
        return None if forecast is None or forecast.chance >= SURE else self.in_short(forecast)

    @property
    def _prior(self) -> RecordPrior:
        """The prior for new records of memory use: what is expected before a soak has shown any."""
        if not self.meets_peak:
            return USUAL
        return PILING_UP if self.allocator else PROVOKED

    def in_short(self, forecast: MemoryForecast) -> str:
        """Return in one part of a sentence whether memory lasts, and which growth the soak would not show.

        For example: memory lasts 24 h with 98 % probability: 61.2 GiB now, flat, at most 63.0 of 80.0.
        """
        rise = forecast.rise
        is_large = forecast.total_mib >= 10 * MIB_PER_GIB
        divisor, decimals, unit = (MIB_PER_GIB, 1, "GiB") if is_large else (1, 0, "MiB")
        amounts_mib = (rise.now_mib, forecast.most_mib, forecast.total_mib)
        now, most, total = (f"{amount_mib / divisor:.{decimals}f}" for amount_mib in amounts_mib)
        shape = {"flat": "flat", "steps": "in steps that become rarer", "slope": "growing all the time"}[rise.kind]
        if rise.hidden_mib_per_h:
            shape += f" (growth below {rise.hidden_mib_per_h:,.0f} MiB an hour would not show)"
        is_likely, is_sure = forecast.chance >= 0.5, forecast.chance >= SURE
        # 99 % at most, because a soak may not meet all that a training does
        percent = 100.0 * min(max(forecast.chance, 1.0 - forecast.chance), 0.99)
        confidence = f" with {percent:.0f} % probability"
        if is_sure and rise.end_s < 60.0:  # seconds (chosen): so short a soak shows too little for a percentage
            confidence = f", as far as a soak of {duration(rise.end_s)} can show"
        claim = f"lasts {self}" if is_likely else f"runs out within {self}"
        bound = "at most" if is_sure else "it may reach"
        return f"memory {claim}{confidence}: {now} {unit} now, {shape}, {bound} {most} of {total}"

    def __str__(self) -> str:
        """Return the length of the training in words."""
        return f"{self.iterations:,} iterations" if self.iterations else f"{self.hours:g} h"
