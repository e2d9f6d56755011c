"""Invented tables of kinds that no search was developed on: surfaces of every character with one thing changed.

What a real machine may do and `surfaces` leaves out. A seed draws a surface, each character in turn, and the twist.
"""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from surfaces import CHARACTERS, Surface, surface, tabulated

from tuner.replay.table import Table
from tuner.study.space import LADDER, Config

PROCESSORS = (108, 128, 132)
"""Of a card, in which waves of equal work run side by side."""


@cache
def table(twist: str, seed: int) -> Table:
    """Give an invented table with this twist."""
    drawn = surface(CHARACTERS[seed % len(CHARACTERS)], seed)
    return tabulated(TWISTS[twist](drawn, random.Random(f"{twist} {seed}")), f"invented_{twist}_{seed}")


def _noisy(plain: Surface, _: random.Random) -> Surface:
    """Readings scatter three times as much."""
    return replace(plain, error=lambda config: 3.0 * plain.error(config))


def _outliers(plain: Surface, draw: random.Random) -> Surface:
    """Here and there a config lies far off its neighbours: Student's t with three degrees of freedom, in points."""
    salt = draw.random()

    def utilisation(config: Config) -> float:
        own = _own(config, salt)
        return _percent(plain.utilisation(config) + own.gauss(0.0, 1.0) / math.sqrt(own.gammavariate(1.5, 2.0 / 3.0)))

    return replace(plain, utilisation=utilisation)


def _flat(plain: Surface, draw: random.Random) -> Surface:
    """Everything lies within four points."""
    level = draw.uniform(60.0, 95.0)
    return replace(plain, utilisation=lambda config: level + 0.04 * (plain.utilisation(config) - 50.0))


def _falling(plain: Surface, draw: random.Random) -> Surface:
    """More environments are worse, by far."""
    fall = draw.uniform(60.0, 120.0)
    return replace(
        plain, utilisation=lambda config: _percent(plain.utilisation(config) - fall * _height(plain, config))
    )


def _waves(plain: Surface, draw: random.Random) -> Surface:
    """Environments run in waves over a card's processors, and the last wave is seldom full."""
    processors = draw.choice(PROCESSORS)

    def utilisation(config: Config) -> float:
        waves = float(config[LADDER]) / processors
        return _percent(plain.utilisation(config) * (0.75 + 0.25 * waves / math.ceil(waves)))

    return replace(plain, utilisation=utilisation)


def _throughput(plain: Surface, draw: random.Random) -> Surface:
    """The objective is samples per second, which spans orders of magnitude."""
    half, rate = plain.top * draw.uniform(0.05, 0.5), draw.uniform(50.0, 200.0)

    def samples_per_s(config: Config) -> float:
        rung = float(config[LADDER])
        return rate * rung / (1.0 + rung / half) * (0.5 + plain.utilisation(config) / 200.0)

    return replace(
        plain, utilisation=samples_per_s, error=lambda config: 0.012 * samples_per_s(config) * plain.error(config)
    )


def _curved(plain: Surface, draw: random.Random) -> Surface:
    """Memory grows faster than the environments."""
    power = draw.uniform(0.1, 0.35)
    return replace(plain, mib=lambda config: plain.mib(config) * (float(config[LADDER]) / plain.top) ** power)


def _costly(plain: Surface, draw: random.Random) -> Surface:
    """Most updates take several times as long as fewer."""
    most, times = max(plain.space["update_epochs"].values), draw.uniform(3.0, 6.0)
    return replace(
        plain, run_s=lambda config: plain.run_s(config) * (times if config.get("update_epochs") == most else 1.0)
    )


def _crashing(plain: Surface, draw: random.Random) -> Surface:
    """One config in eight crashes."""
    salt = draw.random()
    return replace(plain, crashes=lambda config: _own(config, salt).random() < 1.0 / 8.0)


def _height(plain: Surface, config: Config) -> float:
    """Give where on the ladder a config stands, from 0 to 1."""
    bottom = float(plain.space[LADDER].values[0])
    return math.log(float(config[LADDER]) / bottom) / math.log(plain.top / bottom)


def _own(config: Config, salt: float) -> random.Random:
    return random.Random(f"{salt} {sorted(config.items())}")


def _percent(value: float) -> float:
    return min(99.0, max(1.0, value))


TWISTS = MappingProxyType[str, Callable[[Surface, random.Random], Surface]](
    {
        "noisy": _noisy,
        "outliers": _outliers,
        "flat": _flat,
        "falling": _falling,
        "waves": _waves,
        "throughput": _throughput,
        "curved": _curved,
        "costly": _costly,
        "crashing": _crashing,
    }
)
"""What is changed, by name."""
