"""The rounds of a race: all configs train for a short time, the better half for twice as long, and so on. Pure.

The rule is successive halving (Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FEWEST = 2
"""The configs of the last round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """A round: how many configs train, how long each run takes in seconds, and the seeds of each config's runs."""

    configs: int
    seconds: float
    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A run to make: the position of its config among the round's configs, and its seed."""

    config: int
    seed: int


def rounds(configs: int, *, seeds: int, total_s: float) -> list[Round]:
    """Return the rounds of a race whose runs train for `total_s` seconds together.

    Each run begins from scratch with a seed of its own. So a later round also measures the shorter times anew.
    """
    sizes = list(_sizes(configs))
    first_s = total_s / (seeds * sum(size * 2**number for number, size in enumerate(sizes)))
    return [
        Round(
            configs=size,
            seconds=first_s * 2**number,
            seeds=tuple(range(number * seeds, (number + 1) * seeds)),
        )
        for number, size in enumerate(sizes)
    ]


def turns(one: Round) -> list[Turn]:
    """Return the runs of a round: each seed with all configs, before the next seed."""
    return [Turn(config=config, seed=seed) for seed in one.seeds for config in range(one.configs)]


def _sizes(configs: int) -> Iterator[int]:
    yield configs
    while configs > FEWEST:
        configs = (configs + 1) // 2
        yield configs


def better_half(scores: Sequence[float | None]) -> list[int]:
    """Return the positions of the better half of the configs, the best first. Configs without a score are last."""
    order = sorted(range(len(scores)), key=lambda place: (scores[place] is None, -(scores[place] or 0.0)))
    known = [place for place in order if scores[place] is not None]
    return known[: max(FEWEST, (len(scores) + 1) // 2)]
