"""The energy of the processors, as the kernel counts it (powercap), if this user may read it."""

import re
from contextlib import suppress
from pathlib import Path

COUNTERS = "/sys/class/powercap"
"""Where the kernel shows the counters."""


class Rapl:
    """The counters of all processor packages together. Memory and other devices are not in them.

    Most kernels let only root read them (CVE-2020-8694).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        zones = [zone for zone in sorted((root / COUNTERS.lstrip("/")).glob("intel-rapl:*")) if _is_package(zone)]
        self._counters = [_Counter(zone) for zone in zones]

    def total_j(self) -> float | None:
        """Return the joules since this object was made; None where a counter cannot be read."""
        totals = [counter.total_uj() for counter in self._counters]
        known = [total for total in totals if total is not None]
        return sum(known) / 1e6 if known and len(known) == len(totals) else None


def _is_package(zone: Path) -> bool:
    """Return whether a zone is a whole package, rather than a part of one or the whole machine."""
    with suppress(OSError):
        is_top = re.fullmatch(r"intel-rapl:\d+", zone.name) is not None
        return is_top and (zone / "name").read_text(encoding="ascii").startswith("package")
    return False


class _Counter:
    """One counter, which begins again at 0 when it has reached its largest value."""

    def __init__(self, zone: Path) -> None:
        self._zone = zone
        self._before = self._read("energy_uj")
        """The last reading."""
        self._total = 0
        """The microjoules since the beginning."""

    def total_uj(self) -> int | None:
        """Return the microjoules since the beginning; None where they cannot be read."""
        now = self._read("energy_uj")
        if now is None or self._before is None:
            return None
        gained = now - self._before
        self._total += gained if gained >= 0 else gained + (self._read("max_energy_range_uj") or 0)
        self._before = now
        return self._total

    def _read(self, name: str) -> int | None:
        with suppress(OSError, ValueError):
            return int((self._zone / name).read_text(encoding="ascii"))
        return None
