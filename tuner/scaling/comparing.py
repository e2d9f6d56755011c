"""Results of several machines side by side: prices, speed-up, cost, what to choose, and a table of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from tuner.errors import StudyError, TunerError
from tuner.export.tables import Sheet, tsv
from tuner.probe.units import HOUR_S
from tuner.scaling.laws import LOSSES, Quantity, difference
from tuner.scaling.results import Results
from tuner.scaling.scaling_table import ScalingRow, mean_pct, table
from tuner.scaling.sentences import CERTAIN, CPU_NOTE, ROUTES, busy_with_others, ceiling_sentences, number, sized
from tuner.study import Number, Strict, complaints, read_mapping

EXAMPLE = "currency: USD\nper_hour:\n  NVIDIA H200: 3.50\n"
"""What a file of prices looks like."""


class Prices(Strict):
    """The prices of one device for one hour."""

    currency: str = "USD"
    per_hour: dict[str, Annotated[Number, Field(gt=0)]] = Field(min_length=1)
    """The name of a result file without its ending, or the model of a device, and its price."""

    def of(self, machine: str, model: str) -> float | None:
        """Return the price of a device; that of the machine comes before that of the model. None where neither is."""
        return self.per_hour.get(machine, self.per_hour.get(model))


def read_prices(path: Path, needed: Sequence[tuple[str, str]]) -> Prices:
    """Read prices for the machines and models that are `needed`.

    Raises TunerError for a file that cannot be used, and for one that lacks a price.
    """
    try:
        prices = Prices.model_validate(read_mapping(path, what="file of prices", starts="currency:"))
    except StudyError as error:
        raise TunerError(f"{error}\na file of prices looks like this:\n{EXAMPLE}") from error
    except ValidationError as error:
        wrong = "\n  ".join(complaints(error, Prices))
        raise TunerError(f"{path} is no file of prices:\n  {wrong}\nit looks like this:\n{EXAMPLE}") from error
    missing = [(machine, model) for machine, model in needed if prices.of(machine, model) is None]
    if missing:
        models = ", ".join(dict.fromkeys(f"{model!r} (of {machine})" for machine, model in missing))
        raise TunerError(f"{path} has no price of {models}; add a line `{missing[0][1]}: PRICE` below `per_hour:`")
    return prices


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
class PricedRow:
    """One row of one machine, and what it costs."""

    machine: str
    model: str
    on_gpu: bool
    row: ScalingRow
    per_hour: float | None
    """The price of all devices of the row for one hour; None without prices."""

    @property
    def per_price(self) -> Quantity | None:
        """The samples for one unit of the currency; None without prices."""
        return None if self.per_hour is None else self.row.samples_per_s.times(HOUR_S / self.per_hour)

    @property
    def per_million(self) -> float | None:
        """The price of a million samples; None without prices."""
        return None if self.per_price is None else MILLION / self.per_price.value


def lines(machines: Iterable[Machine], prices: Prices | None) -> list[PricedRow]:
    """Return all rows of all machines, with their prices where `prices` are given."""
    found: list[PricedRow] = []
    for one in machines:
        model, on_gpu = one.results.devices[0], one.results.on_gpu
        price = prices.of(one.name, model) if prices else None
        for row in table(one.results):
            per_hour = None if price is None else price * row.gpus
            found.append(PricedRow(machine=one.name, model=model, on_gpu=on_gpu, row=row, per_hour=per_hour))
    return found


def recommendation(lines: Sequence[PricedRow], currency: str) -> Iterator[str]:
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


def _worth(line: PricedRow) -> str:
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


def _across(lines: Sequence[PricedRow], currency: str) -> Iterator[str]:
    """Yield which machine makes most of each workload, and which makes most for the money.

    Only the same workload, of the same size per GPU, on the same kind of device is compared.
    """
    alike: dict[tuple[str, int | None, bool], list[PricedRow]] = {}
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


def _rivals(fastest: PricedRow, group: Sequence[PricedRow]) -> str:
    """Return the other machines whose best line may be as fast, as far as the errors say."""
    alike: dict[str, None] = {}
    for line in group:
        behind = difference(fastest.row.samples_per_s, line.row.samples_per_s)
        if line.machine != fastest.machine and behind.value < CERTAIN * (behind.error or 0.0):
            alike[_where(line)] = None
    return f" ({', '.join(alike)} may be as fast)" if alike else ""


def _where(line: PricedRow) -> str:
    route = f" over {ROUTES[line.row.route]}" if line.row.route else ""
    return f"{line.machine} with {line.row.gpus} x {line.model}{route}"


def _largest(lines: Sequence[PricedRow]) -> list[PricedRow]:
    """Return the lines of the largest size and the largest number of GPUs, for each workload, route and scaling."""
    groups: dict[tuple[object, ...], list[PricedRow]] = {}
    for line in lines:
        groups.setdefault((line.row.workload, line.row.route, line.row.scaling), []).append(line)
    return [max(reversed(group), key=lambda line: (line.row.size or 0, line.row.gpus)) for group in groups.values()]


def comparison_tsv(lines: Sequence[PricedRow], currency: str | None) -> str:
    """Return the lines as text with one column per number; a number that is not known is empty.

    Columns of prices exist only where there is a `currency`.
    """
    rows = [_columns(line, currency) for line in lines]
    return "".join(tsv(Sheet(list(rows[0]) if rows else [], rows)))


def _columns(line: PricedRow, currency: str | None) -> dict[str, object]:
    row = line.row
    lost = {loss.name: loss for loss in row.losses}
    columns: dict[str, object] = {
        "machine": line.machine,
        "device": line.model,
        "workload": row.workload,
        "size": row.size,
        "unit": row.unit,
        "scaling": row.scaling,
        "devices": row.gpus,
        "route": row.route,
        **_measured("samples_per_s", row.samples_per_s),
        **_measured("ms_per_step", row.step_ms),
        **_measured("speed_up", row.speed_up),
        **_measured("efficiency_pct", row.efficiency_pct),
    }
    for name in LOSSES:
        loss = lost.get(name)
        columns |= _measured(f"{name.replace(' ', '_')}_ms", loss and Quantity(loss.ms, loss.error_ms))
    columns |= {
        "util_pct": _rounded(mean_pct(row.devices, "util_mean_pct")),
        "sm_pct": _rounded(mean_pct(row.devices, "sm_mean_pct")),
        "mem_peak_mib": max((one.mem_peak_mib for one in row.devices if one.mem_peak_mib is not None), default=None),
    }
    if currency:
        columns |= {
            f"{currency}_per_hour": line.per_hour,
            **_measured(f"samples_per_{currency}", line.per_price),
            f"{currency}_per_million_samples": _rounded(line.per_million),
        }
    return columns


def _measured(name: str, one: Quantity | None) -> dict[str, float | None]:
    return {name: one and _rounded(one.value), f"{name}_se": one and _rounded(one.error)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
