"""Which cases are alike, and what one of them can lend another before that has measured anything. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.search.growth import Line
from tuner.study.cases import Case
from tuner.study.space import VARIANT, Config, Space

NEAREST = 3
"""So many siblings are asked, the likest ones: each may give one config to begin with."""
SAME_ROBOT = 0.5
"""Share of the words after the method that two names have in common where they name the same robot, as
`amp_pi_plus` and `deepmimic_pi_plus_ppo` do, at the least."""


Cost = tuple[Config, Mapping[str, float]]
"""What a probe of a config took; see `observed.cost`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sibling:
    """What is known of a case that is like the one searched now."""

    case: str
    best: Config
    """Its best eligible config."""
    costs: Sequence[Cost] = ()


def amounts(costs: Iterable[Cost], name: str, space: Space) -> Line:
    """Give the configs of which this part of the cost is known, and how much it was, for the variants of a space."""
    variants = space.values(VARIANT) or (None,)
    known = [(config, took[name]) for config, took in costs if name in took and config.get(VARIANT) in variants]
    return [config for config, _ in known], [amount for _, amount in known]


def likeness(case: str, other: str) -> tuple[int, float] | None:
    """Say how like two cases are by their names, more is liker; None where nothing of it shows.

    The first word names the method, the others robot and task. Same method and same robot come first, then the same
    robot, then the same method; among equals, more words in common.
    """
    mine, others = _words(case), _words(other)
    common = len(mine & others) / max(len(mine | others), 1)
    same_method, same_robot = Case(name=case).method == Case(name=other).method, common >= SAME_ROBOT
    return (same_method + 2 * same_robot, common) if same_method or same_robot else None


def likest(case: str, others: Iterable[str]) -> list[str]:
    """Give the cases that are like this one, the likest first, equals in their order; not itself."""
    ranks = {other: rank for other in others if other != case and (rank := likeness(case, other))}
    return sorted(ranks, key=ranks.__getitem__, reverse=True)


def _words(case: str) -> set[str]:
    """Give the words of a name after its method."""
    return set(case.split("_")[1:])
