"""The search space: which parameters there are, when each one counts, and what a config looks like."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

Value = int | float | str
Config = dict[str, Value]

LADDER = "num_envs"
"""The parameter whose values are the rungs: environments per device."""

VARIANT = "agent_variant"
"""The parameter that says how the agent file is changed."""

DEFAULT = "default"
"""The variant that changes nothing."""


def doublings(first: int, last: int) -> tuple[int, ...]:
    """Give `first`, twice as much, and so on up to `last`, which is always among them."""
    return (*itertools.takewhile(lambda rung: rung < last, (first << power for power in itertools.count())), last)


def config_digest(config: Mapping[str, Value]) -> str:
    """Name a config by 12 hexadecimal digits; equal configs have equal digests whatever their order."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """Holds when `parameter` has one of `values` or, where `at_least` is given, is no less than that."""

    parameter: str
    values: tuple[Value, ...] = ()
    at_least: float | None = None

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"{self.parameter} of {self.at_least:g} or more"
        return f"{self.parameter}={' or '.join(map(str, self.values))}"

    def holds(self, config: Mapping[str, Value]) -> bool:
        """Tell whether `config` has the parameter with a value that this condition asks for."""
        value = config.get(self.parameter)
        if value is None:
            return False
        if self.at_least is not None:
            return not isinstance(value, str) and value >= self.at_least
        return value in self.values


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A parameter with a finite list of values; those of a ladder and of a range run from small to large."""

    name: str
    values: tuple[Value, ...]
    is_range: bool = False
    """Whether the values are evenly spaced integers, so that a sampler may treat them as numbers."""
    bounds: tuple[int, int] | None = None
    """Of an `auto` ladder: its smallest rung and the largest it may have; the values are the rungs as far as known."""
    conditions: tuple[Condition, ...] = ()

    def nearest(self, value: Value) -> Value:
        """Give the value itself where it is one of the parameter's, else the rung that is nearest in proportion."""
        if value in self.values:
            return value
        return min(self.values, key=lambda rung: abs(math.log(float(rung) / float(value))))

    def up_to(self, most: int) -> "Parameter":
        """Leave out the rungs above `most`, which is no less than the smallest; an `auto` ladder then ends there."""
        if self.bounds is None:
            return replace(self, values=tuple(rung for rung in self.values if isinstance(rung, str) or rung <= most))
        first, last = self.bounds
        rungs = dict.fromkeys(min(int(rung), most) for rung in self.values)
        return replace(self, values=tuple(rungs), bounds=(first, min(last, most)))

    def active(self, config: Mapping[str, Value]) -> bool:
        """Tell whether the parameter counts beside the values already in `config`."""
        return all(condition.holds(config) for condition in self.conditions)


def every(config: Config) -> bool:
    """Hold any config."""
    return True


