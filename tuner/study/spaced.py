"""The values of a range: evenly spaced numbers, or numbers with equal factors between them. Pure."""

import math
from decimal import Decimal
from itertools import count as counting
from itertools import takewhile


def count_spaced(first: float, last: float, step: float, *, log: bool) -> int:
    """Return the most values that a range has, without making them."""
    if log:
        return math.ceil(math.log(last / first) / math.log(step)) + 1
    return int((_exact(last) - _exact(first)) // _exact(step)) + 1


def spaced_values(first: float, last: float, step: float, *, log: bool) -> tuple[float, ...]:
    """Return the values from `first` to `last`.

    Each value is the one before plus `step`. With `log` it is the one before times `step`, and `last` ends the list.
    The arithmetic is decimal, as a person would do it: 0.1, 0.2, 0.3. Integers stay integers; with `log`, fractions
    between integers are rounded.
    """
    begin, end, change = map(_exact, (first, last, step))
    if not log:
        whole = all(isinstance(one, int) for one in (first, last, step))
        steps = (begin + place * change for place in range(count_spaced(first, last, step, log=False)))
        return tuple(int(one) if whole else float(one) for one in steps)
    powers = takewhile(lambda one: one < end, (begin * change**power for power in counting()))
    if isinstance(first, int) and isinstance(last, int):
        return tuple(dict.fromkeys([*(round(one) for one in powers), last]))
    return (*map(float, powers), float(last))


def _exact(number: float) -> Decimal:
    return Decimal(repr(number))
