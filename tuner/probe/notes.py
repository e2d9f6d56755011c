"""What a reader of a probe's numbers should know. Pure."""

from collections.abc import Iterator, Sequence

from tuner.probe.result import DeviceSummary
from tuner.probe.summary import Measure
from tuner.probe.window import Window

BUSY_PCT = 10.0
"""From this share of the processors on, in percent, the result of a probe on the CPU says what others used."""


def notes(window: Window, shares: list[Measure] | None, devices: Sequence[DeviceSummary]) -> Iterator[str]:
    """Yield what a reader of the window's numbers should know."""
    if (level := window.last_level) is not None:
        before_s, after_s = (one.trained_s / one.iterations for one in (window.before_change, level))
        yield f"iterations changed from {before_s:.3g} s to {after_s:.3g} s, and the error holds the difference"
    if window.counts_own_samples and window.samples_per_s is None:
        yield "samples/s is unknown: `samples` is not the total since the start"
    if shares and any(share.mean is None for share in shares):
        yield "utilisation is unknown: a rank reports more `busy_s` than the time that has passed"
    yield from _busy_with_others(devices)


def _busy_with_others(devices: Sequence[DeviceSummary]) -> Iterator[str]:
    others_pct = max((one.others_mean_pct or 0.0 for one in devices), default=0.0)
    if others_pct >= BUSY_PCT:
        yield f"other processes used {others_pct:.0f} % of the processors, so another run may give another value"
