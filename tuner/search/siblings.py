"""Which cases are alike, and what a case can learn from similar cases before its first probe. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.search.needs import Amounts
from tuner.study import VARIANT, Case, Config, Space

NEAREST = 3
"""A case learns from this many siblings, the most similar ones. Each may supply one of the first configs."""
SAME_ROBOT = 0.5
"""Two cases have the same robot if they share at least this part of the words that name robot and task.

`amp_pi_plus` and `deepmimic_pi_plus_ppo` share two of three words.
"""


Cost = tuple[Config, Mapping[str, float]]
"""A config, and what a probe of it took: see `tuner.kept.trial.cost`."""


Reading = tuple[Config, float, float | None]
"""A config, a measured value and its standard error, None where that is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sibling:
    """What is known of a case that is similar to the case searched now."""

    case: str
    best: Config
    """Its best eligible config."""
    costs: Sequence[Cost] = ()
    readings: Sequence[Reading] = ()
    """Its measurements; larger values are better."""


def lending_order(cases: Sequence[Case]) -> list[Case]:
    """Order cases so that early ones lend most: first cases with a new method and robot, then with one of both.

    A later case then has a sibling of its method and a sibling of its robot. Among equals the order stays.
    """
    left, ordered = list(cases), list[Case]()
    while left:
        newest = max(left, key=lambda case: _new(case, ordered))
        left.remove(newest)
        ordered.append(newest)
    return ordered


def _new(case: Case, known: Sequence[Case]) -> int:
    """Return how much of method and robot no known case has: 2, 1 or 0."""
    return (case.method not in {one.method for one in known}) + (not any(_same_robot(case, one) for one in known))


def _same_robot(case: Case, other: Case) -> bool:
    return _in_common(case, other) >= SAME_ROBOT


def _in_common(case: Case, other: Case) -> float:
    """Return the share of the words of both robots that both have."""
    mine, others = set(case.robot), set(other.robot)
    return len(mine & others) / max(len(mine | others), 1)


def amounts(costs: Iterable[Cost], name: str, space: Space) -> Amounts:
    """Return the configs with a known value of this part of the cost, and these values.

    Variants outside the space are left out.
    """
    variants = space.values(VARIANT) or (None,)
    known = [(config, took[name]) for config, took in costs if name in took and config.get(VARIANT) in variants]
    return [config for config, _ in known], [amount for _, amount in known]


def likeness(case: Case, other: Case) -> tuple[int, float] | None:
    """Return how alike two cases are, where a larger value means more alike; None where they share nothing.

    Same method and same robot come first, then the same robot, then the same method. Among equals, the case with more
    words in common comes first.
    """
    same_method, same_robot = case.method == other.method, _same_robot(case, other)
    return (same_method + 2 * same_robot, _in_common(case, other)) if same_method or same_robot else None


def most_similar(case: Case, others: Iterable[Case]) -> list[str]:
    """Return the names of the other cases that are like this one, the most alike first, equals in their order."""
    ranks = {other.name: rank for other in others if other.name != case.name and (rank := likeness(case, other))}
    return sorted(ranks, key=ranks.__getitem__, reverse=True)
