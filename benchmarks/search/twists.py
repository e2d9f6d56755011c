"""Invented tables on which no search was developed: surfaces of every character with one thing changed.

The changes are what a real machine may do and `surfaces` leaves out. The seed draws the surface and the twist; the
characters take turns.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from types import MappingProxyType

from benchmarks.search.surfaces import CARD_MIB, CHARACTERS, Surface, surface, tabulated
from tuner.export.recorded_table import Table
from tuner.study.space import LADDER, VARIANT, Config
from tuner.study.spec import ParameterSpec

PROCESSORS = (108, 128, 132)
"""The number of processors of a card. Equal work runs on them in waves, side by side."""
_LOADING = {
    "num_workers": ParameterSpec(choices=(0, 1, 2, 4, 8, 16)),
    "prefetch_factor": ParameterSpec.model_validate({"choices": [1, 2, 4, 8], "when": {"num_workers": {"min": 1}}}),
}
_BACKENDS = {"backend": ParameterSpec(choices=("a", "b", "c", "d"))}
_NUMBERS = {"depth": ParameterSpec(choices=(3, 5, 7)), "chunk": ParameterSpec(choices=(1, 2, 4))}


@cache
def table(twist: str, seed: int) -> Table:
    """Return an invented table with this twist."""
    drawn = surface(CHARACTERS[seed % len(CHARACTERS)], seed)
    return tabulated(TWISTS[twist](drawn, random.Random(f"{twist} {seed}")), f"invented_{twist}_{seed}")


def _noisy(plain: Surface, _: random.Random) -> Surface:
    """Measurements scatter three times as much."""
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


def _cliff(plain: Surface, draw: random.Random) -> Surface:
    """Right above some rung everything gets worse at once."""
    edge, left = plain.top ** draw.uniform(0.4, 0.95), draw.uniform(0.5, 0.85)
    return replace(
        plain, utilisation=lambda config: plain.utilisation(config) * (left if float(config[LADDER]) > edge else 1.0)
    )


def _starved(plain: Surface, draw: random.Random) -> Surface:
    """One variant needs several times the memory of the other."""
    hungry, times = draw.choice(("hiutil", "default")), draw.uniform(3.0, 10.0)
    return replace(plain, mib=lambda config: plain.mib(config) * (times if config[VARIANT] == hungry else 1.0))


def _uneven(plain: Surface, draw: random.Random) -> Surface:
    """Measurements scatter several times as much at the lowest rung as at the highest."""
    times = draw.uniform(3.0, 8.0)
    return replace(plain, error=lambda config: plain.error(config) * (times + (1.0 - times) * _height(plain, config)))


def _saturated(plain: Surface, draw: random.Random) -> Surface:
    """Many configs keep a card busy all the time."""
    times = draw.uniform(1.2, 2.0)
    return replace(plain, utilisation=lambda config: min(100.0, times * plain.utilisation(config)))


def _retrying(plain: Surface, draw: random.Random) -> Surface:
    """Above some share of the memory the allocator has to retry. A config with retries may not be the best."""
    most_mib = draw.uniform(0.2, 0.8) * CARD_MIB
    return replace(plain, retries=lambda config: int(plain.mib(config) > most_mib))


def _holes(plain: Surface, draw: random.Random) -> Surface:
    """A third of the configs is not recorded."""
    salt = draw.random()
    return replace(plain, recorded=lambda config: _own(config, salt).random() > 1.0 / 3.0)


def _few(plain: Surface, draw: random.Random) -> Surface:
    """The ladder has three rungs, in any order."""
    rungs = draw.sample(plain.space[LADDER].values, 3)
    return replace(plain, space={**plain.space, LADDER: ParameterSpec(ladder=tuple(map(int, rungs)))})


def _fed(plain: Surface, draw: random.Random) -> Surface:
    """Loading data may be the bottleneck: workers and what each prefetches, up to the number of cores."""
    need, cores, late = draw.uniform(1.5, 10.0), draw.choice((4, 8, 12)), draw.uniform(0.3, 1.5)

    def fed(config: Config, level: float) -> float:
        workers = int(config["num_workers"])
        feed = workers * (1.0 - math.exp(-float(config.get("prefetch_factor", 0)) / late)) or 0.6
        return level * min(1.0, feed / need) ** 0.7 - 10.0 * max(0, workers - cores) / cores

    return _wider(plain, _LOADING, fed, draw)


def _backend(plain: Surface, draw: random.Random) -> Surface:
    """One of four backends is better by far."""
    gains = {value: draw.gauss(0.0, 1.5) for value in _BACKENDS["backend"].values}
    gains[draw.choice(_BACKENDS["backend"].values)] += draw.uniform(8.0, 25.0)
    return _wider(plain, _BACKENDS, lambda config, level: 0.75 * level + gains[config["backend"]], draw)


def _wide(plain: Surface, draw: random.Random) -> Surface:
    """Two more numbers, whose values have effects alone and together: one to four thousand configs."""
    gains = {value: draw.gauss(0.0, 3.0) for spec in _NUMBERS.values() for value in spec.values}
    pairs = {pair: draw.gauss(0.0, 1.5) for pair in product(*(spec.values for spec in _NUMBERS.values()))}

    def widened(config: Config, level: float) -> float:
        values = tuple(config[name] for name in _NUMBERS)
        return level + sum(gains[value] for value in values) + pairs[values]

    return _wider(plain, _NUMBERS, widened, draw)


def _wider(
    plain: Surface,
    more: Mapping[str, ParameterSpec],
    level: Callable[[Config, float], float],
    draw: random.Random,
) -> Surface:
    """Add or replace parameters. `level` turns the plain surface's value and the whole config into the new value."""
    salt = draw.random()

    def utilisation(config: Config) -> float:
        rest = {name: value for name, value in config.items() if name not in more}
        return _percent(level(config, plain.utilisation(rest)) + _own(config, salt).gauss(0.0, 0.4))

    return replace(plain, space={**plain.space, **more}, utilisation=utilisation)


def _height(plain: Surface, config: Config) -> float:
    """Return the height of a config on the ladder, from 0 to 1."""
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
        "cliff": _cliff,
        "starved": _starved,
        "uneven": _uneven,
        "saturated": _saturated,
        "retrying": _retrying,
        "holes": _holes,
        "few": _few,
        "fed": _fed,
        "backend": _backend,
        "wide": _wide,
    }
)
"""The twists by name."""
