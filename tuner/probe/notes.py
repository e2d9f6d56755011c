"""What a reader of a probe's numbers should know. Pure."""

from collections.abc import Iterator, Sequence

from tuner.probe.result import DeviceSummary
from tuner.probe.summary import Measure
from tuner.probe.window import LEAST_SPEEDS, Window

NO_RATE = "samples/s is unknown"
"""A note begins with these words if the trainer prints samples or speeds that do not count."""
BUSY_PCT = 10.0
"""From this share of the processors on, in percent, the result of a probe on the CPU says what others used."""


def notes(window: Window, shares: list[Measure] | None, devices: Sequence[DeviceSummary]) -> Iterator[str]:
    """Yield what a reader of the window's numbers should know."""
    if (level := window.last_level) is not None:
        before_s, after_s = (one.trained_s / one.iterations for one in (window.before_change, level))
        yield f"iterations changed from {before_s:.3g} s to {after_s:.3g} s, and the error holds the difference"
    if window.counts_own_samples and window.samples_per_s is None:
        yield f"{NO_RATE}: `samples` is not the total since the start"
    if window.has_unfit_speeds:
        yield (
            f"{NO_RATE}: the printed speeds are averages over more than the time since the line before, or "
            f"fewer than {LEAST_SPEEDS}; samples or samples_per_iteration would count"
        )
    if shares and any(share.mean is None for share in shares):
        yield "utilisation is unknown: a rank reports more `busy_s` than the time that has passed"
    yield from _busy_with_others(devices)


def _busy_with_others(devices: Sequence[DeviceSummary]) -> Iterator[str]:
    others_pct = max((one.others_mean_pct or 0.0 for one in devices), default=0.0)
    if others_pct >= BUSY_PCT:
        used = f"{min(others_pct, 100):.0f} % of the processors"
        yield f"other processes used {used}, so another run may give another value"
