"""The results of `tuner scale`: a versioned JSON file, and the scaling table: speed-up, efficiency, and lost time.

`tuner compare` reads the file on any machine. A subject is what was measured: a workload, or a case of a study. A point
is one measurement of it on some GPUs, each of which has a rank, a process of the training. With weak scaling, each GPU
has as large a batch as one GPU alone. With strong scaling, all GPUs together have the batch of one GPU alone, which is
the baseline.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from tuner.devices.found import Link as PairLink
from tuner.errors import TunerError
from tuner.export import write_files
from tuner.probe import DeviceSummary, FailureKind, Quantity, joint_error
from tuner.study import open_regular

FORMAT = "tuner_scale"
VERSION = 2
"""The version of the file's form. A reader refuses every other version."""
COUNTS = (1, 2, 4, 8)
"""The numbers of GPUs that are measured, as far as the machine has them."""
LINKS = "allreduce"
"""The name of the workload that measures the links."""

Mode = Literal["single", "beside", "joined"]
"""How the ranks of a measurement work.

- `single`: one rank, alone on the machine
- `beside`: one of several programs with a rank each, all at the same time
- `joined`: ranks of one program that exchange gradients or other results, as in training
"""
Route = Literal["nvlink", "p2p", "host", "gloo", "nccl"]
"""How data goes from rank to rank: over NVLink, from card to card over PCIe, through the host's memory, on CPUs,
or over nodes as NCCL chooses."""
Amount = Annotated[float, Field(gt=1e-12, lt=1e18)]
"""A rate, a time or a number of samples; a file with another number is damaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One measurement: a program that trains, or sums up buffers, on some devices."""

    workload: str
    size: int | None
    """The workload's size; None where the trainer has none."""
    mode: Mode
    gpus: Annotated[tuple[int, ...], Field(min_length=1)]
    """The positions of the devices in the list of the machine's devices."""
    route: Route | None = None
    """How the ranks exchange data; None for a single rank."""
    beside: Annotated[int, Field(ge=1)] = 1
    """How many programs run at the same time, this program included."""
    samples_per_s: Amount | None = None
    """The samples per second of all ranks of the program together."""
    samples_per_s_se: Annotated[float, Field(ge=0.0, lt=1e18)] | None = None
    samples_per_step: Amount | None = None
    """The samples of all ranks in a step, which is an iteration of a trainer."""
    window_s: Amount | None = None
    devices: tuple[DeviceSummary, ...] = ()
    """Utilisation, activity of multiprocessors, memory and power of each device."""
    failure: FailureKind | None = None
    """Why there is no number."""
    detail: str = ""
    """The line that shows the failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What was measured: a workload, or a case of a study."""

    name: str
    text: str
    unit: str
    """What a size counts."""


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """All that one call of `tuner scale` has measured on one machine."""

    written_at: str
    """UTC, ISO 8601."""
    tuner: str
    """The version of the tuner."""
    machine: Mapping[str, str]
    """Facts about the kind of machine; none of them identifies this machine."""
    devices: Annotated[tuple[str, ...], Field(min_length=1)]
    """The model of each device."""
    on_gpu: bool
    links: tuple[PairLink, ...] = ()
    """How each pair of cards is connected, as the driver says."""
    subjects: tuple[Subject, ...] = ()
    points: tuple[Measurement, ...] = ()


_ADAPTER = TypeAdapter(Results)
MOST_BYTES = 64 * 2**20
"""No results are larger: each run takes less than a kilobyte."""


def write(results: Results, path: Path) -> None:
    """Write the results. A reader finds the whole old file or the whole new file. Raises OutputError."""
    body = {FORMAT: VERSION, **_ADAPTER.dump_python(results, mode="json")}
    write_files(path.parent.resolve(), {path.name: f"{json.dumps(body, indent=1)}\n".encode()})


