"""The energy counters of processors.

The kernel shows a counter for each part of a processor (RAPL, `Documentation/power/powercap` of Linux): it grows by the
energy that the part has used. A zone is the folder of one such part.
"""

import re
from contextlib import suppress
from pathlib import Path

COUNTERS = "/sys/class/powercap"
"""Where the kernel shows the counters of energy."""


class Rapl:
    """The energy of all processor packages together. Memory and other devices are not in it.

    Most kernels let only root read them (CVE-2020-8694).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Find the counters. `root`: the folder in which `sys` lies."""
        self._counters: list[_Counter] = []
        for zone in sorted((root / COUNTERS.lstrip("/")).glob("intel-rapl:*")):
            # a whole package, rather than a part of one or the whole machine
            with suppress(OSError):
                is_top = re.fullmatch(r"intel-rapl:\d+", zone.name) is not None
                if is_top and (zone / "name").read_text(encoding="ascii").startswith("package"):
                    self._counters.append(_Counter(zone))

    def total_j(self) -> float | None:
        """Return the joules since this object was made; None where a counter cannot be read."""
        totals = [counter.total_uj() for counter in self._counters]
        known = [total for total in totals if total is not None]
        return sum(known) / 1e6 if known and len(known) == len(totals) else None


class _Counter:
    """The counter of one package, which begins again at 0 when it has reached its largest value."""

    def __init__(self, zone: Path) -> None:
        self._zone = zone
        self._before = self._read("energy_uj")
        """The last reading in microjoules; None where it cannot be read."""
        self._total = 0
        """The microjoules since the beginning."""

    def total_uj(self) -> int | None:
        """Return the microjoules since the beginning; None where they cannot be read."""
        now = self._read("energy_uj")
        if now is None or self._before is None:
            return None
        gained = now - self._before
        if gained < 0:  # the counter has begun again
            gained += self._read("max_energy_range_uj") or 0
        self._total += gained
        self._before = now
        return self._total

    def _read(self, name: str) -> int | None:
        """Return the number in a file of the counter; None where it cannot be read."""
        with suppress(OSError, ValueError):
            return int((self._zone / name).read_text(encoding="ascii"))
        return None
