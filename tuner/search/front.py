"""The configs that no other beats in every objective at once: a Pareto front. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

Values = tuple[float, ...]
"""Each objective, maximised."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one trial has shown of its config."""

    trial: int
    """Whatever number its reader knows it by."""
    launch: Hashable
    """What trials of the same config have in common."""
    warm: bool
    """Whether a session served it."""
    values: Values | None
    """None where the config cannot be the best."""


def front(readings: Sequence[Reading]) -> list[Reading]:
    """Give the readings that no other dominates, those with most of the first objective first.

    Readings come in the order of their trials; `counting` says which of them count, and as what. Equals stand side by
    side.
    """
    members: list[tuple[Values, Reading]] = []
    for values, one in sorted(counting(readings), key=lambda pair: pair[0], reverse=True):
        if not any(dominates(member, values) for member, _ in members):  # a later one dominates no earlier one
            members.append((values, one))
    return [one for _, one in members]


def counting(readings: Sequence[Reading]) -> list[tuple[Values, Reading]]:
    """Give the newest eligible reading of each config, and what it is compared as.

    What a session read counts only until the config has been tried cold, and less by the share that sessions read too
    high where both were measured.
    """
    cold = {one.launch: one for one in readings if not one.warm}
    warm = {one.launch: one for one in readings if one.warm}
    flattery = _flattery(warm, cold)
    return [
        (_less(one.values, flattery) if one.warm else one.values, one)
        for one in (warm | cold).values()
        if one.values is not None
    ]


def dominates(values: Values, others: Values) -> bool:
    """Tell whether values are nowhere below others, and above them somewhere."""
    pairs = list(zip(values, others, strict=True))
    return all(one >= other for one, other in pairs) and any(one > other for one, other in pairs)


def _flattery(warm: Mapping[Hashable, Reading], cold: Mapping[Hashable, Reading]) -> Values:
    """Give the share of each objective by which sessions read too high; empty where no config was read both ways."""
    both = [
        (read.values, truth.values)
        for launch, read in warm.items()
        if (truth := cold.get(launch)) and read.values and truth.values
    ]
    shares = [[1 - truth / read if read else 0.0 for read, truth in zip(*pair, strict=True)] for pair in both]
    return tuple(sum(each) / max(len(both), 2) for each in zip(*shares, strict=True))  # one alone may be an exception


def _less(values: Values, shares: Values) -> Values:
    return tuple(value * (1 - share) for value, share in zip(values, shares, strict=True)) if shares else values
