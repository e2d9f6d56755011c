"""Invented tables: a search is developed on them without fitting it to recorded tables, which then check it.

No number here was measured. Each character is a family of surfaces, and a seed draws one surface. The seed decides the
ladder and parameters, how utilisation saturates, where memory or time ends, how start-up grows, and how large the noise
is.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from benchmarks.search.searching import LIMITS, invented_header
from tuner.export.recorded_table import Recorded, Table
from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.study.space import LADDER, VARIANT, Config, Value
from tuner.study.spec import ParameterSpec

CHARACTERS = ("plateau", "interior", "rugged", "edge", "slow", "crossed", "climb")
CARD_MIB = 80_000.0
_LADDERS = (
    tuple(2**power for power in range(5, 17)),
    tuple(2**power for power in range(7, 15)),
    (256, 512, 1024, 2048, 4096, 8192, 16384, 65536),
    (32, 36, 38, 39, 40, 44, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """An invented trainer on an invented machine."""

    space: Mapping[str, ParameterSpec]
    utilisation: Callable[[Config], float]
    mib: Callable[[Config], float]
    ready_s: Callable[[Config], float]
    run_s: Callable[[Config], float]
    error: Callable[[Config], float]
    crashes: Callable[[Config], bool] = lambda _: False
    retries: Callable[[Config], int] = lambda _: 0
    """The retries of its allocator. A config with retries may not be the best."""
    recorded: Callable[[Config], bool] = lambda _: True

    @property
    def top(self) -> float:
        """The largest rung."""
        return float(self.space[LADDER].values[-1])


@cache
def table(character: str, seed: int) -> Table:
    """Return an invented table of this character, with every config of its space."""
    return tabulated(surface(character, seed), f"invented_{character}_{seed}")


@cache
def twisted(twist: str, seed: int) -> Table:
    """Return an invented table with one thing changed that no search was developed on; the characters take turns."""
    plain = surface(CHARACTERS[seed % len(CHARACTERS)], seed)
    return tabulated(TWISTS[twist](plain, random.Random(f"{twist} {seed}")), f"invented_{twist}_{seed}")


def surface(character: str, seed: int) -> Surface:
    """Invent a trainer of this character."""
    return _drawn(character, random.Random(f"{character} {seed}"))


def tabulated(surface: Surface, case: str) -> Table:
    """Return a surface as the table of a case."""
    devices = tuple(Device(name=f"cuda:{card}", model="invented", mem_total_mib=CARD_MIB) for card in range(2))
    header = invented_header("invented", case, surface.space, devices, objective="min_avg_util", unit="%")
    empty = Table(header, [])
    return Table(header, [_row(surface, config) for config in filter(surface.recorded, empty.space.configs())])


def _row(surface: Surface, config: Config) -> Recorded:
    mib, ready_s, run_s = surface.mib(config), surface.ready_s(config), surface.run_s(config)
    failure, devices = None, ()
    if ready_s > LIMITS.start_up_silence_seconds:
        failure = Failure(kind=FailureKind.TOO_SLOW, rule="invented", detail="")
        ready_s, run_s = None, LIMITS.start_up_silence_seconds
    elif mib > CARD_MIB:
        failure = Failure(kind=FailureKind.GPU_OOM, rule="invented", detail="", overshoot_mib=mib - CARD_MIB)
        ready_s, run_s = None, ready_s * min(CARD_MIB / mib, 1.0) + 3.0
    elif surface.crashes(config):
        failure = Failure(kind=FailureKind.CRASH, rule="invented", detail="")
        ready_s, run_s = None, ready_s + 3.0
    else:
        devices = (
            DeviceSummary(
                device="cuda:0",
                source="nvml",
                util_mean_pct=surface.utilisation(config),
                util_se_pct=surface.error(config),
                mem_peak_mib=mib,
                mem_total_mib=CARD_MIB,
            ),
        )
    result = ProbeResult(
        config=config,
        plan_digest="",
        started_at="",
        total_s=(ready_s or 0.0) + run_s,
        start_up_s=None if failure else (ready_s or 0.0) + run_s / 4,
        window_s=None if failure else run_s / 2,
        trained_s=None if failure else run_s / 2,
        iterations=7,
        alloc_retries=surface.retries(config),
        devices=devices,
        failure=failure,
        warm=True,
        ready_s=ready_s,
    )
    return Recorded(result=result, session_key=str(config[LADDER]))


def _drawn(character: str, draw: random.Random) -> Surface:
    space = _space(draw)
    ladder = space[LADDER].values
    bottom, top = float(ladder[0]), float(ladder[-1])
    half = top * draw.uniform(0.02, 0.3) * {"edge": 2.0, "plateau": 0.3}.get(character, 1.0)
    steepness, peak = draw.uniform(0.5, 1.0), draw.uniform(60.0, 98.0)
    effects = {(name, value): draw.gauss(0.0, 0.15) for name, spec in space.items() for value in spec.values}
    effects[VARIANT, "hiutil"] += 0.4
    pairs = {key: draw.gauss(0.0, 2.0) for key in _pairs(space)}
    summit, descent = draw.uniform(0.35, 0.75) * len(ladder), draw.uniform(0.25, 0.7)
    own = draw.uniform(0.2, 0.8) + 0.8 * (character == "rugged")
    noise, salt = draw.uniform(0.4, 1.2), draw.random()
    base_mib, growth = draw.uniform(1_500.0, 6_000.0), draw.uniform(0.05, 0.35)
    ends_at = {"edge": draw.uniform(0.2, 0.9), "slow": 4.0, "plateau": draw.uniform(0.4, 3.0)}.get(
        character, draw.uniform(0.3, 2.0)
    )
    if character == "climb":
        ends_at = draw.uniform(0.3, 1.2)
    per_env_mib = (CARD_MIB - base_mib) / (ends_at * top)
    slowest_s = {"slow": draw.uniform(350.0, 900.0)}.get(character, draw.uniform(40.0, 250.0))
    tilts = {item: draw.gauss(0.0, 8.0) for item in effects}
    foot, rise = draw.uniform(0.2, 0.6), draw.uniform(1.0, 2.0)
    longest_s = draw.uniform(30.0, 60.0) if character == "climb" else 14.0

    def utilisation(config: Config) -> float:
        own_draw = random.Random(f"{salt} {sorted(config.items())}")
        push = sum(effects[item] for item in config.items() if item[0] != LADDER)
        load = (float(config[LADDER]) * math.exp(2.0 * push) / half) ** steepness
        level = peak * (1.0 - math.exp(-load) if character == "plateau" else load / (1.0 + load))
        height = math.log(float(config[LADDER]) / bottom) / math.log(top / bottom)
        if character == "climb":
            level = peak * (foot + (1.0 - foot) * height**rise) + 12.0 * push
        if character == "crossed":
            level += (height - 0.5) * sum(tilts[item] for item in config.items() if item[0] != LADDER)
            level += 2.0 * sum(pairs[pair] for pair in _pairs_of(config) if LADDER not in (pair[0][0], pair[1][0]))
        if character == "interior":
            level -= descent * max(0.0, ladder.index(config[LADDER]) - summit) ** 2
        if character == "rugged":
            level += sum(pairs[one, other] for one, other in _pairs_of(config))
        return min(99.0, max(1.0, level + own_draw.gauss(0.0, own)))

    def heavy(config: Config) -> float:
        """Return how much more memory a config's agent needs than the smallest, by minibatch and variant."""
        return 1.0 + growth * (config[VARIANT] == "hiutil") + 0.1 * growth * float(config.get("batch_size", 0))

    return Surface(
        space=space,
        utilisation=utilisation,
        mib=lambda config: base_mib + per_env_mib * float(config[LADDER]) * heavy(config),
        ready_s=lambda config: 22.0 + slowest_s * float(config[LADDER]) / top,
        run_s=lambda config: (
            (6.0 + longest_s * (float(config[LADDER]) / top) ** 0.7) * (1.0 + (config[VARIANT] == "hiutil"))
        ),
        error=lambda config: noise * random.Random(f"error {salt} {sorted(config.items())}").uniform(0.7, 1.3),
    )


