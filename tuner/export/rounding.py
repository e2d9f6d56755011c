"""How many decimals a number deserves in a table, by the unit in its name."""

import math
import re
from functools import cache
from typing import Any

SIGNIFICANT_DIGITS = 6
"""Of a number whose name tells no unit."""

_DECIMALS = (
    (re.compile(r"_s$|_pct$|util|_sm$|occupancy|tensor|dram"), 2),
    (re.compile(r"_w$|power"), 1),
    (re.compile(r"_mib$|mem|_j$|energy"), 0),
)


def rounded(name: str, value: Any) -> Any:
    """Round the measured number called `name`: seconds and percent to 2 decimals, watts to 1, MiB and joules to none.

    Text and whole numbers stay as they are; what is not finite is unknown, None.
    """
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    decimals = _decimals(name)
    if decimals is None:
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return round(value, decimals or None)


@cache
def _decimals(name: str) -> int | None:
    return next((decimals for pattern, decimals in _DECIMALS if pattern.search(name)), None)