def read(path: Path) -> Results:
    """Return the results of a file. Raises TunerError where it is damaged, too large, or of another version.

    The file may come from another machine, so nothing in it is trusted.
    """
    remedy = "`tuner scale --out FILE` writes such files"
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES // 2**20} MiB")
        body: Any = json.loads(content)
        json.dumps(body, ensure_ascii=False).encode()  # called for its UnicodeError: half a surrogate pair is no text
    except OSError as error:
        raise TunerError(f"{path} cannot be read: {error.strerror}; {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise TunerError(f"{path} is no JSON file: {error}; {remedy}") from error
    version = body.get(FORMAT) if isinstance(body, dict) else None
    if version != VERSION:
        problem = f"its {FORMAT!r} is {version}, and this tuner reads {VERSION}; measure again"
        raise TunerError(f"{path} is no result of `tuner scale`: {problem}")
    try:
        return _ADAPTER.validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise TunerError(f"{path} is damaged at {place or 'its top'}: {first['msg']}; measure again") from error


Scaling = Literal["single", "weak", "strong"]
"""`weak`: the batch per GPU stays the same. `strong`: the whole batch stays the same. `single`: the baseline."""


class Loss(StrEnum):
    """The losses of a step by name, in the order in which they add up to its time beyond the ideal."""

    SERIAL = "serial"
    """The part of a step that does not get shorter with a smaller batch."""
    CONTENTION = "contention"
    """By how much a GPU is slower on average while all GPUs work, each in a program of its own."""
    IMBALANCE = "imbalance"
    """By how much the slowest of these GPUs is slower than their mean."""
    WAITING = "communication and synchronisation"
    """The time beyond that of the slowest GPU, once the GPUs exchange results."""


def losses(
    *, joined: Quantity, ideal: Quantity, same_batch: Quantity, beside: Sequence[Quantity] = ()
) -> dict[str, Quantity]:
    """Return where the time of a step is lost: loss → its time. All add up to the time of the step less the ideal.

    A loss may be negative within its error. Neighbouring losses share a measurement, so their errors are correlated.

    Args:
        joined: The time of a step of all ranks together, which exchange results.
        ideal: The time that n GPUs would need for it without any loss.
        same_batch: The time of one GPU, alone on the machine, for the work that each rank has. It is `ideal` with
            weak scaling, and where it was not measured.
        beside: The time of each GPU for that work, all at once in programs of their own; empty where not measured.
    """
    parts = {Loss.SERIAL: same_batch.minus(ideal)} if same_batch != ideal else {}
    slowest = same_batch  # the time of the slowest rank without the exchange; without `beside`, all count as equal
    if beside:
        error_of_sum = joint_error(*(step.error for step in beside))
        mean = Quantity(sum(step.value for step in beside), error_of_sum).times(1 / len(beside))
        slowest = max(beside, key=lambda step: step.value)
        parts |= {Loss.CONTENTION: mean.minus(same_batch), Loss.IMBALANCE: slowest.minus(mean)}
    return {**parts, Loss.WAITING: joined.minus(slowest)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingRow:
    """One workload on some GPUs, compared with one GPU."""

    workload: str
    unit: str
    size: int | None
    """The workload's size: per GPU for weak scaling, of all GPUs together for strong scaling."""
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

    @property
    def efficiency_pct(self) -> Quantity:
        """The speed-up as a percentage of the number of GPUs."""
        return self.speed_up.times(100 / self.gpus)


class LinkRow(NamedTuple):
    """The time of an all-reduce, in which all GPUs sum up a buffer of each: it shows how fast their links are."""

    gpus: int
    route: Route
    size_bytes: int
    time_us: Quantity
    bus_gb_per_s: float
    """Gigabytes (10^9 bytes) per second and GPU: bytes x 2 (n - 1) / n / time, as NVIDIA's nccl-tests count it.

    Ring all-reduces send and receive this much over each GPU's link, so it compares with the link's own speed.
    """


def _measured(results: Results, subject: str) -> list[Measurement]:
    """Return the points of a subject whose samples per second and samples per step are known."""
    points = (point for point in results.points if point.workload == subject)
    return [point for point in points if point.samples_per_s and point.samples_per_step]


def table(results: Results) -> list[ScalingRow]:
    """Return a row for each comparison of a measurement with one GPU, workload by workload.

    A workload's baselines come first, then its rows of weak scaling, and then those of strong scaling. Each number of
    GPUs has a row for each route, which is how data goes between the ranks: see `Route`.
    """
    rows: list[ScalingRow] = []
    for subject in results.subjects:
        points = _measured(results, subject.name)
        # a single rank on the first GPU is the baseline of its size
        singles = {point.size: point for point in points if point.mode == "single" and point.gpus == (0,)}
        rows += [_row(subject, point, point, "single", {}) for point in singles.values()]
        of_several: list[ScalingRow] = []  # the rows of several GPUs
        joined = [point for point in points if point.mode == "joined"]
        for point in joined:
            ranks = len(point.gpus)
            programs = [program for program in points if program.mode == "beside" and program.beside == ranks]
            beside = [_step_ms(program) for program in programs if program.size == point.size]
            for scaling, baseline in _baselines(singles, point).items():
                losses_ms = _losses(point, baseline, singles.get(point.size), beside)
                of_several.append(_row(subject, point, baseline, scaling, losses_ms))
        rows += sorted(of_several, key=lambda row: row.scaling == "strong")  # weak scaling first
    return rows


def _baselines(singles: Mapping[int | None, Measurement], point: Measurement) -> dict[Scaling, Measurement]:
    """Return what a point of several GPUs is compared with, as far as it was measured: kind of scaling → one GPU.

    For weak scaling it is one GPU with the batch of one rank, for strong scaling one GPU with the batch of all ranks.
    `singles`: size → the measurement of one GPU. A size is the batch of one rank; None where the trainer has none.
    """
    baselines: dict[Scaling, Measurement | None] = {"weak": singles.get(point.size)}
    if point.size is not None:
        baselines["strong"] = singles.get(point.size * len(point.gpus))
    return {scaling: baseline for scaling, baseline in baselines.items() if baseline}


def _row(
    subject: Subject, point: Measurement, baseline: Measurement, scaling: Scaling, losses: Mapping[str, Quantity]
) -> ScalingRow:
    """Return the row of a point, compared with its baseline."""
    return ScalingRow(
        workload=point.workload,
        unit=subject.unit,
        size=baseline.size,
        gpus=len(point.gpus),
        route=point.route,
        scaling=scaling,
        samples_per_s=rate(point),
        step_ms=_step_ms(point),
        speed_up=Quantity(1.0) if scaling == "single" else rate(point).divided_by(rate(baseline)),
        losses=losses,
        devices=point.devices,
    )


def _losses(
    point: Measurement, baseline: Measurement, alone: Measurement | None, beside: Sequence[Quantity]
) -> dict[str, Quantity]:
    """Return where the time of a step of several GPUs is lost, compared with the baseline: loss → ms.

    Args:
        point: The measurement of several GPUs.
        baseline: One GPU with the batch of one rank, or of all ranks.
        alone: One GPU with the batch of one rank; None where it was not measured.
        beside: The time of a step of each GPU while each runs a program of its own. Against `alone`, it shows what the
            GPUs take from each other.

    The serial loss is the part of a step that does not shrink with the batch. Weak scaling keeps the batch of a GPU.
    """
    is_weak = baseline.size == point.size
    ideal = _step_ms(baseline).times(1.0 if is_weak else 1 / len(point.gpus))
    same_batch = _step_ms(alone) if alone and not is_weak else ideal
    return losses(joined=_step_ms(point), ideal=ideal, same_batch=same_batch, beside=beside)


class Ceiling(NamedTuple):
    """The most that several GPUs can gain by strong scaling."""

    single: ScalingRow
    """The baseline: one GPU with the whole batch."""
    gpus: int
    speed_up: Quantity
    """The upper bound of the speed-up."""


def ceilings(rows: Sequence[ScalingRow]) -> Iterator[Ceiling]:
    """Yield what numbers of GPUs that were not measured could gain at most by strong scaling.

    n GPUs need at least the time in which one GPU does the n-th part of the batch. Everything else only adds to it. So
    measurements on one GPU alone show what n GPUs can gain at most.
    """
    singles = {(row.workload, row.size): row for row in rows if row.scaling == "single"}
    measured = {(row.workload, row.size, row.gpus) for row in rows if row.scaling == "strong"}
    for (workload, size), single in singles.items():
        for count in COUNTS[1:]:  # without 1
            if not size or size % count or (workload, size, count) in measured:
                continue
            if part := singles.get((workload, size // count)):
                yield Ceiling(single, count, single.step_ms.divided_by(part.step_ms))


def link_table(results: Results) -> list[LinkRow]:
    """Return how fast the links are: a row for each all-reduce that was measured."""
    rows: list[LinkRow] = []
    for point in _measured(results, LINKS):
        if point.size and point.route:
            time_ms, ranks = _step_ms(point), len(point.gpus)
            gb_per_s = point.size * 2 * (ranks - 1) / ranks / time_ms.value / 1e6  # as `LinkRow` defines it
            rows.append(LinkRow(ranks, point.route, point.size, time_ms.times(1000.0), gb_per_s))
    return rows


def rate(point: Measurement) -> Quantity:
    """Return the samples per second of a point, with their standard error; 0 where it has none."""
    return Quantity(point.samples_per_s or 0.0, point.samples_per_s_se)


def _step_ms(point: Measurement) -> Quantity:
    """Return the milliseconds of a step; their relative standard error is that of the samples per second."""
    return Quantity(1000.0 * (point.samples_per_step or 0.0), error=0.0).divided_by(rate(point))
