"""Rounds the numbers of tables, by their units."""

import math
from functools import cache
from typing import Any

from tuner.probe.metrics import METRICS

SIGNIFICANT_DIGITS = 6
"""The significant digits of a number whose unit is unknown."""

_DECIMALS = {"%": 2, "1/s": 2, "s": 2, "W": 1, "MiB": 0, "J": 0}
_UNITS = {
    "avg_util": "%",
    "max_util": "%",
    "max_mem": "MiB",
    "max_power": "W",
    "elapsed_s": "s",
    "total_s": "s",
    "probe_s": "s",
    **{metric.name: metric.unit for metric in METRICS},
}


def rounded(name: str, value: Any) -> Any:
    """Round the number called `name` to the decimals of its unit.

    Text and whole numbers stay as they are. Infinity and NaN become None.
    """
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    decimals = _decimals(name)
    if decimals is None:
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return round(value, decimals) if decimals else round(value)


@cache
def _decimals(name: str) -> int | None:
    """Return how many decimals a number has; None where its unit is unknown. An error has its value's unit."""
    return _DECIMALS.get(_UNITS.get(name.removesuffix("_se"), ""))
