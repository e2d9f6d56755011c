"""The predecessor's rule: the order of its configs, the end of a probe, and the value of a probe. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from tuner.probe.result import DeviceSample, ProbeResult
from tuner.study.space import LADDER, VARIANT, Config, Space, Value
from tuner.study.spec import ProbeSpec

ITERATIONS, LIMIT_S, SKIPPED_S = 8, 420.0, 20


class Unhurried(ProbeSpec):
    """Limits by which the death of a rank ends a probe no earlier than anything else."""

    grace_seconds: ClassVar = LIMIT_S


def limited(limits: ProbeSpec) -> ProbeSpec:
    """Return limits by which a probe ends with its eighth iteration, or after 420 s even if it hangs."""
    never = dict.fromkeys(("start_up_silence_seconds", "silence_seconds"), LIMIT_S)
    enough = {"iterations": ITERATIONS, "window_seconds": 0.001}  # short iterations get no more of them
    return Unhurried.model_validate(limits.model_dump() | enough | never | {"max_seconds": LIMIT_S})


def reading(samples: Sequence[DeviceSample], devices: int) -> float | None:
    """Return the least mean utilisation over devices in percent: one value a second, the first 20 left out."""
    means = []
    for device in range(devices):
        seconds = {int(one.t_s): one.util_pct for one in samples if one.device == device and one.util_pct is not None}
        kept = [util for second, util in seconds.items() if second >= SKIPPED_S]
        if kept:
            means.append(fmean(kept))
    return min(means, default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A probe, and what the devices did from its launch to its end."""

    result: ProbeResult
    samples: Sequence[DeviceSample]
    devices: int

    @property
    def succeeded(self) -> bool:
        """Whether the eighth iteration came, wherever the window begins."""
        began, last = self.result.began, self.result.iteration
        return self.result.ok and began is not None and last is not None and last - began + 1 >= ITERATIONS

    @property
    def outcome(self) -> str:
        failure = self.result.failure
        return "ok" if self.succeeded else str(failure.kind) if failure else f"fewer than {ITERATIONS} iterations"

    @property
    def device_s(self) -> float:
        return self.devices * self.result.total_s

    @property
    def reading_pct(self) -> float | None:
        return reading(self.samples, self.devices)

    @property
    def peak_mib(self) -> float | None:
        return max((one.mem_used_mib for one in self.samples if one.mem_used_mib is not None), default=None)


def procedure(
    space: Space, variants: Sequence[Value | None], rungs: Sequence[int], attempt: Callable[[Config], Attempt]
) -> Iterator[Attempt]:
    """Yield every attempt as it ends: each variant's rungs from the largest down to the first success."""
    for variant in variants:
        for rung in sorted(rungs, reverse=True):
            yield (tried := attempt(_config(space, rung, variant)))
            if tried.succeeded:
                break


def _config(space: Space, rung: int, variant: Value | None) -> Config:
    chosen = {LADDER: rung, VARIANT: variant}
    return space.draw(lambda parameter: chosen.get(parameter.name) or parameter.values[0])


def winner(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the successful attempt with the highest value, or None where nothing succeeded."""
    return max((one for one in attempts if one.succeeded), key=lambda one: one.reading_pct or 0.0, default=None)