def _space(draw: random.Random) -> dict[str, ParameterSpec]:
    space = {
        LADDER: ParameterSpec(ladder=draw.choice(_LADDERS)),
        VARIANT: ParameterSpec(choices=("hiutil", "default")),
        "update_epochs": ParameterSpec(choices=draw.choice(((20, 30), (20, 30, 40))), when={VARIANT: "hiutil"}),
        "batch_size": ParameterSpec(choices=(2, 1), when={VARIANT: "hiutil"}),
    }
    if draw.random() < 0.5:
        space["num_workers"] = ParameterSpec(choices=(0, 2, 4))
        space["prefetch_factor"] = ParameterSpec.model_validate(
            {"choices": [2, 4], "when": {"num_workers": {"min": 1}}}
        )
    return space


def _pairs(space: Mapping[str, ParameterSpec]) -> list[tuple[tuple[str, Value], tuple[str, Value]]]:
    items = [(name, value) for name, spec in space.items() for value in spec.values]
    return [(one, other) for one in items for other in items if one[0] < other[0]]


def _pairs_of(config: Config) -> list[tuple[tuple[str, Value], tuple[str, Value]]]:
    items = sorted(config.items(), key=lambda item: item[0])
    return [(one, other) for place, one in enumerate(items) for other in items[place + 1 :]]


def _noisy(plain: Surface, _: random.Random) -> Surface:
    """Measurements scatter three times as much."""
    return replace(plain, error=lambda config: 3.0 * plain.error(config))


def _outliers(plain: Surface, draw: random.Random) -> Surface:
    """Here and there a config lies far off its neighbours: Student's t with three degrees of freedom, in points."""
    salt = draw.random()

    def utilisation(config: Config) -> float:
        own = random.Random(f"{salt} {sorted(config.items())}")
        points = own.gauss(0.0, 1.0) / math.sqrt(own.gammavariate(1.5, 2.0 / 3.0))
        return min(99.0, max(1.0, plain.utilisation(config) + points))

    return replace(plain, utilisation=utilisation)


def _flat(plain: Surface, draw: random.Random) -> Surface:
    """Everything lies within four points."""
    level = draw.uniform(60.0, 95.0)
    return replace(plain, utilisation=lambda config: level + 0.04 * (plain.utilisation(config) - 50.0))


TWISTS = MappingProxyType[str, Callable[[Surface, random.Random], Surface]](
    {"noisy": _noisy, "outliers": _outliers, "flat": _flat}
)
"""The twists by name."""
