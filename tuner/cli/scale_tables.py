"""How the results of `tuner scale` look on a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from tuner.cli.tables import print_tables
from tuner.scaling.comparing import Line
from tuner.scaling.planning import Run
from tuner.scaling.results import Point, Results
from tuner.scaling.rows import LinkRow, Row, fits, link_table, mean_pct, rate, table
from tuner.scaling.splitting import Division, divisions
from tuner.scaling.subjects import LINKS
from tuner.scaling.words import about, number, scaling_sentences, sized, split_sentences, topology


def introduce(console: Console, results: Results, runs: int) -> None:
    """Say what will be measured."""
    for one in results.subjects:
        console.print(about(one), markup=False)
    console.print(f"{runs} measurements on {len(results.devices)} x {results.devices[0]}", markup=False)
    for line in topology(results.links):
        console.print(line, markup=False)


def tell(console: Console, run: Run, points: Sequence[Point]) -> None:
    """Print a line about a run that has just been measured."""
    size = "" if run.size is None else f" {run.size:,}"
    route = run.teams[0].route
    for one in points:
        where = f"{run.mode} on {','.join(map(str, one.gpus))}{f' over {route}' if route else ''}"
        said = f"{one.failure}: {one.detail}" if one.failure else f"{number(rate(one))} samples/s"
        console.print(f"  {run.subject}{size} {where}: {said}", markup=False)


def show_scaling(console: Console, results: Results) -> None:
    """Print the scaling table, the links, and what they mean."""
    rows = table(results)
    if not rows:
        return
    print_tables(console, _scaling(rows))
    if links := link_table(results, LINKS):
        print_tables(console, _links(links))
    for line in scaling_sentences(results, rows, fits(rows)):
        console.print(line, markup=False)


def show_split(console: Console, results: Results) -> None:
    """Print how independent work is divided among the cards."""
    found = divisions(results)
    if not found:
        return
    print_tables(console, _divisions(found, len(results.devices)))
    for line in split_sentences(results, found):
        console.print(line, markup=False)


def comparison(lines: Iterable[Line], currency: str | None) -> Table:
    """Return a table of the rows of several machines."""
    priced = (f"samples per {currency}", f"{currency} per million") if currency else ()
    shown = Table(
        "machine", "workload", "scaling", "devices", "route", "samples/s", "speed-up", "efficiency %", *priced
    )
    for line in lines:
        row, per_price = line.row, line.per_price
        shown.add_row(
            line.machine,
            sized(row),
            row.scaling,
            str(row.gpus),
            row.route or "",
            number(row.samples_per_s),
            number(row.speed_up),
            number(row.efficiency_pct),
            *((number(per_price), f"{line.per_million:.4g}") if per_price else ()),
        )
    return shown


def _scaling(rows: Iterable[Row]) -> Table:
    heads = ("workload", "scaling", "GPUs", "route", "samples/s", "ms per step", "speed-up", "efficiency %")
    shown = Table(*heads, "lost, ms", "util %", "SM %", "MiB")
    for row in rows:
        peaks = [device.mem_peak_mib for device in row.devices if device.mem_peak_mib is not None]
        shown.add_row(
            sized(row),
            row.scaling,
            str(row.gpus),
            row.route or "",
            number(row.samples_per_s),
            number(row.step_ms),
            number(row.speed_up),
            number(row.efficiency_pct),
            " ".join(f"{loss.name} {loss.ms:.3g}" for loss in row.losses),
            _pct(mean_pct(row.devices, "util_mean_pct")),
            _pct(mean_pct(row.devices, "sm_mean_pct")),
            f"{max(peaks):.0f}" if peaks else "",
        )
    return shown


def _links(rows: Iterable[LinkRow]) -> Table:
    shown = Table("all-reduce", "GPUs", "route", "µs", "GB/s per GPU")
    for row in rows:
        size = f"{row.size_bytes:,} bytes"
        shown.add_row(size, str(row.gpus), row.route, number(row.time_us), f"{row.bus_gb_per_s:.3g}")
    return shown


def _divisions(found: Iterable[Division], cards: int) -> Table:
    heads = [f"device {card}, alone / beside" for card in range(cards)]
    shown = Table("workload", *heads, "shares %", "together", "even split", "sum of single cards")
    for one in found:
        shown.add_row(
            sized(one),
            *(f"{number(alone)} / {number(beside)}" for alone, beside in zip(one.alone, one.second, strict=True)),
            " ".join(f"{100 * share:.1f}" for share in one.shares),
            number(one.throughput),
            number(one.even),
            number(one.sum_alone),
        )
    return shown


def _pct(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
