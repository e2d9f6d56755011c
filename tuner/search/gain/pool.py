"""The configs of a space in one list, the distances between them, and ranges of values that may grow. Pure.

A place is the position of a config in this list. A code is the position of a value among its parameter's values. A
range may grow if the study file lets the search go on to further values: see `Parameter.grown`.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tuner.errors import StudyError
from tuner.search.frontier import is_number
from tuner.search.resource_model import Floats
from tuner.study import Config, Parameter, Space, Value, allow_all, config_digest, ladder_of, value_text

Codes = NDArray[np.intp]
"""Configs as codes: a row per config, a column per parameter. Also an array of places."""

MIDDLE = 0.5
"""The position, from 0 to 1, of a config that has no ladder or does not use a parameter; and of the first probe."""
MOST_LISTED = 100_000
"""The largest number of configs that are listed. To compare this many takes about a second of CPU time, and 0.2 GB."""
MOST_COMBINATIONS = 5_000_000
"""The most combinations of values that are looked through for those that keep the constraints: some seconds."""
DRAWN_CONFIGS = 20_000
"""The number of configs that are drawn of a space with more than `MOST_LISTED`."""


class Levels:
    """The values of each parameter, and the distances between them.

    Numbers lie between 0 and 1. Rungs lie there by their logarithm, so that all doublings are equally far apart, and
    other numbers by their rank. Two words have the distance 1. A parameter that a config does not use lies half-way
    between all its values.
    """

    def __init__(self, space: Space) -> None:
        """Give each value of each parameter of a space a code and, if it is a number, a position from 0 to 1."""
        self._names = space.names
        self._codes = [
            {value: code for code, value in enumerate((*parameter.values, None))} for parameter in space.parameters
        ]
        ladder = ladder_of(space)
        self._lines = [_line(parameter, ladder) for parameter in space.parameters]
        self.ladder = None if ladder is None else self._names.index(ladder)
        """The index of the ladder among the parameters; None where there is no ladder."""

    def codes(self, configs: Iterable[Config]) -> Codes:
        """Return a row per config and a column per parameter: the place of the value among the parameter's values."""
        rows = [
            [codes[config.get(name)] for name, codes in zip(self._names, self._codes, strict=True)]
            for config in configs
        ]
        return np.array(rows, dtype=np.intp).reshape(len(rows), len(self._names))

    def heights(self, codes: Codes) -> Floats:
        """Return the height of each config on the ladder, from 0 to 1; one half where there is no ladder."""
        if self.ladder is None:
            return np.full(len(codes), MIDDLE)
        line = self._lines[self.ladder]
        return np.full(len(codes), MIDDLE) if line is None else line[codes[:, self.ladder]]

    def distances(self, columns: Codes) -> list[Floats]:
        """Return, for each parameter, the squared distance of each of its values to each config: value by column."""
        parameters = zip(self._codes, self._lines, columns.T, strict=True)
        return [_squares(line, np.arange(len(codes)), column, len(codes) - 1) for codes, line, column in parameters]


def _line(parameter: Parameter, ladder: str | None) -> Floats | None:
    """Return the position of each number of a parameter, from 0 to 1; None for words.

    Rungs of the ladder lie as far apart as their logarithms, and other numbers as far as their ranks. The last position
    is for configs that do not use the parameter.
    """
    values = parameter.values
    if any(isinstance(value, str) for value in values):
        return None
    numbers = np.array(values, dtype=float)
    ranks = np.argsort(np.argsort(numbers)).astype(float)
    line = np.log(numbers) if parameter.name == ladder else ranks
    span = max(float(np.ptp(line)), 1e-9)
    return np.append((line - line.min()) / span, MIDDLE)


def _squares(line: Floats | None, rows: Codes, columns: Codes, unused: int) -> Floats:
    """Return the squared distances between the values of one parameter: row by column.

    - Between numbers: of their positions from 0 to 1.
    - Between two words: 1.
    - Between a word and no value, of a config that does not use the parameter: one half. So the words are corners of a
      regular simplex, and no value is about its centre.

    Args:
        line: The positions of numbers, and None for words: see `_line`.
        rows: The codes of the rows: see `Levels.codes`.
        columns: The codes of the columns.
        unused: The code of a config that does not use the parameter.
    """
    if line is not None:
        return np.square(line[rows][:, None] - line[columns][None, :])
    half = (1.0 / math.sqrt(2.0)) ** 2  # as floats round it
    is_unused = (rows[:, None] == unused) | (columns[None, :] == unused)
    between_different = np.where(is_unused, half, half + half)
    return np.where(rows[:, None] == columns[None, :], 0.0, between_different)


