"""What a reader of a probe's numbers should know. Pure."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from tuner.probe.marks import Mark
from tuner.probe.result import DeviceSummary
from tuner.probe.summary import Measure
from tuner.probe.window import JUMP, LEAST_SPEEDS, Window

NO_RATE = "samples/s is unknown"
"""A note begins with these words if the trainer prints samples or speeds that do not count."""
BUSY_PCT = 10.0
"""From this share of the processors on, in percent, the result of a probe on the CPU says what others used."""


def doubtful(window: Window) -> str | None:
    """Return why the samples of a window may be wrong; None where nothing speaks against them."""
    if window.is_queued:
        return "the batches that the loader had ready before the first iteration were not used up"
    if window.counts_samples and window.has_jumps:
        return f"iterations came {JUMP:.0f} times as fast for a while, as lines of an earlier run do"
    if window.counts_own_samples and window.samples_per_s is None:
        return "`samples` is not the total since the start"
    if window.has_unfit_speeds:
        return (
            f"the printed speeds are averages over more than the time since the line before, or fewer than "
            f"{LEAST_SPEEDS}; samples or samples_per_iteration would count"
        )
    return None


def notes(
    window: Window, shares: list[Measure] | None, devices: Sequence[DeviceSummary], doubt: str | None = None
) -> Iterator[str]:
    """Yield what a reader of the window's numbers should know; `doubt` says why its samples may be wrong."""
    if (level := window.last_level) is not None:
        before_s, after_s = (one.trained_s / one.iterations for one in (window.before_change, level))
        yield f"iterations changed from {before_s:.3g} s to {after_s:.3g} s, and the error holds the difference"
    if doubt and window.counts_samples:
        yield f"{NO_RATE}: {doubt}"
    yield from _pauses(window)
    if shares and any(share.mean is None for share in shares):
        yield "utilisation is unknown: a rank reports more `busy_s` than the time that has passed"
    yield from _busy_with_others(devices)


def _pauses(window: Window) -> Iterator[str]:
    """Yield what each kind of pause costs. No pause is part of the window's numbers."""
    by_kind: dict[str, list[Mark]] = {}
    for mark in window.pauses:
        by_kind.setdefault(mark.pause.what if mark.pause else "", []).append(mark)
    for what, found in by_kind.items():
        cost_s = fmean(mark.pause_s for mark in found)
        every = found[-1].pause.every if found[-1].pause else None
        between_s = (every or 0.0) * window.trained_s / (window.last.iteration - window.first.iteration)
        share = f", {100 * cost_s / (cost_s + between_s):.0f} % at {every:.0f} iterations an epoch" if every else ""
        yield f"{what} costs {cost_s:.1f} s{share}; the numbers are those without it"


def _busy_with_others(devices: Sequence[DeviceSummary]) -> Iterator[str]:
    others_pct = max((one.others_mean_pct or 0.0 for one in devices), default=0.0)
    if others_pct >= BUSY_PCT:
        used = f"{min(others_pct, 100):.0f} % of the processors"
        yield f"other processes used {used}, so another run may give another value"
