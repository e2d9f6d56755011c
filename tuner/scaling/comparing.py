"""Results of several machines side by side: speed-up, cost, and what to choose. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.scaling.laws import Measure, difference
from tuner.scaling.prices import Prices
from tuner.scaling.results import Results
from tuner.scaling.rows import Row, table
from tuner.scaling.words import CERTAIN, CPU_NOTE, ROUTES, busy_with_others, ceiling_sentences, number, sized
from tuner.units import HOUR_S

WORTH_PCT, DEAR_PCT = 90.0, 70.0
"""From this efficiency on, more GPUs are worth it; and from this one on, where time counts more than money."""
VAGUE_PCT = 10.0
"""With a larger standard error of the efficiency, no advice is given."""
MILLION = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The results of one machine, under the name of their file."""

    name: str
    results: Results


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One row of one machine, and what it costs."""

    machine: str
    model: str
    on_gpu: bool
    row: Row
    per_hour: float | None
    """The price of all devices of the row for one hour; None without prices."""

    @property
    def per_price(self) -> Measure | None:
        """The samples for one unit of the currency; None without prices."""
        if self.per_hour is None:
            return None
        speed, factor = self.row.samples_per_s, HOUR_S / self.per_hour
        return Measure(speed.value * factor, None if speed.error is None else speed.error * factor)

    @property
    def per_million(self) -> float | None:
        """The price of a million samples; None without prices."""
        return None if self.per_price is None else MILLION / self.per_price.value


def lines(machines: Iterable[Machine], prices: Prices | None) -> list[Line]:
    """Return all rows of all machines, with their prices where `prices` are given."""
    return [
        Line(
            machine=one.name,
            model=one.results.devices[0],
            on_gpu=one.results.on_gpu,
            row=row,
            per_hour=_price(one, row, prices),
        )
        for one in machines
        for row in table(one.results)
    ]


def recommendation(lines: Sequence[Line], currency: str) -> Iterator[str]:
    """Yield what to choose: for each machine whether more GPUs are worth it, then which machine suits a workload."""
    if any(not line.on_gpu for line in lines):
        yield f"{CPU_NOTE} The workloads are smaller there, so that only speed-ups can be compared with GPUs."
    for machine in dict.fromkeys(line.machine for line in lines):
        own = [line for line in lines if line.machine == machine]
        yield from (f"{machine}: {text}" for text in busy_with_others(one for line in own for one in line.row.devices))
        several = [line for line in own if line.row.scaling != "single"]
        if not several:
            yield f"{machine}: measured on one {own[0].model} alone, so a second one is not known to be worth it"
            yield from (f"{machine}: {ceiling}" for ceiling in ceiling_sentences([line.row for line in own]))
        for line in _largest(several):
            yield f"{machine}: {_worth(line)}"
    yield from _across(lines, currency)


def _worth(line: Line) -> str:
    row, efficiency = line.row, line.row.efficiency_pct.value
    if (row.efficiency_pct.error or 0.0) > VAGUE_PCT:
        answer = "the error is too large to say whether they are worth it"
    elif row.speed_up.value <= 1:
        answer = "not worth it"
    elif efficiency >= WORTH_PCT:
        answer = "worth it"
    elif efficiency >= DEAR_PCT:
        answer = "worth it where time counts more than money"
    else:
        answer = "hardly worth it"
    route = f" over {ROUTES[row.route]}" if row.route else ""
    return (
        f"{sized(row)} ({row.scaling}) on {row.gpus} x {line.model}{route}: {number(row.speed_up)} times the samples "
        f"of one device, {efficiency:.0f} % per device; {answer}"
    )


def _across(lines: Sequence[Line], currency: str) -> Iterator[str]:
    """Yield which machine makes most of each workload, and which makes most for the money.

    Only the same workload, of the same size per GPU, on the same kind of device is compared.
    """
    alike: dict[tuple[str, int | None, bool], list[Line]] = {}
    for line in lines:
        if line.row.scaling != "strong" or line.row.splits_model:
            alike.setdefault((line.row.workload, line.row.size, line.on_gpu), []).append(line)
    for group in alike.values():
        if len({line.machine for line in group}) < 2:
            continue
        fastest = max(group, key=lambda line: line.row.samples_per_s.value)
        speed = number(fastest.row.samples_per_s)
        said = (
            f"{sized(fastest.row)}: {_where(fastest)} is the fastest, with {speed} samples/s{_rivals(fastest, group)}"
        )
        priced = [(line, one.value) for line in group if (one := line.per_price)]
        if priced:
            cheapest, samples = max(priced, key=lambda one: one[1])
            said += f"; {_where(cheapest)} makes the most for the money, {samples:,.0f} samples per {currency}"
        yield said


def _rivals(fastest: Line, group: Sequence[Line]) -> str:
    """Return the other machines whose best line may be as fast, as far as the errors say."""
    alike: dict[str, None] = {}
    for line in group:
        behind = difference(fastest.row.samples_per_s, line.row.samples_per_s)
        if line.machine != fastest.machine and behind.value < CERTAIN * (behind.error or 0.0):
            alike[_where(line)] = None
    return f" ({', '.join(alike)} may be as fast)" if alike else ""


def _where(line: Line) -> str:
    route = f" over {ROUTES[line.row.route]}" if line.row.route else ""
    return f"{line.machine} with {line.row.gpus} x {line.model}{route}"


def _largest(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of the largest size and the largest number of GPUs, for each workload, route and scaling."""
    best: dict[tuple[object, ...], Line] = {}
    for line in lines:
        row = line.row
        key = (row.workload, row.route, row.scaling)
        rank = (row.size or 0, row.gpus)
        if key not in best or rank >= (best[key].row.size or 0, best[key].row.gpus):
            best[key] = line
    return list(best.values())


def _price(machine: Machine, row: Row, prices: Prices | None) -> float | None:
    price = prices.of(machine.name, machine.results.devices[0]) if prices else None
    return None if price is None else price * row.gpus
