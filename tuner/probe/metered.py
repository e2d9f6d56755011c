"""Devices that also tell, while a probe runs, how busy they were a moment ago."""

from collections import deque
from collections.abc import Sequence
from statistics import fmean

from tuner.probe.plan import Device
from tuner.probe.protocols import DeviceSource
from tuner.probe.result import DeviceSample

MOST_KEPT = 256
"""The most samples that are kept until someone asks; older ones are dropped."""


class Metered:
    """Reads another source, and keeps the latest utilisation for who watches; a `DeviceSource`.

    One thread samples and another asks. Appending to a deque and popping from it are safe between threads.
    """

    def __init__(self, source: DeviceSource) -> None:
        self._source = source
        self._kept: deque[Sequence[DeviceSample]] = deque(maxlen=MOST_KEPT)

    @property
    def label(self) -> str:
        """The name of what measures utilisation."""
        return self._source.label

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that are sampled, in rank order."""
        return self._source.devices

    def attach(self, pid: int) -> None:
        """Set the root process of the probe that starts now."""
        self._source.attach(pid)

    def sample(self, t_s: float) -> Sequence[DeviceSample]:
        """Sample every device once. Raises the errors of the source."""
        samples = self._source.sample(t_s)
        self._kept.append(samples)
        return samples

    def taken(self) -> tuple[float | None, ...]:
        """Return the mean utilisation of each device since the last call, in percent; empty without a sample."""
        shares: dict[int, list[float]] = {}
        found = False
        while self._kept:
            found = True
            for one in self._kept.popleft():
                if one.util_pct is not None:
                    shares.setdefault(one.device, []).append(one.util_pct)
        places = range(len(self.devices)) if found else ()
        return tuple(fmean(shares[place]) if place in shares else None for place in places)
