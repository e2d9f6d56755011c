"""What scaling results say, as sentences."""

import math
from collections.abc import Iterable, Iterator, Sequence

from tuner.devices.found import Link
from tuner.probe.result import DeviceSummary
from tuner.probe.summaries import BUSY_PCT
from tuner.scaling.laws import Quantity
from tuner.scaling.results import Mode, Results, Route, Subject
from tuner.scaling.scaling_table import Division, Fit, ScalingRow, ceilings, placement

ROUTES: dict[Route, str] = {
    "nvlink": "NVLink",
    "p2p": "PCIe, card to card",
    "host": "the host's memory",
    "gloo": "gloo",
}
"""The words for each route."""
MODES: dict[Mode, str] = {
    "single": "one device works, alone on the machine",
    "beside": "each device has a program of its own, and all work at the same time",
    "apart": "the devices wait for each other after each step, and exchange nothing",
    "joined": "the devices exchange gradients or other results, as in training",
}
"""The words for each way to work."""
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
CPU_NOTE = "These are CPU figures: ranks of one processor that exchange data with gloo. They say nothing about GPUs."
CERTAIN = 2.0
"""A loss is told if it is at least this many of its standard errors."""
TWO_DIGITS = 2.0
"""An error whose first digit is below this number is shown with two digits, and any other error with one."""
MOST_DECIMALS = 12
"""A number is shown with at most so many decimals, however small its error is."""
LOSS_WORTH_PCT = 1.0
"""A loss is told if it is at least this percentage of the step."""


def number(one: Quantity, digits: int = 3) -> str:
    """Return a number with its standard error; the error's size decides the decimals."""
    if one.error is None or one.error == 0:
        return f"{one.value:.{digits}g}" if abs(one.value) < 10**digits else f"{one.value:,.0f}"
    decimals = min(math.ceil(-math.log10(one.error / TWO_DIGITS)), MOST_DECIMALS)
    shown = max(decimals, 0)
    return f"{round(one.value, decimals):,.{shown}f} ± {round(one.error, decimals):,.{shown}f}"


def short(one: Quantity) -> str:
    """Return a large number with its standard error in thousands (k), millions (M) or billions (G)."""
    unit, letter = next((found for found in PREFIXES if abs(one.value) >= found[0]), (1.0, ""))
    return f"{number(one.times(1 / unit))} {letter}".rstrip()


def sized(row: ScalingRow | Fit | Division) -> str:
    """Return the name of what a row is about."""
    return row.workload if row.size is None else f"{row.workload} {row.size:,}"


def scaling_sentences(results: Results, rows: Sequence[ScalingRow], fits: Iterable[Fit]) -> Iterator[str]:
    """Yield what the losses of each row are, and then each serial part."""
    if not results.on_gpu:
        yield CPU_NOTE
    yield from busy_with_others(device for one in results.points if one.mode != "beside" for device in one.devices)
    for row in rows:
        if row.scaling != "single":
            yield _told(row, "cards" if results.on_gpu else "ranks")
    yield from map(_serial, fits)
    yield from ceiling_sentences(rows)
    yield from failure_sentences(results)


def failure_sentences(results: Results) -> Iterator[str]:
    """Yield which measurements failed, and why."""
    for one in results.points:
        if one.failure:
            size = "" if one.size is None else f" {one.size:,}"
            cards = ",".join(map(str, one.gpus))
            yield f"not measured: {one.workload}{size} {one.mode} on {cards}: {one.failure}: {one.detail}"


def ceiling_sentences(rows: Sequence[ScalingRow]) -> Iterator[str]:
    """Yield the most that more devices could gain, where they were not measured themselves."""
    for row, gpus, speed_up in ceilings(rows):
        yield (
            f"{sized(row)} (strong): {gpus} devices can make at most {number(speed_up)} times "
            f"the samples of one. One device with 1/{gpus} of the batch is no faster"
        )


def busy_with_others(devices: Iterable[DeviceSummary]) -> Iterator[str]:
    """Yield a warning where other programs worked meanwhile. Programs measured side by side count as others, too."""
    others_pct = max((device.others_mean_pct or 0.0 for device in devices), default=0.0)
    if others_pct >= BUSY_PCT:
        yield (
            f"Other processes used up to {others_pct:.0f} % of the processors meanwhile. "
            "Measure again on a quiet machine before you decide."
        )


def _told(row: ScalingRow, devices: str) -> str:
    step = row.step_ms.value
    parts = [
        f"{loss.name} {number(Quantity(loss.ms, loss.error_ms))} ms"
        for loss in sorted(row.losses, key=lambda one: -one.ms)
        if loss.ms >= CERTAIN * (loss.error_ms or 0.0) and 100 * loss.ms >= LOSS_WORTH_PCT * step
    ]
    lost = f"Of {step:.4g} ms per step are lost: {', '.join(parts)}" if parts else "No loss is clearly above 0"
    return (
        f"{sized(row)} ({row.scaling}): {row.gpus} {devices}{_over(row.route)} make {number(row.speed_up)} times the "
        f"samples of one. {lost}"
    )


def _over(route: Route | None) -> str:
    return f" over {ROUTES[route]}" if route in {"nvlink", "p2p", "host"} else ""


def _serial(fit: Fit) -> str:
    law = "Amdahl" if fit.scaling == "strong" else "Gustafson"
    share = number(Quantity(fit.serial.share, fit.serial.error).times(100))
    text = f"{sized(fit)} ({fit.scaling}){_over(fit.route)}: serial part {share} % ({law})"
    if fit.serial.misfit is not None and fit.serial.misfit > CERTAIN:
        text += "; the law does not fit these measurements"
    return text


def split_sentences(results: Results, divisions: list[Division]) -> Iterator[str]:
    """Yield how each workload is divided among the cards, and which workload belongs on which card."""
    if not results.on_gpu:
        yield CPU_NOTE
    yield from busy_with_others(device for one in results.points if one.mode == "single" for device in one.devices)
    for one in divisions:
        shares = ", ".join(f"{100 * share:.1f} %" for share in one.shares)
        total, best = one.throughput.value, one.alone[one.best_card].value
        yield (
            f"{sized(one)}: give the cards {shares} of the work. "
            f"Together they make {number(one.throughput)} samples/s: {total / best:.2f} times the best card alone, "
            f"{total / one.even.value:.2f} times an even split, "
            f"{100 * total / one.sum_alone.value:.1f} % of the sum of the single cards"
        )
    chosen = placement(divisions)
    if len(chosen) > 1:
        for card, name in enumerate(results.devices):
            works = [name if size is None else f"{name} {size:,}" for (name, size), at in chosen.items() if at == card]
            yield f"device {card} ({name}): {', '.join(works) or 'nothing'}"
    yield from failure_sentences(results)


def topology(links: Sequence[Link]) -> Iterator[str]:
    """Yield how the pairs of cards are connected, one line for each kind of connection."""
    pairs: dict[str, list[str]] = {}
    for link in links:
        kind = "NVLink" if link.nvlink else "no direct access" if link.p2p is False else "PCIe"
        pairs.setdefault(kind, []).append(f"{link.first}-{link.second}")
    for kind, between in pairs.items():
        yield f"{kind} between the cards {', '.join(between)}"


def about(subject: Subject) -> str:
    """Return a line about a subject."""
    return f"{subject.name}: {subject.text}" + (f"; sizes are {subject.unit}" if subject.unit else "")
