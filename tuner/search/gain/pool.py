"""All configs of a space in one list, so that the search can compare them at once. Pure."""

from collections.abc import Iterable, Iterator
from itertools import islice

from tuner.errors import StudyError
from tuner.search.gain.levels import Levels
from tuner.study.space import Config, Parameter, Space, Value, config_digest

MOST = 100_000
"""The largest number of configs in a pool. To compare this many takes about a second of CPU time, and 0.2 GB."""


class Pool:
    """All configs of a space. The place in the list names a config."""

    def __init__(self, space: Space) -> None:
        """Raises StudyError if the space has more than `MOST` configs."""
        self.space = space
        self.configs = list(islice(space.configs(), MOST + 1))
        if len(self.configs) > MOST:
            raise StudyError(
                f"the space holds more than {MOST:,} configs, too many for search.sampler: gain; leave values out, or "
                "set search.sampler: tpe"
            )
        self.levels = Levels(space)
        self.codes = self.levels.codes(self.configs)
        self.heights = self.levels.heights(self.codes)
        self._places = {config_digest(config): place for place, config in enumerate(self.configs)}

    def places(self, digests: Iterable[str]) -> list[int]:
        """Return the places of the configs that have these digests."""
        return [self._places[digest] for digest in digests]

    def neighbours(self, place: int) -> list[int]:
        """Return the places of the configs that differ in one parameter: by the next number, or by any other word."""
        near = map(config_digest, self._changed(self.configs[place]))
        return self.places(digest for digest in near if digest in self._places)

    def _changed(self, config: Config) -> Iterator[Config]:
        for parameter in self.space.parameters:
            for value in _next_to(parameter, config[parameter.name]) if parameter.name in config else ():
                wanted = {**config, parameter.name: value}
                yield self.space.draw(lambda one, wanted=wanted: wanted.get(one.name, one.values[0]))


def _next_to(parameter: Parameter, value: Value) -> list[Value]:
    if any(isinstance(one, str) for one in parameter.values):
        return [one for one in parameter.values if one != value]
    ordered = sorted(parameter.values)  # pyright: ignore[reportArgumentType] - all are numbers
    at = ordered.index(value)
    return [*ordered[max(at - 1, 0) : at], *ordered[at + 1 : at + 2]]
