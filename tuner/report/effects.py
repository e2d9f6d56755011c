"""What each parameter changes: differences between configs that differ in this parameter alone. Pure."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.probe.steady import error_of_mean
from tuner.search.standing import Standing
from tuner.study import Value

_ABSENT = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What changes on average if a parameter takes the best's value in place of another value."""

    parameter: str
    value: Value
    """The other value."""
    best: Value
    pairs: int
    """The number of pairs of configs that differ in this parameter alone."""
    change: float
    """The mean difference of the objective, in its unit."""
    error: float | None
    """The standard error of `change`; None where a single pair has no errors of its own."""
    speed: float | None
    """The factor by which samples/s change: the geometric mean of the pairs."""

    @property
    def is_sure(self) -> bool:
        """Whether the difference is at least twice its standard error."""
        return self.error is not None and abs(self.change) >= 2.0 * self.error


def effects(points: Sequence[Standing], best: Standing | None) -> list[Effect]:
    """Return the effect of each value of each parameter against the best's value, those of one parameter together.

    The method is that of matched pairs (Box, Hunter and Hunter, Statistics for Experimenters, 2005, section 3.2). The
    error follows from the errors of the pairs, or from the scatter of their differences if that is larger; see
    `steady.error_of_mean`. The scatter shows that the effect differs from config to config. A parameter that counts
    only beside some values of another one, such as epochs beside a variant, differs together with the other.
    """
    return [] if best is None else [one for name, value in best.config.items() for one in _of(name, value, points)]


def _of(name: str, wanted: Value, points: Sequence[Standing]) -> Iterator[Effect]:
    having = [point for point in points if name in point.config]
    others = _others(name, having)
    alike: defaultdict[Hashable, defaultdict[Value, list[Standing]]] = defaultdict(lambda: defaultdict(list))
    for point in having:
        alike[tuple(point.config.get(other, _ABSENT) for other in others)][point.config[name]].append(point)
    for value in _sorted({point.config[name] for point in having} - {wanted}):
        pairs = [(one, other) for group in alike.values() for one in group[wanted] for other in group[value]]
        if pairs:
            yield _effect(name, value, wanted, pairs)


def _others(name: str, points: Sequence[Standing]) -> list[str]:
    """Return the other parameters, without those that are there or not as the value of this parameter says."""
    everywhere = dict.fromkeys(other for point in points for other in point.config if other != name)
    present: Mapping[str, Mapping[Value, set[bool]]] = {other: _presence(name, other, points) for other in everywhere}
    return [
        other
        for other, by_value in present.items()
        if len(set().union(*by_value.values())) == 1 or any(len(known) > 1 for known in by_value.values())
    ]


def _presence(name: str, other: str, points: Sequence[Standing]) -> Mapping[Value, set[bool]]:
    found: defaultdict[Value, set[bool]] = defaultdict(set)
    for point in points:
        found[point.config[name]].add(other in point.config)
    return found


def _effect(name: str, value: Value, best: Value, pairs: Sequence[tuple[Standing, Standing]]) -> Effect:
    errors = [
        None if one.error is None or other.error is None else math.hypot(one.error, other.error) for one, other in pairs
    ]
    changes = [one.value - other.value for one, other in pairs]
    speeds = [
        math.log(one.samples_per_s / other.samples_per_s)
        for one, other in pairs
        if one.samples_per_s and other.samples_per_s
    ]
    return Effect(
        parameter=name,
        value=value,
        best=best,
        pairs=len(pairs),
        change=fmean(changes),
        error=error_of_mean(changes, errors),
        speed=math.exp(fmean(speeds)) if speeds else None,
    )


def _sorted(values: set[Value]) -> list[Value]:
    return sorted(
        values, key=lambda value: (isinstance(value, str), value if not isinstance(value, str) else 0, str(value))
    )
