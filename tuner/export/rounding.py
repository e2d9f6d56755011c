"""Rounds the numbers of tables, by their units."""

import math
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
    decimals = _DECIMALS.get(_UNITS.get(name.removesuffix("_se"), ""))  # an error has its value's unit
    if decimals is None:
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return round(value, decimals) if decimals else round(value)
