"""How the results of `tuner scale` look on a terminal."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tuner.cli.case_tables import print_tables
from tuner.probe.units import MIB_PER_GIB
from tuner.scaling.campaign import Run
from tuner.scaling.comparing import PricedRow
from tuner.scaling.results import Measurement, Results
from tuner.scaling.scaling_table import (
    Division,
    LinkRow,
    ScalingRow,
    divisions,
    fits,
    link_table,
    mean_pct,
    rate,
    table,
)
from tuner.scaling.sentences import MODES, about, number, scaling_sentences, short, sized, split_sentences, topology
from tuner.scaling.subjects import LINKS


def introduce(console: Console, results: Results, planned: Sequence[Run], left: int) -> None:
    """Say what will be measured, and what an earlier call has measured."""
    for one in results.subjects:
        console.print(about(one))
    for line in topology(results.links):
        console.print(line)
    devices = f"{len(results.devices)} x {results.devices[0]}"
    console.print(f"{len(planned)} measurements on {devices}, {left} of them to make")
    for mode, meaning in MODES.items():
        if left and any(run.mode == mode for run in planned):
            console.print(f"{mode}: {meaning}")


def tell(console: Console, run: Run, points: Sequence[Measurement]) -> None:
    """Print a line about a run that has just been measured."""
    size = "" if run.size is None else f" {run.size:,}"
    route = run.teams[0].route
    for one in points:
        where = f"{run.mode} on {','.join(map(str, one.gpus))}{f' over {route}' if route else ''}"
        said = f"{one.failure}: {one.detail}" if one.failure else f"{number(rate(one))} samples/s"
        console.print(f"  {run.subject}{size} {where}: {said}")


def show_scaling(console: Console, results: Results) -> None:
    """Print the scaling tables of each workload, the links, and what they mean."""
    rows = table(results)
    if not rows:
        return
    console.print("k, M and G stand for a thousand, a million and a billion.")
    for subject in results.subjects:
        own = [row for row in rows if row.workload == subject.name]
        several = [row for row in own if row.losses]
        if own:
            console.print(f"{subject.name}{f', size in {subject.unit}' if subject.unit else ''}")
            print_tables(console, _speeds(own), _steps(own), *([_losses(several)] if several else []))
    if links := link_table(results, LINKS):
        print_tables(console, _links(links))
    for line in scaling_sentences(results, rows, fits(rows)):
        console.print(line)


def show_split(console: Console, results: Results) -> None:
    """Print how independent work is divided among the cards."""
    found = divisions(results)
    if not found:
        return
    console.print("Samples/s; k, M and G stand for a thousand, a million and a billion.")
    print_tables(console, _divisions(found))
    for line in split_sentences(results, found):
        console.print(line)


def show_comparison(console: Console, lines: Sequence[PricedRow], currency: str | None) -> None:
    """Print a table for each workload, with the rows of all machines; with a currency also what samples cost."""
    console.print("k, M and G stand for a thousand, a million and a billion.")
    by_workload: dict[tuple[str, str], list[PricedRow]] = {}
    for line in lines:
        by_workload.setdefault((line.row.workload, line.row.unit), []).append(line)
    for (workload, unit), own in by_workload.items():
        console.print(f"{workload}{f', size in {unit}' if unit else ''}")
        shown = Table("machine", *_WHAT, "samples/s", "speed-up", box=box.SIMPLE)
        for line in own:
            shown.add_row(line.machine, *_what(line.row), short(line.row.samples_per_s), number(line.row.speed_up))
        print_tables(console, shown, *([_costs(own, currency)] if currency else []))


def _costs(lines: Iterable[PricedRow], currency: str) -> Table:
    shown = Table("machine", *_WHAT, f"samples per {currency}", f"{currency} per million", box=box.SIMPLE)
    for line in lines:
        if per_price := line.per_price:
            shown.add_row(line.machine, *_what(line.row), short(per_price), f"{line.per_million:.4g}")
    return shown


_WHAT = ("size", "scaling", "GPUs", "route")


def _what(row: ScalingRow) -> tuple[str, ...]:
    return ("" if row.size is None else f"{row.size:,}", row.scaling, str(row.gpus), row.route or "")


def _speeds(rows: Iterable[ScalingRow]) -> Table:
    shown = Table(*_WHAT, "samples/s", "speed-up", "efficiency", box=box.SIMPLE)
    for row in rows:
        gained = (number(row.speed_up), f"{row.efficiency_pct.value:.0f} %") if row.scaling != "single" else ()
        shown.add_row(*_what(row), short(row.samples_per_s), *gained)
    return shown


def _steps(rows: Iterable[ScalingRow]) -> Table:
    shown = Table(*_WHAT, "ms per step", "util %", "SM %", "GiB", box=box.SIMPLE)
    for row in rows:
        peaks = [device.mem_peak_mib for device in row.devices if device.mem_peak_mib is not None]
        used = (mean_pct(row.devices, field) for field in ("util_mean_pct", "sm_mean_pct"))
        gib = f"{max(peaks) / MIB_PER_GIB:.1f}" if peaks else ""
        shown.add_row(*_what(row), number(row.step_ms), *("" if one is None else f"{one:.0f}" for one in used), gib)
    return shown


def _losses(rows: Iterable[ScalingRow]) -> Table:
    shown = Table(*_WHAT, "lost of a step, ms", box=box.SIMPLE)
    for row in rows:
        shown.add_row(*_what(row), ", ".join(f"{loss.name} {loss.ms:.3g}" for loss in row.losses))
    return shown


def _links(rows: Iterable[LinkRow]) -> Table:
    shown = Table("all-reduce", "GPUs", "route", "µs", "GB/s per GPU", box=box.SIMPLE)
    for row in rows:
        size = f"{row.size_bytes:,} bytes"
        shown.add_row(size, str(row.gpus), row.route, number(row.time_us), f"{row.bus_gb_per_s:.3g}")
    return shown


def _divisions(found: Iterable[Division]) -> Table:
    shown = Table("workload", "device", "alone", "beside the others", "share", box=box.SIMPLE)
    for one in found:
        for card, (alone, beside, share) in enumerate(zip(one.alone, one.second, one.shares, strict=True)):
            name = "" if card else sized(one)
            shown.add_row(name, str(card), short(alone), short(beside), f"{100 * share:.1f} %")
    return shown
