"""The scaling table: speed-up, efficiency and losses. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tuner.probe import DeviceSummary
from tuner.study import grouped
from tuner.tools.scaling.laws import Quantity, SerialPart, fill_share, losses, ratio, serial_part
from tuner.tools.scaling.results import COUNTS, Measurement, Mode, Results, Route, Subject

Scaling = Literal["single", "weak", "strong"]
"""`weak`: the batch per GPU stays the same. `strong`: the whole batch stays the same. `single`: the baseline."""
MS_PER_S = 1000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingRow:
    """One workload on some GPUs, compared with one GPU."""

    workload: str
    unit: str
    size: int | None
    """Per GPU for weak scaling, of all GPUs together for strong scaling."""
    gpus: int
    route: Route | None
    scaling: Scaling
    samples_per_s: Quantity
    step_ms: Quantity
    speed_up: Quantity
    """The samples per second, in multiples of those of one GPU."""
    losses: Mapping[str, Quantity] = field(default_factory=dict)
    """The parts of the step's time beyond the ideal, in ms, by name."""
    devices: tuple[DeviceSummary, ...] = ()
    splits_model: bool = False
    """Whether the ranks share one model, so that a size is that of all ranks together."""

    @property
    def efficiency_pct(self) -> Quantity:
        """The speed-up as a percentage of the number of GPUs."""
        return self.speed_up.times(100 / self.gpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The serial part of a workload over one route."""

    workload: str
    size: int | None
    route: Route | None
    scaling: Scaling
    serial: SerialPart


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkRow:
    """The time of an all-reduce."""

    gpus: int
    route: Route
    size_bytes: int
    time_us: Quantity
    bus_gb_per_s: float
    """Gigabytes (10^9 bytes) per second and GPU: bytes x 2 (n - 1) / n / time, as NVIDIA's nccl-tests count it.

    Ring all-reduces send and receive this much over each GPU's link, so it compares with the link's own speed.
    """


class _Index:
    """Finds the measured points of one subject."""

    def __init__(self, results: Results, subject: Subject) -> None:
        self.subject = subject
        points = (point for point in results.points if point.workload == subject.name)
        self.points = [point for point in points if point.samples_per_s and point.samples_per_step]

    def of(self, mode: Mode, size: int | None, gpus: int | None = None) -> list[Measurement]:
        """Return the points of a mode and size; `gpus` is the number of devices at work."""
        return [
            point
            for point in self.points
            if point.mode == mode and point.size == size and gpus in {None, len(point.gpus) * point.beside}
        ]

    def single(self, size: int | None) -> Measurement | None:
        """Return the baseline of a size: one rank on the first device."""
        return next((point for point in self.of("single", size) if point.gpus == (0,)), None)


def table(results: Results) -> list[ScalingRow]:
    """Return all rows, workload by workload: baselines, then weak and strong scaling by number of GPUs and route."""
    rows: list[ScalingRow] = []
    for subject in results.subjects:
        index = _Index(results, subject)
        singles = [point for point in index.points if point.mode == "single" and point.gpus == (0,)]
        rows += [_row(index, point, point, "single") for point in singles]
        rows += _of_several(index)
    return rows


def _of_several(index: _Index) -> list[ScalingRow]:
    rows = [
        _row(index, point, baseline, scaling)
        for point in index.points
        if point.mode == "joined"
        for scaling, baseline in _comparisons(index, point)
        if baseline is not None
    ]
    return sorted(rows, key=lambda row: row.scaling, reverse=True)


def _comparisons(index: _Index, point: Measurement) -> Iterator[tuple[Scaling, Measurement | None]]:
    """Yield the baselines of a point: one GPU with the batch of one rank, and one GPU with the batch of all ranks."""
    if index.subject.splits_model:
        yield "strong", index.single(point.size)
        return
    yield "weak", index.single(point.size)
    if point.size is not None:
        yield "strong", index.single(point.size * len(point.gpus))


def _row(index: _Index, point: Measurement, baseline: Measurement, scaling: Scaling) -> ScalingRow:
    return ScalingRow(
        workload=point.workload,
        unit=index.subject.unit,
        size=baseline.size if scaling == "strong" else point.size,
        gpus=len(point.gpus),
        route=point.route,
        scaling=scaling,
        samples_per_s=rate(point),
        step_ms=_step_ms(point),
        speed_up=Quantity(1.0) if scaling == "single" else ratio(rate(point), rate(baseline)),
        losses={} if scaling == "single" else _losses(index, point, baseline),
        devices=point.devices,
        splits_model=index.subject.splits_model,
    )


def _losses(index: _Index, point: Measurement, baseline: Measurement) -> dict[str, Quantity]:
    ranks = len(point.gpus)
    share = 1 / ranks if index.subject.splits_model else 1.0
    alone, apart = index.single(point.size), index.of("apart", point.size, ranks)
    ideal = _step_ms(baseline).times(1.0 if baseline.size == point.size and share == 1.0 else 1 / ranks)
    parts = index.subject.micro_batches
    return losses(
        joined=_step_ms(point),
        ideal=ideal,
        same_batch=ideal if alone is None or alone == baseline else _step_ms(alone),
        beside=[_step_ms(alone_beside).times(share) for alone_beside in index.of("beside", point.size, ranks)],
        apart=_step_ms(apart[0]) if apart else None,
        fill=fill_share(ranks, parts) if parts else 0.0,
    )


def fits(rows: Iterable[ScalingRow]) -> list[Fit]:
    """Fit the serial part of each workload, size and route, for weak and for strong scaling."""
    rows = list(rows)
    several = [row for row in rows if row.scaling != "single"]
    groups = grouped(several, lambda row: (row.workload, row.size, row.route, row.scaling))
    fitted: list[Fit] = []
    for (workload, size, route, scaling), group in groups.items():
        single = next(row for row in rows if (row.workload, row.size, row.scaling) == (workload, size, "single"))
        rates = [(row.gpus, row.samples_per_s) for row in group]
        serial = serial_part("strong" if scaling == "strong" else "weak", single.samples_per_s, rates)
        fitted.append(Fit(workload=workload, size=size, route=route, scaling=scaling, serial=serial))
    return fitted


def ceilings(rows: Sequence[ScalingRow]) -> list[tuple[ScalingRow, int, Quantity]]:
    """Return the ceilings of strong scaling that were not measured on several GPUs themselves.

    Each is a baseline, a number of GPUs, and the most that they could gain with the same whole batch. n GPUs need at
    least the time in which one GPU does the n-th part of the batch. Everything else only adds to it.
    """
    singles = {(row.workload, row.size): row for row in rows if row.scaling == "single" and not row.splits_model}
    measured = {(row.workload, row.size, row.gpus) for row in rows if row.scaling == "strong"}
    return [
        (single, count, ratio(single.step_ms, part.step_ms))
        for (workload, size), single in singles.items()
        for count in COUNTS
        if count > 1 and size and size % count == 0 and (workload, size, count) not in measured
        if (part := singles.get((workload, size // count))) is not None
    ]


def link_table(results: Results, links: str) -> list[LinkRow]:
    """Return the times of the all-reduces that the subject `links` has measured."""
    return [
        LinkRow(
            gpus=ranks,
            route=point.route,
            size_bytes=point.size,
            time_us=time.times(MS_PER_S),
            bus_gb_per_s=point.size * 2 * (ranks - 1) / ranks / (time.value / MS_PER_S) / 1e9,
        )
        for point in results.points
        if point.workload == links
        and point.samples_per_s
        and point.samples_per_step
        and point.size
        and point.route
        and point.mode == "joined"
        for ranks, time in [(len(point.gpus), _step_ms(point))]
    ]


def rate(point: Measurement) -> Quantity:
    """Return the samples per second of a point that has them."""
    return Quantity(point.samples_per_s or 0.0, point.samples_per_s_se)


def mean_pct(devices: Sequence[DeviceSummary], field: str) -> float | None:
    """Return the mean of a percentage over devices; None where a device lacks it."""
    known = [value for device in devices if (value := getattr(device, field)) is not None]
    return sum(known) / len(known) if devices and len(known) == len(devices) else None


def _step_ms(point: Measurement) -> Quantity:
    speed = rate(point)
    step_ms = MS_PER_S * (point.samples_per_step or 0.0) / speed.value
    return Quantity(step_ms, None if speed.error is None else step_ms * speed.error / speed.value)
