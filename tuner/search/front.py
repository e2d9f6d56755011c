"""The configs that no other beats in every objective at once: a Pareto front. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from tuner.search.standing import Reading, Standing, Standings, Values, ways


def front(readings: Iterable[Reading]) -> list[Standing]:
    """Give the configs that no other dominates, those with most of the first objective first.

    Readings come in the order of their trials; `counting` says which of them count, and as what. Equals stand side by
    side.
    """
    members: list[Standing] = []
    for one in sorted(counting(readings), key=lambda one: one.values, reverse=True):
        if not any(dominates(member.values, one.values) for member in members):  # a later one dominates no earlier one
            members.append(one)
    return members


def counting(readings: Iterable[Reading]) -> list[Standing]:
    """Give what is known of each config that may be the best, by the values that it is compared by.

    What sessions read counts only until the config has been tried cold, and less by the share that sessions read too
    high where both were measured.
    """
    cold, warm = ways(readings)
    flattery = _flattery(warm, cold)
    unconfirmed = [one for launch, one in warm.items() if launch not in cold]
    return [*cold.values(), *(replace(one, values=_less(one.values, flattery)) for one in unconfirmed)]


def dominates(values: Values, others: Values) -> bool:
    """Tell whether values are nowhere below others, and above them somewhere."""
    pairs = list(zip(values, others, strict=True))
    return all(one >= other for one, other in pairs) and any(one > other for one, other in pairs)


def _flattery(warm: Standings, cold: Standings) -> Values:
    """Give the share of each objective by which sessions read too high; empty where no config was read both ways."""
    both = [(one.values, cold[launch].values) for launch, one in warm.items() if launch in cold]
    shares = [[1 - truth / read if read else 0.0 for read, truth in zip(*pair, strict=True)] for pair in both]
    return tuple(sum(each) / max(len(both), 2) for each in zip(*shares, strict=True))  # one alone may be an exception


def _less(values: Values, shares: Values) -> Values:
    return tuple(value * (1 - share) for value, share in zip(values, shares, strict=True)) if shares else values
