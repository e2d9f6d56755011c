"""How many times as fast the best config of a case is as another one, with its error."""

from math import hypot, sqrt
from typing import NamedTuple

from tuner.export.case_view import CaseView
from tuner.export.wording import SPEEDS
from tuner.search.standing import Standing


class SpeedGain(NamedTuple):
    """How many times as many samples a second one config trains as another."""

    times: float
    error: float | None
    """The standard error of `times`; None where it is unknown."""


def gain(view: CaseView, own: Standing) -> SpeedGain | None:
    """Return how many times as fast the best config of a case is as another one; None where that is unknown.

    Where one of the two has run several times, a run of the other is taken to scatter as much.
    """
    best = view.best
    if best is None or view.unlike_best(own) or view.failed_again:
        return None
    is_speed = view.objective in SPEEDS
    (fast, fast_error), (slow, slow_error) = (
        (config.value, config.told_error) if is_speed else (config.samples_per_s, config.told_speed_error)
        for config in (best, own)
    )
    if not fast or not slow:
        return None
    times = fast / slow
    if fast_error is None or slow_error is None:
        return SpeedGain(times, None)
    shares = (fast_error / fast, best.readings), (slow_error / slow, own.readings)
    scatter = max((share * sqrt(count) for share, count in shares if count > 1), default=0.0)
    return SpeedGain(times, times * hypot(*(max(share, scatter / sqrt(count)) for share, count in shares)))
