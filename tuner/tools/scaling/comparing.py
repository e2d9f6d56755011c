"""Results of one machine in words, and of several side by side; whether a training is worth a move to several cards.

The speed-up of several devices is their samples per second in multiples of those of one; the efficiency is the speed-up
as a share of the number of devices. With weak scaling, each device has the batch of one device alone. With strong
scaling, all devices together have it. A training that moves goes on until the job on several cards starts, which goes
on from its last checkpoint.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tuner.devices.found import Link
from tuner.probe import BUSY_PCT, HOUR_S, Quantity
from tuner.study import grouped
from tuner.tools.scaling.results import Measurement, Mode, Results, Route, ScalingRow, Subject, ceilings, table

ROUTES: dict[Route, str] = {
    "nvlink": "NVLink",
    "p2p": "PCIe, card to card",
    "host": "the host's memory",
    "gloo": "gloo",
    "nccl": "a route of NCCL's choice",
}
"""The words for each route."""
MODES: dict[Mode, str] = {
    "single": "one device works, alone on the machine",
    "beside": "each device has a program of its own, and all work at the same time",
    "joined": "the devices exchange gradients or other results, as in training",
}
"""The words for each way to work."""
CPU_NOTE = "These are CPU figures: ranks of one processor that exchange data with gloo. They say nothing about GPUs."
CERTAIN = 2.0
"""A loss or a lead counts from this many standard errors on."""


def number(quantity: Quantity) -> str:
    """Return a number with its standard error as text, such as `12.34 ± 0.15`, `12.3 ± 0.4` or `1,230 ± 40`.

    The error decides the decimals, twelve at most: it has two digits where its first digit is 1, and otherwise one.
    """
    value, error = quantity.value, quantity.error
    if not error:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    decimals = min(math.ceil(-math.log10(error / 2.0)), 12)  # negative for an error of tens, which `round` takes
    places = max(decimals, 0)
    return f"{round(value, decimals):,.{places}f} ± {round(error, decimals):,.{places}f}"


def short(quantity: Quantity) -> str:
    """Return a number with its standard error as text, if large in thousands (k), millions (M) or billions (G)."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(quantity.value) >= unit:
            return f"{number(quantity.times(1 / unit))} {letter}"
    return number(quantity)


def workload_of(row: ScalingRow | Measurement) -> str:
    """Return the name of the workload that a row is about, with its size if it has one, such as `ppo 4,096`."""
    return row.workload if row.size is None else f"{row.workload} {row.size:,}"


def scaling_sentences(results: Results, rows: Sequence[ScalingRow]) -> Iterator[str]:
    """Yield notes about the devices, the losses of each row, what more devices could gain at most, and what failed."""
    if not results.on_gpu:
        yield CPU_NOTE
    # of programs that are measured beside each other, each would count as another program for the rest
    yield from busy_with_others(point for point in results.points if point.mode != "beside")
    for row in rows:
        if row.scaling != "single":
            yield _losses(row, "cards" if results.on_gpu else "ranks")
    yield from ceiling_sentences(rows)
    for point in results.points:
        if point.failure:
            cards = ",".join(map(str, point.gpus))
            yield f"not measured: {workload_of(point)} {point.mode} on {cards}: {point.failure}: {point.detail}"


def ceiling_sentences(rows: Sequence[ScalingRow]) -> Iterator[str]:
    """Yield the most that several devices could gain, for numbers of devices that were not measured themselves."""
    for ceiling in ceilings(rows):
        yield (
            f"{workload_of(ceiling.single)} (strong): {ceiling.gpus} devices can make at most "
            f"{number(ceiling.speed_up)} times the samples of one. One device with 1/{ceiling.gpus} of the batch is no "
            "faster"
        )


def busy_with_others(rows: Iterable[Measurement | ScalingRow]) -> Iterator[str]:
    """Yield a warning where other programs used the processors during a measurement: its speed may be too low."""
    others_pct = max((device.others_mean_pct or 0.0 for row in rows for device in row.devices), default=0.0)
    if others_pct >= BUSY_PCT:
        yield (
            f"Other processes used up to {others_pct:.0f} % of the processors meanwhile. "
            "Measure again on a quiet machine before you decide."
        )


def _losses(row: ScalingRow, devices: str) -> str:
    """Return a sentence: the speed-up of a row, and its losses in ms of a step, the largest first.

    A loss is named if it is at least `CERTAIN` standard errors above 0, and at least 1 % of the step (chosen).
    """
    step_ms = row.step_ms.value
    losses = sorted(row.losses.items(), key=lambda item: item[1].value, reverse=True)
    parts = [
        f"{name} {number(loss_ms)} ms"
        for name, loss_ms in losses
        if loss_ms.value >= CERTAIN * (loss_ms.error or 0.0) and loss_ms.value >= 0.01 * step_ms
    ]
    lost = f"Of {step_ms:.4g} ms per step are lost: {', '.join(parts)}" if parts else "No loss is clearly above 0"
    return (
        f"{workload_of(row)} ({row.scaling}): {row.gpus} {devices}{over_route(row.route)} make "
        f"{number(row.speed_up)} times the samples of one. {lost}"
    )


