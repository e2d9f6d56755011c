"""The Pareto front: the configs that no other config matches in all objectives and beats in one. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from tuner.search.standing import EndedTrial, Standing, Standings, Values, ways


def front(readings: Iterable[EndedTrial]) -> list[Standing]:
    """Return the configs that no other config dominates, the largest first objective first.

    `readings` come in the order of the trials. `counting` says which configs count, and with which values.
    """
    members: list[Standing] = []
    for one in sorted(counting(readings), key=lambda one: one.values, reverse=True):
        if not any(dominates(member.values, one.values) for member in members):  # sorted: none dominates one before it
            members.append(one)
    return members


def counting(readings: Iterable[EndedTrial]) -> list[Standing]:
    """Return what is known of each config that may be the best, with the values to compare.

    Warm values count only until the config is measured cold. They are lowered by the share by which warm values exceed
    cold ones, on average over the configs that were measured in both ways.
    """
    cold, warm = ways(readings)
    flattery = _flattery(warm, cold)
    unconfirmed = [one for launch, one in warm.items() if launch not in cold]
    return [*cold.values(), *(replace(one, values=_less(one.values, flattery)) for one in unconfirmed)]


def dominates(values: Values, others: Values) -> bool:
    """Check whether no value is below its counterpart in `others`, and at least one is above."""
    pairs = list(zip(values, others, strict=True))
    return all(one >= other for one, other in pairs) and any(one > other for one, other in pairs)


def _flattery(warm: Standings, cold: Standings) -> Values:
    """Return by which share of each objective warm values exceed cold ones; empty where no config has both."""
    both = [(one.values, cold[launch].values) for launch, one in warm.items() if launch in cold]
    shares = [[1 - truth / read if read else 0.0 for read, truth in zip(*pair, strict=True)] for pair in both]
    return tuple(
        sum(each) / max(len(both), 2) for each in zip(*shares, strict=True)
    )  # a single config may be an exception


def _less(values: Values, shares: Values) -> Values:
    return tuple(value * (1 - share) for value, share in zip(values, shares, strict=True)) if shares else values
