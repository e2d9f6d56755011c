"""The part of a probe that counts, and what the devices did in it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample, DeviceSummary, Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The moment at which every rank had finished an iteration."""

    iteration: int
    t_s: float
    samples: int | None = None
    """Of all ranks together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Whole iterations between two marks."""

    first: Mark
    last: Mark

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.last.t_s - self.first.t_s

    @property
    def iterations(self) -> int:
        """How many whole iterations it holds."""
        return self.last.iteration - self.first.iteration

    @property
    def samples_per_s(self) -> float | None:
        """Samples of all ranks per second; None where the trainer does not count samples."""
        if self.first.samples is None or self.last.samples is None:
            return None
        return (self.last.samples - self.first.samples) / self.seconds


def marks(progress: Iterable[Progress], ranks: int) -> list[Mark]:
    """Give the iterations that are complete everywhere.

    Where ranks report for themselves, an iteration counts once all `ranks` have closed it, at the time of the last.
    """
    whole: list[Mark] = []
    waiting: dict[int, dict[int, Progress]] = {}
    for report in progress:
        if report.rank is None:
            whole.append(Mark(iteration=report.iteration, t_s=report.t_s, samples=report.samples))
            continue
        closed = waiting.setdefault(report.iteration, {})
        closed[report.rank] = report
        if len(closed) == ranks:
            counts = [one.samples for one in closed.values() if one.samples is not None]
            whole.append(
                Mark(
                    iteration=report.iteration,
                    t_s=max(one.t_s for one in closed.values()),
                    samples=sum(counts) if len(counts) == ranks else None,
                )
            )
            del waiting[report.iteration]
    return whole


def find_window(marks: Sequence[Mark], *, warmup_iterations: int, ran_out: bool) -> Window | None:
    """Cut the window out of the marks: after warm-up, up to the last mark.

    When the trainer ended by itself (`ran_out`), its last iteration holds its wind-down (MimicKit: a test rollout) and
    is left out. None when nothing is left.
    """
    inside = marks[warmup_iterations - 1 : len(marks) - 1 if ran_out else None]
    if len(inside) < 2 or inside[-1].t_s <= inside[0].t_s:
        return None
    return Window(first=inside[0], last=inside[-1])


def summarise(
    samples: Sequence[DeviceSample], window: Window, devices: Sequence[Device], source: str
) -> tuple[DeviceSummary, ...]:
    """Summarise each device over the window; memory peak and power maximum are over the whole probe."""
    return tuple(
        _summary([one for one in samples if one.device == position], window, device.name, source)
        for position, device in enumerate(devices)
    )


def _summary(samples: Sequence[DeviceSample], window: Window, name: str, source: str) -> DeviceSummary:
    inside = [one for one in samples if window.first.t_s < one.t_s <= window.last.t_s]
    power_w = _mean(one.power_w for one in inside)
    return DeviceSummary(
        device=name,
        source=source,
        window_s=window.seconds,
        util_mean_pct=_mean(one.util_pct for one in inside),
        util_max_pct=_most(one.util_pct for one in inside),
        sm_mean_pct=_mean(one.sm_pct for one in inside),
        occupancy_mean_pct=_mean(one.occupancy_pct for one in inside),
        tensor_mean_pct=_mean(one.tensor_pct for one in inside),
        dram_mean_pct=_mean(one.dram_pct for one in inside),
        mem_peak_mib=_most(one.mem_used_mib for one in samples),
        mem_total_mib=_most(one.mem_total_mib for one in samples),
        power_mean_w=power_w,
        power_max_w=_most(one.power_w for one in samples),
        energy_j=None if power_w is None else power_w * window.seconds,
    )


def busy_shares(progress: Iterable[Progress], window: Window, ranks: int) -> list[float] | None:
    """Give each rank's own busy share over the window in percent, or None unless every rank reports one."""
    ends: dict[tuple[int, int], Progress] = {
        (one.rank, one.iteration): one for one in progress if one.rank is not None and one.busy_s is not None
    }
    shares = []
    for rank in range(ranks):
        first, last = ends.get((rank, window.first.iteration)), ends.get((rank, window.last.iteration))
        if first is None or last is None or first.busy_s is None or last.busy_s is None or last.t_s <= first.t_s:
            return None
        shares.append(min(100.0, 100.0 * (last.busy_s - first.busy_s) / (last.t_s - first.t_s)))
    return shares


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return fmean(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)