@dataclass(frozen=True, slots=True)
class Space:
    """Parameters in an order in which each one follows those that its conditions name."""

    parameters: tuple[Parameter, ...]
    holds: Callable[[Config], bool] = every
    """Tells which configs can be measured; the others, such as those that a recorded table lacks, are left out."""

    def __contains__(self, config: Mapping[str, Value]) -> bool:
        """Tell whether `config` has a value for each active parameter and nothing else, and is not left out."""
        try:
            whole = dict(config) == self.draw(lambda parameter: config[parameter.name]) and all(
                config[parameter.name] in parameter.values for parameter in self.parameters if parameter.name in config
            )
        except KeyError:
            return False
        return whole and self.holds(dict(config))

    @property
    def idle(self) -> dict[str, Condition]:
        """The parameters that never count → the condition which no value meets; rungs yet to be made may meet any."""
        made = {one.name: one.values for one in self.parameters if one.bounds is None}
        return {
            one.name: condition
            for one in self.parameters
            for condition in one.conditions
            if condition.parameter in made
            and not any(condition.holds({condition.parameter: value}) for value in made[condition.parameter])
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters, active or not."""
        return tuple(parameter.name for parameter in self.parameters)

    def values(self, name: str) -> tuple[Value, ...]:
        """Give the values of the parameter called `name`, empty when there is none."""
        return next((parameter.values for parameter in self.parameters if parameter.name == name), ())

    @property
    def auto_bounds(self) -> tuple[int, int] | None:
        """The smallest rung of an `auto` ladder and the largest it may have; None where the ladder is written."""
        return next((parameter.bounds for parameter in self.parameters if parameter.name == LADDER), None)

    def with_rungs(self, rungs: Sequence[int]) -> "Space":
        """Give the space with these rungs."""
        return self._with_ladder(lambda ladder: replace(ladder, values=tuple(rungs)))

    def up_to(self, most: int) -> "Space":
        """Give the space without the rungs above `most`, which is no less than the smallest."""
        return self._with_ladder(lambda ladder: ladder.up_to(most))

    def _with_ladder(self, changed: Callable[[Parameter], Parameter]) -> "Space":
        return replace(self, parameters=tuple(changed(one) if one.name == LADDER else one for one in self.parameters))

    def nearest(self, config: Config) -> Config:
        """Give a config of another case as this one may have it: on an `auto` ladder, at the nearest rung."""
        if self.auto_bounds is None or LADDER not in config:
            return config
        ladder = next(parameter for parameter in self.parameters if parameter.name == LADDER)
        return {**config, LADDER: ladder.nearest(config[LADDER])}

    def draw(self, pick: Callable[[Parameter], Value]) -> Config:
        """Make a config by asking `pick` for each parameter that is active, in order."""
        config: Config = {}
        for parameter in self.parameters:
            if parameter.active(config):
                config[parameter.name] = pick(parameter)
        return config

    def configs(self) -> Iterator[Config]:
        """Walk through every distinct config, the last parameter fastest."""
        return filter(self.holds, self._extend({}, self.parameters))

    def _extend(self, config: Config, rest: Sequence[Parameter]) -> Iterator[Config]:
        if not rest:
            yield config
            return
        head, *tail = rest
        if not head.active(config):
            yield from self._extend(config, tail)
            return
        for value in head.values:
            yield from self._extend({**config, head.name: value}, tail)

    def restricted_to(self, accepted: Iterable[str]) -> "Space":
        """Leave out the parameters that nobody reads, and with them the parameters that hang on those."""
        kept: list[Parameter] = []
        names = set(accepted)
        for parameter in self.parameters:
            known = {earlier.name for earlier in kept}
            if parameter.name in names and all(condition.parameter in known for condition in parameter.conditions):
                kept.append(parameter)
        return replace(self, parameters=tuple(kept))

    def seeds(self, per_variant: int) -> list[Config]:
        """Choose the configs to probe first: for each variant in turn, rungs spread evenly over its ladder.

        The largest rung comes first, then the smallest, then the gaps are halved, so that a search learns early both
        the best that fits and where memory ends. Parameters other than rung and variant take their first value.
        """
        ladder = self.values(LADDER)
        rungs = [ladder[index] for index in _halving(len(ladder), per_variant)] or [None]
        variants = self.values(VARIANT) or (None,)
        seeds = [self._first(rung, variant) for rung, variant in itertools.product(rungs, variants)]
        return [config for position, config in enumerate(seeds) if config not in seeds[:position]]

    def default_at(self, rung: Value | None) -> Config:
        """Give the config that others of a rung are compared with: its default variant, as `seeds` chooses it."""
        return self._first(rung, DEFAULT)

    def defaults(self) -> list[Config]:
        """Give the default configs of all rungs."""
        return [self.default_at(rung) for rung in self.values(LADDER) or (None,)]

    def _first(self, rung: Value | None, variant: Value | None) -> Config:
        chosen = {LADDER: rung, VARIANT: variant}
        return self.draw(lambda parameter: chosen.get(parameter.name) or parameter.values[0])

    def describe(self) -> dict[str, object]:
        """Give the space as plain JSON values, for comparing with the one a study was started with.

        Of an `auto` ladder only the bounds count: its rungs are the study's own.
        """
        return {
            parameter.name: {
                **({"auto": list(parameter.bounds)} if parameter.bounds else {"values": list(parameter.values)}),
                "when": {
                    condition.parameter: list(condition.values) if condition.at_least is None else condition.at_least
                    for condition in parameter.conditions
                },
            }
            for parameter in self.parameters
        }


def _halving(count: int, wanted: int) -> list[int]:
    """Choose `wanted` of the indices 0 … count-1: the last, the first, then always the middle of the widest gap."""
    chosen = [index for index in dict.fromkeys((count - 1, 0)) if 0 <= index < count][:wanted]
    while 2 <= len(chosen) < min(count, wanted):
        ordered = sorted(chosen)
        low, high = max(itertools.pairwise(ordered), key=lambda pair: (pair[1] - pair[0], pair[1]))
        chosen.append((low + high) // 2)
    return chosen