class Pool:
    """All configs of a space, or a sample of a large one, in a list."""

    def __init__(self, space: Space) -> None:
        """List all configs of a space; of a space with more than `MOST_LISTED`, draw `DRAWN_CONFIGS` of them.

        Raises StudyError if no config is found that keeps the constraints of a large space.
        """
        every_config = _listed(space)
        self.space = space
        self.is_part = every_config is None
        """Whether `configs` are only a sample of the space."""
        self.configs = list(islice(space.random_configs(), DRAWN_CONFIGS)) if every_config is None else every_config
        if self.is_part and not self.configs:
            raise StudyError("no combination of values that was drawn keeps the constraints; leave values out")
        self.levels = Levels(space)
        """The values of each parameter, and the distances between them."""
        self.codes = self.levels.codes(self.configs)
        """A row per config: the position of each of its values among the values of the parameter."""
        self.heights = self.levels.heights(self.codes)
        """The height of each config on the ladder, from 0 for the lowest rung to 1 for the highest."""
        self._places = {config_digest(config): place for place, config in enumerate(self.configs)}

    def places(self, digests: Iterable[str]) -> list[int]:
        """Return the places of the configs that have these digests."""
        return [self._places[digest] for digest in digests]

    def find(self, config: Config) -> int | None:
        """Return the place of a config; None where the pool does not have it."""
        return self._places.get(config_digest(config))

    def extended(self, configs: Iterable[Config], best: Iterable[Config]) -> "Pool":
        """Return a larger pool, with `configs` and with all configs that differ in one parameter from one of `best`."""
        neighbours = [changed for config in best for changed in self._changed(config) if self.space.holds(changed)]
        wanted = {config_digest(config): config for config in (*configs, *neighbours)}
        new = {digest: config for digest, config in wanted.items() if digest not in self._places}
        pool = copy(self)
        pool.configs = [*self.configs, *new.values()]
        pool.codes = np.vstack([self.codes, self.levels.codes(new.values())])
        pool.heights = self.levels.heights(pool.codes)  # of each config on the ladder
        pool._places = self._places | {digest: place for place, digest in enumerate(new, len(self.configs))}
        return pool

    def neighbours(self, place: int) -> list[int]:
        """Return the places of the configs that differ in one parameter: by the next number, or by any other word."""
        digests = map(config_digest, self._changed(self.configs[place]))
        return self.places(digest for digest in digests if digest in self._places)

    def _changed(self, config: Config) -> Iterator[Config]:
        """Yield copies of a config, each with another value of one parameter; some may not keep the constraints."""
        for parameter in self.space.parameters:
            if parameter.name not in config:
                continue
            for value in _next_to(parameter, config[parameter.name]):
                wanted = {**config, parameter.name: value}
                # The value may turn on other parameters: they have their first value.
                yield self.space.config_of(lambda active, wanted=wanted: wanted.get(active.name, active.values[0]))


def _listed(space: Space) -> list[Config] | None:
    """Return all configs of a space; None where they are more than `MOST_LISTED`, or too many to look through."""
    # A space of few combinations is looked through at once, however few of them keep the constraints.
    unconstrained = list(islice(replace(space, holds=allow_all).configs(), MOST_LISTED + 1))
    if len(unconstrained) <= MOST_LISTED:
        return list(filter(space.holds, unconstrained))
    if space.combinations > MOST_COMBINATIONS:
        return None
    configs = list(islice(space.configs(), MOST_LISTED + 1))
    return configs if len(configs) <= MOST_LISTED else None


def _next_to(parameter: Parameter, value: Value) -> list[Value]:
    """Return the numbers before and after a value of a parameter, or all its other words."""
    if any(isinstance(word, str) for word in parameter.values):
        return [word for word in parameter.values if word != value]
    ordered = sorted(parameter.values)  # pyright: ignore[reportArgumentType] - all are numbers
    at = ordered.index(value)
    before, after = ordered[max(at - 1, 0) : at], ordered[at + 1 : at + 2]  # empty at an end
    return [*before, *after]


Ends = Mapping[int, int]
"""Column of a parameter whose range may grow → the code of its last value so far."""


def ends_so_far(pool: Pool, tried: Collection[int]) -> Ends:
    """Return how far each range that may grow has grown: column of the parameter → code of the range's last value.

    That is the last value that was tried, or the last value with which the range began, whichever comes later.

    Args:
        pool: The configs, with all values that a range may grow to.
        tried: The places of the configs that were measured, that failed or that run.
    """
    ends = {}
    for column, parameter in enumerate(pool.space.parameters):
        if parameter.grown:
            count = len(parameter.values)
            began_with = count - len(parameter.grown)
            codes = pool.codes[list(tried), column]
            used = (int(code) for code in codes if code < count)  # the code `count`: the config does not use it
            ends[column] = max([began_with - 1, *used])
    return ends


def within_ends(pool: Pool, ends: Ends) -> NDArray[np.bool_]:
    """Return whether each config of the pool has only values up to the ends of the ranges so far."""
    inside = np.ones(len(pool.configs), dtype=bool)
    for column, end in ends.items():
        unused = len(pool.space.parameters[column].values)
        inside &= (pool.codes[:, column] <= end) | (pool.codes[:, column] == unused)
    return inside


def beyond_ends(pool: Pool, ends: Ends, config: Config) -> Iterator[int]:
    """Yield the places of the configs to probe so that a range grows: each is `config` with the next value of a range.

    A range is left out unless `config` has its largest value so far. Values follow in the order of the study file.

    Args:
        pool: The configs, with all values that a range may grow to.
        ends: How far each range has grown: see `ends_so_far`.
        config: The config that is changed.
    """
    for column, end in ends.items():
        parameter = pool.space.parameters[column]
        so_far, later = parameter.values[: end + 1], parameter.values[end + 1 :]
        if later and config.get(parameter.name) == _largest(so_far):  # the first values may stand in any order
            place = pool.find({**config, parameter.name: later[0]})
            if place is not None:
                yield place


def largest_of(pool: Pool, ends: Ends, config: Config) -> list[str]:
    """Return the parameters of which a config has the largest of more than two numbers, as `name=value`.

    Of a range that grows, it is the largest number so far.
    """
    texts: list[str] = []
    for column, parameter in enumerate(pool.space.parameters):
        value = config.get(parameter.name)
        so_far = parameter.values[: ends[column] + 1] if column in ends else parameter.values
        if len(parameter.values) > 2 and value is not None and value == _largest(so_far):
            texts.append(f"{parameter.name}={value_text(value)}")
    return texts


def _largest(values: Sequence[Value]) -> Value | None:
    """Return the largest of some numbers; None where not all are numbers."""
    numbers = list(filter(is_number, values))
    return max(numbers) if len(numbers) == len(values) else None
