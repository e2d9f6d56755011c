"""The search space: its parameters and conditions, the configs, and what identifies a config.

A config has a value for each parameter that is in use. One parameter whose larger values need more memory, such as the
number of environments, may have the role of the ladder: its values are the rungs. A ladder that a study file writes as
`auto` gets its rungs only after some probes have shown how much memory they need.
"""

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tuner.errors import StudyError


def halving(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` different indices of a list with `count` items, spread evenly over the list.

    The last index comes first, then index 0, then always the middle of the widest gap. Of equally wide gaps, the last
    is halved first. Of 9 indices, the first five are 8, 0, 4, 6 and 2.
    """
    if count < 2:
        return list(range(count))[:wanted]
    chosen = [count - 1, 0]
    while len(chosen) < min(count, wanted):
        gaps = itertools.pairwise(sorted(chosen))
        low, high = max(gaps, key=lambda gap: (gap[1] - gap[0], gap[1]))
        chosen.append((low + high) // 2)
    return chosen[:wanted]


Item = TypeVar("Item")
Key = TypeVar("Key")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return key → its items. Keys are in the order of their first items, and the items of a key in theirs."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def doublings(first: int, last: int) -> tuple[int, ...]:
    """Return the numbers `first`, twice `first`, and so on below `last`, and `last` itself at the end."""
    doubled = (first << power for power in itertools.count())
    return (*itertools.takewhile(lambda rung: rung < last, doubled), last)


Value = bool | int | float | str
Config = dict[str, Value]

LADDER = "num_envs"
"""The parameter that has the role of the ladder where a study gives the role to none: environments per device."""
VARIANT = "agent_variant"
"""The name of the parameter that selects how the agent file is changed."""
DEFAULT = "default"
"""The variant that changes nothing."""
PATIENCE = "pruner_patience"
"""The name of the parameter that only the pruner reads. Configs that differ in nothing else launch the same probe."""
NODES = "nodes"
"""The name of the parameter that says on how many nodes a trial runs, with the same number of devices in all."""

_DRAWS = 200_000
"""The most random draws in a search for configs that can be measured; they take some seconds."""

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def read_number(text: str) -> int | float | None:
    """Return a number that is written as `50`, `.5` or `1e-4`; None for any other text, also for `050`.

    A whole number of more than 300 digits becomes infinite.
    """
    if not re.fullmatch(r"[+-]?(?:0|[1-9][0-9]*|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", text):
        return None
    return int(text) if re.fullmatch("[+-]?[0-9]{1,300}", text) else float(text)


def value_text(value: object) -> str:
    """Return a value as a study file writes it: `true` and `false`, otherwise the usual text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_digest(config: Mapping[str, Value]) -> str:
    """Return 12 hexadecimal digits that identify a config. The order of its parameters does not matter."""
    return hashlib.sha256(_CANONICAL.encode(config).encode()).hexdigest()[:12]


def rung_of(config: Mapping[str, Value], ladder: str | None) -> int | None:
    """Return the rung of a config; None where there is no ladder."""
    rung = None if ladder is None else config.get(ladder)
    return rung if isinstance(rung, int) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """A condition on a config: `parameter` has one of `values`, or is at least `at_least` where that is given."""

    parameter: str
    values: tuple[Value, ...] = ()
    at_least: float | None = None
    """The smallest number that satisfies the condition; None where `values` decide."""

    def __str__(self) -> str:
        """Return the condition in words, for a message."""
        if self.at_least is not None:
            return f"{self.parameter} of {self.at_least:g} or more"
        return f"{self.parameter}={' or '.join(map(value_text, self.values))}"

    def holds(self, config: Mapping[str, Value]) -> bool:
        """Return whether `config` has the parameter, with a value that satisfies this condition."""
        value = config.get(self.parameter)
        if value is None:
            return False
        if self.at_least is not None:
            return not isinstance(value, str) and value >= self.at_least
        return value in self.values


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A parameter with a finite list of values. The values of a ladder or a range are sorted."""

    name: str
    values: tuple[Value, ...]
    is_range: bool = False
    """Whether the values are evenly spaced numbers, so that a sampler may treat them as numbers."""
    is_log: bool = False
    """Whether it is the logarithms of the values of a range that are evenly spaced."""
    is_ladder: bool | None = None
    """Whether it is the ladder. None becomes whether it is called `num_envs`."""
    bounds: tuple[int, int] | None = None
    """The smallest and the largest rung that an `auto` ladder may get; None for other parameters.

    The `values` of an `auto` ladder are the rungs that are known so far.
    """
    conditions: tuple[Condition, ...] = ()
    grown: tuple[Value, ...] = ()
    """The last of the values: each is searched only once the largest value before it is the best."""
    own: Value | None = None
    """The user's own value: the first of the `choices` that a study file lists, or its `own`; None where unknown."""

    def __post_init__(self) -> None:
        """Make a parameter called `num_envs` the ladder where nothing else is said."""
        if self.is_ladder is None:
            object.__setattr__(self, "is_ladder", self.name == LADDER)

    def nearest(self, value: Value) -> Value:
        """Return the value of the parameter that is nearest to a given value, which is a number or one of the values.

        In a range, distances are differences. In a logarithmic range and on a ladder, they are differences of
        logarithms.
        """
        if value in self.values:
            return value
        if self.is_range and not self.is_log:
            return min(self.values, key=lambda number: abs(float(number) - float(value)))
        return min(self.values, key=lambda rung: abs(math.log(float(rung) / float(value))))

    def up_to(self, most: int) -> "Parameter":
        """Return the parameter without the numbers above `most`, which must be at least the smallest number.

        An `auto` ladder, which has `bounds`, may have any rung: its larger rungs and its upper bound become `most`.
        """
        if self.bounds is None:
            return replace(self, values=tuple(rung for rung in self.values if isinstance(rung, str) or rung <= most))
        first, last = self.bounds
        rungs = dict.fromkeys(min(int(rung), most) for rung in self.values)
        return replace(self, values=tuple(rungs), bounds=(first, min(last, most)))

    def active(self, config: Mapping[str, Value]) -> bool:
        """Return whether `config` satisfies all conditions of the parameter, so that it has a value for it."""
        return all(condition.holds(config) for condition in self.conditions)


def allow_all(config: Config) -> bool:
    """Return True for any config: the `holds` of a space whose configs can all be measured."""
    return True


@dataclass(frozen=True, slots=True)
class Space:
    """The parameters of a search. Each parameter follows the parameters that its conditions name."""

    parameters: tuple[Parameter, ...]
    holds: Callable[[Config], bool] = allow_all
    """Returns whether a config can be measured. The space leaves out all others.

    For example, a replay leaves out the configs that its recorded table does not contain.
    """

    @classmethod
    def of(cls, **values: Iterable[Value]) -> "Space":
        """Return the space of some parameters, each with its values: `Space.of(num_workers=[0, 2, 4])`.

        A `range` of numbers is a range, and the values of `num_envs` are a ladder. Each value is a number, a text, True
        or False; numbers of NumPy will do. Raises StudyError for anything else, such as a distribution of Optuna.
        """
        parameters: list[Parameter] = []
        for name, given in values.items():
            has_one_dimension = getattr(given, "ndim", 1) == 1  # of an array of NumPy
            is_listed = isinstance(given, Iterable) and not isinstance(given, str) and has_one_dimension
            listed: tuple[Any, ...] = tuple(given) if is_listed else ()
            # NumPy's numbers become Python's
            plain = [value.item() if hasattr(value, "item") else value for value in listed]
            if not plain or not all(isinstance(value, bool | int | float | str) for value in plain):
                raise StudyError(
                    f"{name}={given!r} lists no values; write each of them, as in [0, 2, 4], range(1, 9), "
                    '["bf16", "fp32"] or, for a logarithmic float, numpy.geomspace(1e-5, 1e-1, 13)'
                )
            if name == LADDER:
                if texts := [value for value in plain if isinstance(value, str)]:
                    raise StudyError(f"{LADDER}: {texts[0]!r} is no number, and the rungs of a ladder are numbers")
                plain.sort()
            is_range = isinstance(given, range) and name != LADDER
            parameters.append(Parameter(name=name, values=tuple(plain), is_range=is_range))
        return cls(tuple(parameters))

    def __contains__(self, config: Mapping[str, Value]) -> bool:
        """Return whether a config has a value of each active parameter, no other values, and can be measured."""
        try:
            of_active = self.config_of(lambda parameter: config[parameter.name])
        except KeyError:  # an active parameter has no value
            return False
        if of_active != dict(config):
            return False
        are_known = all(config[part.name] in part.values for part in self.parameters if part.name in config)
        return are_known and self.holds(dict(config))

    @property
    def without_effect(self) -> dict[str, Condition]:
        """Each parameter without effect → its condition, which no value satisfies: a mistake in the study file.

        A condition on an `auto` ladder is never among them, because rungs that are not known yet may satisfy it.
        """
        values_of = {parameter.name: parameter.values for parameter in self.parameters if parameter.bounds is None}
        without_effect: dict[str, Condition] = {}
        for parameter in self.parameters:
            for condition in parameter.conditions:
                name = condition.parameter
                if name in values_of and not any(condition.holds({name: value}) for value in values_of[name]):
                    without_effect[parameter.name] = condition
        return without_effect

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters, whether active or not."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def combinations(self) -> int:
        """The number of combinations of all values, whether conditions and rules allow them or not."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def values(self, name: str) -> tuple[Value, ...]:
        """Return the values of the parameter called `name`; none where there is no such parameter."""
        return next((parameter.values for parameter in self.parameters if parameter.name == name), ())

    @property
    def ladder(self) -> str | None:
        """The name of the parameter whose values are the rungs; None where there is none."""
        return next((parameter.name for parameter in self.parameters if parameter.is_ladder), None)

    @property
    def rungs(self) -> tuple[Value, ...]:
        """The rungs of the ladder; none where there is no ladder."""
        return next((parameter.values for parameter in self.parameters if parameter.is_ladder), ())

    def rung(self, config: Mapping[str, Value]) -> Value | None:
        """Return the rung of a config; None where there is no ladder."""
        return None if self.ladder is None else config.get(self.ladder)

    @property
    def auto_bounds(self) -> tuple[int, int] | None:
        """The smallest and the largest rung that an `auto` ladder may have; None where there is no such ladder."""
        return next((parameter.bounds for parameter in self.parameters if parameter.is_ladder), None)

    @property
    def own(self) -> Config | None:
        """The config of the user's own values, which is probed first; None unless all parameters have an own value.

        None also where that config is not in the space, because a rule forbids it.
        """
        if any(parameter.own is None for parameter in self.parameters):
            return None
        config = self.config_of(lambda parameter: parameter.values[0] if parameter.own is None else parameter.own)
        return config if config in self else None

    def with_rungs(self, rungs: Sequence[int]) -> "Space":
        """Return the space whose ladder has these rungs."""
        return self._with(self.ladder, lambda ladder: replace(ladder, values=tuple(rungs)))

    def up_to(self, most: int) -> "Space":
        """Return the space without values of `num_envs` above `most`, which must be at least its smallest value."""
        return self._with(LADDER, lambda environments: environments.up_to(most))

    def _with(self, name: str | None, change: Callable[[Parameter], Parameter]) -> "Space":
        """Return the space with the parameter called `name` changed; unchanged where it has no such parameter."""
        parameters = (change(parameter) if parameter.name == name else parameter for parameter in self.parameters)
        return replace(self, parameters=tuple(parameters))

    def nearest(self, config: Config) -> Config:
        """Return the config of this space that is most like another case's config.

        On an `auto` ladder, whose rungs differ from case to case, it has the nearest rung. A parameter that the config
        lacks has the user's own value, or else its first value. A parameter that this space lacks is left out.
        """

        def pick(parameter: Parameter) -> Value:
            """Return the value of a parameter of this space for that config."""
            if parameter.name not in config:
                return parameter.values[0] if parameter.own is None else parameter.own
            is_auto_ladder = parameter.is_ladder and parameter.bounds is not None
            return parameter.nearest(config[parameter.name]) if is_auto_ladder else config[parameter.name]

        return self.config_of(pick)

    def config_of(self, pick: Callable[[Parameter], Value]) -> Config:
        """Return the config that has the value `pick(parameter)` for each active parameter.

        Whether a parameter is active follows from the values of the parameters before it.
        """
        config: Config = {}
        for parameter in self.parameters:
            if parameter.active(config):
                config[parameter.name] = pick(parameter)
        return config

    def configs(self) -> Iterator[Config]:
        """Iterate over all distinct configs. The last parameter changes fastest."""
        return filter(self.holds, self._extensions({}, self.parameters))

    def random_configs(self) -> Iterator[Config]:
        """Yield different configs that can be measured, drawn at random; the user's own config comes first.

        The order is the same in each call. Every second draw starts from a config that was yielded before, and keeps
        about 70 % of its values (chosen): similar configs can often be measured, too. It ends after `_DRAWS` draws.
        """
        generator = random.Random(0)  # noqa: S311 - choosing configs is no cryptography
        known = [self.own] if self.own else []
        drawn = {frozenset(config.items()) for config in known}
        yield from known
        for number in range(_DRAWS):
            start = generator.choice(known) if number % 2 and known else {}

            def pick(parameter: Parameter, start: Config = start) -> Value:
                """Return a random value, or often that of the config from which the draw starts."""
                if parameter.name in start and generator.random() < 0.7:
                    return start[parameter.name]
                return generator.choice(parameter.values)

            config = self.config_of(pick)
            if (values := frozenset(config.items())) not in drawn and self.holds(config):
                drawn.add(values)
                known.append(config)
                yield config

    def example(self) -> Config | None:
        """Return any config, the user's own if it is known; None where none is found within `_DRAWS` draws."""
        if self.own:
            return self.own
        configs = (
            self.random_configs() if self.combinations > _DRAWS else self.configs()
        )  # to go through all may take hours
        return next(configs, None)

    def _extensions(self, config: Config, parameters: Sequence[Parameter]) -> Iterator[Config]:
        """Yield all configs that extend `config` by a value for each of the further `parameters` that is active."""
        if not parameters:
            yield config
            return
        head, *tail = parameters
        begun = [{**config, head.name: value} for value in head.values] if head.active(config) else [config]
        for longer in begun:
            yield from self._extensions(longer, tail)

    def restricted_to(self, accepted: Iterable[str]) -> "Space":
        """Return the space with the `accepted` parameters alone.

        A parameter with a condition on one that is left out is left out, too.
        """
        kept: list[Parameter] = []
        names = set(accepted)
        for parameter in self.parameters:
            known = {earlier.name for earlier in kept}
            if parameter.name in names and all(condition.parameter in known for condition in parameter.conditions):
                kept.append(parameter)
        return replace(self, parameters=tuple(kept))

    def start_configs(self, per_variant: int) -> list[Config]:
        """Return the configs to probe first: `per_variant` rungs of each variant, spread evenly over the ladder.

        The largest rung comes first, then the smallest, then the middle of the widest gap (see `halving`). So a search
        learns early which configs fit into memory. All other parameters have their first value. The user's own config,
        if it is known, comes before all.
        """
        ladder = self.rungs
        rungs = [ladder[index] for index in halving(len(ladder), per_variant)] or [None]
        variants = self.values(VARIANT) or (None,)
        configs = [self.own] if self.own else []
        configs += [self.first_at(rung, variant) for rung, variant in itertools.product(rungs, variants)]
        return [config for place, config in enumerate(configs) if config not in configs[:place]]

    def default_at(self, rung: Value | None) -> Config:
        """Return the default config of a rung: the default variant, and the first value of every other parameter."""
        return self.first_at(rung, DEFAULT)

    def defaults(self) -> list[Config]:
        """Return the default configs of all rungs."""
        return [self.default_at(rung) for rung in self.rungs or (None,)]

    def first_at(self, rung: Value | None, variant: Value | None) -> Config:
        """Return the config of a rung and a variant with the first value of every other parameter."""
        given = {self.ladder: rung, VARIANT: variant}
        known = {name: value for name, value in given.items() if value is not None}
        return self.config_of(lambda parameter: known.get(parameter.name, parameter.values[0]))


def ladder_of(space: Space) -> str | None:
    """Return the parameter whose larger values need more memory: the ladder, or else a `batch_size`; None without.

    A `batch_size` of up to three values does not count, because so few values show no trend.
    """
    if space.ladder is not None:
        return space.ladder
    return "batch_size" if len(space.values("batch_size")) > 3 else None


def same_launch(config: Config, second: Config) -> bool:
    """Return whether two configs launch the same probe."""
    return launched(config) == launched(second)


def launch_digest(config: Config) -> str:
    """Return 12 hexadecimal digits that identify a config; configs that launch the same probe have the same digits."""
    return config_digest(launched(config))


def launched(config: Mapping[str, Value]) -> Config:
    """Return a config without the pruner's patience, which changes nothing about the launch."""
    return {name: value for name, value in config.items() if name != PATIENCE}


def described(space: Space) -> dict[str, object]:
    """Return parameter name → its values and conditions, in the form in which they are stored and compared.

    An `auto` ladder is described by its bounds only, because each study computes its own rungs.
    """
    descriptions: dict[str, object] = {}
    for parameter in space.parameters:
        key, numbers = ("auto", parameter.bounds) if parameter.bounds else ("values", parameter.values)
        when = {
            condition.parameter: list(condition.values) if condition.at_least is None else condition.at_least
            for condition in parameter.conditions
        }
        descriptions[parameter.name] = {key: list(numbers), "when": when}
    return descriptions
