"""The configs of a race: a few that differ in kind, taken from a case's search."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.errors import StoreError
from tuner.export.query import StudyReader
from tuner.export.records import CaseRecord, TrialRecord
from tuner.export.words import in_words
from tuner.kept.probe import OK
from tuner.search.front import dominates
from tuner.study.launch import launch_digest, launched
from tuner.study.space import LADDER, Config

BUSIEST, FASTEST, DEFAULT, BETWEEN = "best of the search", "most samples/s", "default", "between"
_SPEED = "samples_per_s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrant:
    """A config of a race: why it takes part, and what the search measured of it."""

    config: Config
    kinds: tuple[str, ...]
    measured: Mapping[str, float]
    """Metric → its mean over the config's probes: the study's first objective, and samples/s. Empty if not measured."""
    shared: frozenset[str] = frozenset()
    """The parameters that have the same value in all configs of the race."""

    @property
    def kind(self) -> str:
        """Why the config takes part, in a few words."""
        return ", ".join(self.kinds)

    @property
    def words(self) -> str:
        """The parameters in which the config differs from others of the race, as one line of NAME=VALUE."""
        return in_words({name: value for name, value in self.config.items() if name not in self.shared})


def entrants(reader: StudyReader, case: CaseRecord, *, also: Sequence[int] = ()) -> list[Entrant]:
    """Return the best config of a case's search, the fastest, the default of the best's rung, and one between.

    The config between is on the front of the first objective and samples/s. It is the config whose smaller one of the
    two, each scaled to the range of the front, is largest. `also` names trials whose configs take part, too.
    Raises StoreError where the race has not two configs, and for an unknown trial.
    """
    objective = case.objectives[0]
    best, fastest = reader.best.get(case.name), reader.fastest(case)
    if best is None:
        raise StoreError(f"no best config yet for {case.name}; `tuner status` shows where the study stands")
    trials = [trial for trial in reader.trials() if trial.case == case.name]
    measured = _measured(trials, objective)
    chosen: list[tuple[str, Config]] = [(BUSIEST, best.config)]
    chosen += [(FASTEST, fastest.config)] if fastest else []
    chosen += [(DEFAULT, default)] if (default := case.default_at(best.config.get(LADDER))) else []
    taken = {launch_digest(config) for _, config in chosen}
    if fastest and (between := _between(measured, objective, taken)):
        chosen.append((BETWEEN, between))
    chosen += [(f"trial #{number}", _config_of(trials, case.name, number)) for number in also]
    kinds: dict[str, list[str]] = {}
    configs: dict[str, Config] = {}
    for kind, config in chosen:
        digest = launch_digest(config)
        kinds.setdefault(digest, []).append(kind)
        configs.setdefault(digest, launched(config))
    if len(configs) < 2:
        raise StoreError(
            f"a race of {case.name} needs two configs: the best of its search is also the fastest and the default; "
            "name a trial with another config: --trial NUMBER"
        )
    first, *others = configs.values()
    return [
        Entrant(
            config=configs[digest],
            kinds=tuple(kinds[digest]),
            measured=measured.get(digest, ({}, {}))[1],
            shared=frozenset(name for name in first if all(other.get(name) == first[name] for other in others)),
        )
        for digest in configs
    ]


def _config_of(trials: Iterable[TrialRecord], case: str, number: int) -> Config:
    found = next((trial.config for trial in trials if trial.number == number), None)
    if not found:
        raise StoreError(f"--trial {number}: {case} has no measured trial of this number; trials.tsv lists them")
    return found


_Measured = Mapping[str, tuple[Config, Mapping[str, float]]]
"""Digest → a config and the means of its metrics."""


def _measured(trials: Iterable[TrialRecord], objective: str) -> _Measured:
    """Return the means of every config that may be the best; probes of the plain command alone if there are any."""
    of_config: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        if trial.status == OK and trial.probe.ineligible is None:
            of_config.setdefault(launch_digest(trial.config), []).append(trial)
    for digest, same in of_config.items():
        of_config[digest] = [one for one in same if not one.probe.warm] or same
    return {
        digest: (
            dict(same[0].config),
            {
                name: sum(known) / len(known)
                for name, values in (
                    (objective, [one.value for one in same]),
                    (_SPEED, [one.probe.samples_per_s for one in same]),
                )
                if (known := [value for value in values if value is not None])
            },
        )
        for digest, same in of_config.items()
    }


def _between(measured: _Measured, objective: str, taken: set[str]) -> Config | None:
    both = {
        digest: (means[objective], means[_SPEED])
        for digest, (_, means) in measured.items()
        if objective in means and _SPEED in means
    }
    front = {
        digest: point for digest, point in both.items() if not any(dominates(other, point) for other in both.values())
    }
    free = [digest for digest in front if digest not in taken]
    if not free:
        return None
    scaled = _scaled(list(front.values()))
    return measured[max(free, key=lambda digest: min(scaled[front[digest]]))][0]


def _scaled(points: Sequence[tuple[float, float]]) -> dict[tuple[float, float], tuple[float, ...]]:
    """Return point → the point with each coordinate scaled to 0 to 1."""
    bounds = [(min(axis), max(axis)) for axis in zip(*points, strict=True)]
    return {
        point: tuple((at - low) / ((high - low) or 1.0) for at, (low, high) in zip(point, bounds, strict=True))
        for point in points
    }