def over_route(route: Route | None) -> str:
    """Return how devices are connected, to be put behind their names: ` over NVLink`; empty for one device."""
    return f" over {ROUTES[route]}" if route else ""


def topology(links: Sequence[Link]) -> Iterator[str]:
    """Yield how the pairs of cards are connected, one line for each kind of connection."""

    def kind_of(link: Link) -> str:
        """Return how two cards are connected, in words."""
        if link.nvlink:
            return "NVLink"
        return "no direct access" if link.p2p is False else "PCIe"

    for kind, of_kind in grouped(links, kind_of).items():
        yield f"{kind} between the cards {', '.join(f'{link.first}-{link.second}' for link in of_kind)}"


def about(subject: Subject) -> str:
    """Return a line about what is measured: its name, what it does, and the unit of its sizes."""
    return f"{subject.name}: {subject.text}" + (f"; sizes are {subject.unit}" if subject.unit else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineRow:
    """A row of the scaling table of one machine."""

    machine: str
    """The name of the file with its results."""
    model: str
    """The model of its devices."""
    on_gpu: bool
    row: ScalingRow


def all_rows(machines: Mapping[str, Results]) -> list[MachineRow]:
    """Return the rows of all machines. `machines`: the name of a machine's file of results → the results."""
    return [
        MachineRow(machine=machine, model=results.devices[0], on_gpu=results.on_gpu, row=row)
        for machine, results in machines.items()
        for row in table(results)
    ]


def recommendation(lines: Sequence[MachineRow]) -> Iterator[str]:
    """Yield what to choose: which machine suits a workload, and for each machine whether more GPUs are worth it.

    How far that holds comes last. Machines on which several GPUs were measured come before those with one.
    """
    yield from _fastest_machines(lines)
    with_several = {line.machine for line in lines if line.row.scaling != "single"}
    machines = dict.fromkeys(line.machine for line in lines)
    for machine in sorted(machines, key=lambda name: name not in with_several):  # False comes before True
        of_machine = [line for line in lines if line.machine == machine]
        if machine in with_several:
            for line in _most_telling([line for line in of_machine if line.row.scaling != "single"]):
                yield f"{machine}: {_whether_worth_it(line)}"
        else:
            yield f"{machine}: measured on one {of_machine[0].model} alone, so a second one is not known to be worth it"
            yield from (f"{machine}: {ceiling}" for ceiling in ceiling_sentences([line.row for line in of_machine]))
        yield from (f"{machine}: {text}" for text in busy_with_others(line.row for line in of_machine))
    if any(not line.on_gpu for line in lines):
        yield f"{CPU_NOTE} The workloads are smaller there, so that only speed-ups can be compared with GPUs."


def _whether_worth_it(line: MachineRow) -> str:
    """Return a sentence: the speed-up of a row, and whether its devices are worth their price.

    They are from 90 % efficiency on, and from 70 % on where time counts more than money (chosen). With a standard
    error of the efficiency above 10 percentage points, nothing is advised.
    """
    row, efficiency = line.row, line.row.efficiency_pct.value
    if (row.efficiency_pct.error or 0.0) > 10.0:
        answer = "the error is too large to say whether they are worth it"
    elif row.speed_up.value <= 1:
        answer = "not worth it"
    elif efficiency >= 90.0:
        answer = "worth it"
    elif efficiency >= 70.0:
        answer = "worth it where time counts more than money"
    else:
        answer = "hardly worth it"
    return (
        f"{workload_of(row)} ({row.scaling}) on {row.gpus} x {line.model}{over_route(row.route)}: "
        f"{number(row.speed_up)} times the samples of one device, {efficiency:.0f} % per device; {answer}"
    )


def _fastest_machines(lines: Sequence[MachineRow]) -> Iterator[str]:
    """Yield a sentence for each workload that several machines have measured: which machine is the fastest.

    Only the same workload, of the same size per GPU, on the same kind of device is compared.
    """
    per_gpu = [line for line in lines if line.row.scaling != "strong"]  # whose size is that of all GPUs together
    for group in grouped(per_gpu, lambda line: (line.row.workload, line.row.size, line.on_gpu)).values():
        if len({line.machine for line in group}) < 2:
            continue
        fastest = max(group, key=lambda line: line.row.samples_per_s.value)
        speed = number(fastest.row.samples_per_s)
        subject, rivals = workload_of(fastest.row), _rivals_remark(fastest, group)
        yield f"{subject}: {_machine_and_devices(fastest)} is the fastest, with {speed} samples/s{rivals}"


def _rivals_remark(fastest: MachineRow, group: Sequence[MachineRow]) -> str:
    """Return a remark that names the other machines that may be as fast as the fastest; empty where there is none.

    A machine may be as fast if it is less than `CERTAIN` standard errors of the difference behind.
    """
    as_fast: dict[str, None] = {}  # a set that keeps the order
    for line in group:
        behind = fastest.row.samples_per_s.minus(line.row.samples_per_s)
        if line.machine != fastest.machine and behind.value < CERTAIN * (behind.error or 0.0):
            as_fast[_machine_and_devices(line)] = None
    return f" ({', '.join(as_fast)} may be as fast)" if as_fast else ""


def _machine_and_devices(line: MachineRow) -> str:
    """Return a machine and its devices in words, such as `a.json with 4 x NVIDIA H200 over NVLink`."""
    return f"{line.machine} with {line.row.gpus} x {line.model}{over_route(line.row.route)}"


def _most_telling(lines: Sequence[MachineRow]) -> list[MachineRow]:
    """Return for each workload, route and kind of scaling the row of the largest size, on the most GPUs."""
    groups = grouped(lines, lambda line: (line.row.workload, line.row.route, line.row.scaling)).values()
    return [max(reversed(group), key=lambda line: (line.row.size or 0, line.row.gpus)) for group in groups]


def printed_step_s(lines: Iterable[str]) -> float | None:
    """Return the seconds per step by a training's progress bar, such as `2.5it/s`; None without such a bar.

    It is the median over the later half of the output's `lines`: the first steps are often slow.
    """
    form = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>it/s|s/it)\b")  # of tqdm, Lightning and transformers
    steps_s: list[float] = []
    for rate in (rate for line in lines for rate in form.finditer(line)):
        if number := float(rate["number"]):
            steps_s.append(number if rate["unit"] == "s/it" else 1 / number)
    return median(steps_s[len(steps_s) // 2 :]) if steps_s else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A training on one card, and the job on several cards that may go on with it."""

    steps_done: int
    steps_left: int
    step_s: float
    """The seconds that a step takes on one card."""
    cards: int
    speed_up: float
    """The samples per second on all cards, in multiples of those of one card."""
    queue_h: float
    """Hours until the job starts; the training goes on until then."""
    start_up_s: float = 0.0
    """Seconds from the start of the job until it trains."""
    checkpoint_steps: int = 1
    """The number of steps between two checkpoints."""

    @property
    def stay_h(self) -> float:
        """The hours left on one card."""
        return self.steps_left * self.step_s / HOUR_S

    @property
    def in_time(self) -> bool:
        """Whether the job starts before the training ends on one card."""
        return self.queue_h < self.stay_h

    @property
    def from_step(self) -> int:
        """The step of the last checkpoint before the job starts, 0 without one; the job goes on there."""
        reached = self.steps_done + math.floor(self.queue_h * HOUR_S / self.step_s)
        return reached // self.checkpoint_steps * self.checkpoint_steps

    @property
    def move_h(self) -> float:
        """The hours left with the move, the queue included."""
        return self.queue_h + self.job_h

    @property
    def job_h(self) -> float:
        """The hours that the job takes."""
        steps = self.steps_done + self.steps_left - self.from_step
        return (self.start_up_s + steps * self.step_s / self.speed_up) / HOUR_S

    @property
    def saved_h(self) -> float:
        """The hours that the move saves; negative where it costs hours, and 0 where the job starts too late."""
        return self.stay_h - self.move_h if self.in_time else 0.0

    @property
    def latest_h(self) -> float:
        """The longest queue, in hours, after which the move still saves time; 0 where none does.

        The move costs the start-up and, on average, half of the steps between two checkpoints again. Each hour that one
        card would train after the queue takes `1 / speed_up` hours on all cards, so the move saves the difference.
        """
        if self.speed_up <= 1.0:
            return 0.0
        repeated_s = self.checkpoint_steps / 2 * self.step_s / self.speed_up
        cost_h = (self.start_up_s + repeated_s) / HOUR_S
        least_left_h = cost_h / (1.0 - 1.0 / self.speed_up)  # with as much training left, nothing is saved
        return max(0.0, self.stay_h - least_left_h)


def advice(move: Move) -> Iterator[str]:
    """Yield how long the training takes with and without the move, and until when the move saves time."""
    yield f"one card: {move.steps_left:,} steps left, {_hours(move.stay_h)}"
    if not move.in_time:
        yield f"stay: the training ends before a job starts in {_hours(move.queue_h)}"
        return
    yield (
        f"{move.cards} cards, {move.speed_up:.3g} times as fast: the job starts in {_hours(move.queue_h)}, goes on "
        f"from step {move.from_step:,} and takes {_hours(move.job_h)}; {_hours(move.move_h)} in all"
    )
    # in card-hours: one card until the job starts, then all of them, instead of one card to the end
    added_h = move.queue_h + move.cards * move.job_h - move.stay_h
    cost = f"for {abs(added_h):.1f} {'more' if added_h >= 0 else 'fewer'} card-hours"
    if move.saved_h > 0:
        yield f"move: it saves {_hours(move.saved_h)} {cost}; submit the job now, and keep training until it starts"
    else:
        yield f"stay: the move costs {_hours(abs(move.saved_h))}"
    if move.latest_h:
        yield f"a move saves time if the job starts within {_hours(move.latest_h)}"


def _hours(hours: float) -> str:
    """Return a number of hours in words: in minutes below one."""
    return f"{hours:.1f} h" if hours >= 1.0 else f"{60 * hours:.0f} min"
