"""The power of devices: whether the limits that a study sets can be set here, and the energy counters of processors.

The kernel shows a counter for each part of a processor (RAPL, `Documentation/power/powercap` of Linux): it grows by the
energy that the part has used. A zone is the folder of one such part.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tuner.devices.nvml import Nvml
from tuner.errors import StudyError
from tuner.probe import NVIDIA, Device, guard
from tuner.study import StudySpec

PARAMETER = "power_limit_w"
"""The parameter whose values are power limits, where a command's `env` hands it to the guard."""


def limits_w(spec: StudySpec) -> tuple[float, ...]:
    """Return all power limits that a study sets, in watts: one for all probes, or the values of a parameter."""
    if spec.environment.power_limit_w is not None:
        return (spec.environment.power_limit_w,)
    if guard.POWER not in (spec.trainer.options.get("env") or {}) or PARAMETER not in spec.space:
        return ()  # no parameter reaches the guard
    return tuple(float(value) for value in spec.space[PARAMETER].values if isinstance(value, int | float))


def check_power(spec: StudySpec, devices: Sequence[Device], connect: Callable[[], Nvml] = Nvml) -> None:
    """Raise StudyError if a card does not take a study's power limits.

    As a test, each card of this machine is set to the limit that it has already: the driver refuses that, too, to
    somebody who may not change limits.
    """
    if not (limits := limits_w(spec)):
        return
    if any(device.maker != NVIDIA or device.uuid is None for device in devices):
        raise _refusal(devices[0], "only NVIDIA's cards have limits that are set here")
    nvml = connect()
    uuids_here = nvml.uuids()
    for device in devices:
        if device.uuid not in uuids_here:
            continue  # a card of another node, which the guard there checks
        card, library = nvml.handle(device.uuid or ""), nvml.library
        bounds_mw = nvml.ask(device.name, library.nvmlDeviceGetPowerManagementLimitConstraints, card)
        now_mw = nvml.ask(device.name, library.nvmlDeviceGetPowerManagementLimit, card)
        if bounds_mw is None or now_mw is None:
            raise _refusal(device, "the card does not tell its limits")
        least_w, most_w = (bound / 1000 for bound in bounds_mw)
        if beyond := [limit for limit in limits if not least_w <= limit <= most_w]:
            raise _refusal(device, f"it takes {least_w:g} to {most_w:g} W, not {', '.join(f'{w:g}' for w in beyond)}")
        try:
            library.nvmlDeviceSetPowerManagementLimit(card, now_mw)
        except library.NVMLError as error:
            raise _refusal(device, f"NVML: {error}") from error


def _refusal(device: Device, why: str) -> StudyError:
    """Return the error for a card whose power limit cannot be set."""
    return StudyError(
        f"the power limit of {device.label} ({device.model}) cannot be set: {why}; "
        f"take `{PARAMETER}` out of the study, or start tuner where limits may be set (as root)"
    )


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
