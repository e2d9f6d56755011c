"""The configs of a race, and the rounds in which they train: successive halving.

A race trains a few configs for the same time, each with several random seeds, to see which config learns most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tuner.errors import StoreError
from tuner.export import CaseView, in_words, no_best
from tuner.probe import SAMPLES_PER_S
from tuner.search.standing import Standing, undominated_in_value_and_speed
from tuner.study import Config, grouped, launch_digest, launched


class Round(NamedTuple):
    """A round of a race."""

    configs: int
    """How many configs train."""
    seconds: float
    """How long each run trains."""
    seeds: tuple[int, ...]
    """The random seeds: each config has a run with each."""


def rounds(configs: int, *, seeds: int, total_s: float) -> list[Round]:
    """Return the rounds of a race whose runs train for `total_s` seconds together; two configs are in the last round.

    The better half of the configs goes on to the next round, whose runs take twice as long. Each run begins from
    scratch, with a seed that no other round uses. So 5 configs make rounds of 5, 3 and 2, with runs of 1, 2 and 4 parts
    of the time.
    """
    sizes = [configs]
    while sizes[-1] > 2:
        sizes.append((sizes[-1] + 1) // 2)
    parts = seeds * sum(size * 2**index for index, size in enumerate(sizes))
    first_s = total_s / parts  # of a run in the first round
    return [
        Round(configs=size, seconds=first_s * 2**index, seeds=tuple(range(index * seeds, (index + 1) * seeds)))
        for index, size in enumerate(sizes)
    ]


def better_half(scores: Sequence[float | None]) -> list[int]:
    """Return which configs go on after a round: the positions of the better half, the best first.

    `scores`: the mean score of each config; None where it has none. At least two go on, if two have a score.
    """
    scored = [place for place, score in enumerate(scores) if score is not None]
    best_first = sorted(scored, key=lambda place: -(scores[place] or 0.0))
    return best_first[: max(2, (len(scores) + 1) // 2)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrant:
    """A config of a race: why it takes part, and what the search measured of it."""

    config: Config
    why: str
    """Why the config takes part, such as `best of the search`; several reasons are separated by commas."""
    measured: Mapping[str, float]
    """Metric → its mean over the config's probes: the study's first objective, and samples/s. Empty if not measured."""
    shared: frozenset[str] = frozenset()
    """The parameters that have the same value in all configs of the race."""

    def __hash__(self) -> int:
        return hash(launch_digest(self.config))

    @property
    def differing(self) -> str:
        """The parameters in which the config differs from others of the race, as one line of NAME=VALUE."""
        return in_words({name: value for name, value in self.config.items() if name not in self.shared})

    def __str__(self) -> str:
        return f"{self.differing} ({self.why})"


def entrants(case: CaseView, *, also: Sequence[int] = ()) -> list[Entrant]:
    """Return the configs that take part: the best, the fastest, the default of the best's rung, and a compromise.

    The compromise does well in the first objective and in samples/s: see `_between`. The configs of the trials with the
    numbers in `also` take part, too. Raises StoreError for fewer than two different configs, and an unknown trial.
    """
    # the configs, each with why it takes part
    best, fastest = case.best, case.fastest
    if best is None:
        raise StoreError(no_best(case.name))
    chosen: list[tuple[str, Config]] = [("best of the search", best.config)]
    chosen += [("most samples/s", fastest.config)] if fastest else []
    chosen += [("default", default)] if (default := case.default_for(best.config)) else []
    taken = {launch_digest(config) for _, config in chosen}
    if fastest and (between := _between(case.configs, taken)):
        chosen.append(("between", between.config))
    configs_of_trials = {trial.number: trial.config for trial in case.trials if trial.config}
    for number in also:
        if number not in configs_of_trials:
            raise StoreError(f"--trial {number}: {case.name} has no measured trial of this number; see trials.tsv")
        chosen.append((f"trial #{number}", configs_of_trials[number]))
    # a config that was chosen twice has one launch key: it takes part once, with both reasons
    configs = {launch_digest(config): launched(config) for _, config in chosen}
    reasons = grouped(chosen, lambda reason_and_config: launch_digest(reason_and_config[1]))
    if len(configs) < 2:
        raise StoreError(
            f"a race of {case.name} needs two configs: the best of its search is also the fastest and the default; "
            "name a trial with another config: --trial NUMBER"
        )
    first = next(iter(configs.values()))
    shared = frozenset(name for name in first if all(config.get(name) == first[name] for config in configs.values()))
    measured = _measured(case)
    return [
        Entrant(
            config=config,
            why=", ".join(reason for reason, _ in reasons[digest]),
            measured=measured.get(digest, {}),
            shared=shared,
        )
        for digest, config in configs.items()
    ]


def _measured(case: CaseView) -> dict[str, dict[str, float]]:
    """Return launch key → what the search measured of this config: the first objective, and samples/s if known."""
    measured: dict[str, dict[str, float]] = {}
    for standing in case.configs:
        if standing.is_eligible:
            speed = {} if standing.samples_per_s is None else {SAMPLES_PER_S: standing.samples_per_s}
            measured[launch_digest(standing.config)] = {case.objectives[0]: standing.value, **speed}
    return measured


def _between(configs: Sequence[Standing], taken: set[str]) -> Standing | None:
    """Return a compromise: the config on the Pareto front of the first objective and samples/s that is best by maximin.

    Both numbers are scaled from 0 to 1, from the smallest to the largest on the front, and the smaller of the two
    counts. None where all configs on the front are `taken`, by their launch keys.
    """
    front = undominated_in_value_and_speed(standing for standing in configs if standing.samples_per_s is not None)
    candidates = [standing for standing in front if launch_digest(standing.config) not in taken]
    values, speeds = [point.value for point in front], [point.samples_per_s or 0.0 for point in front]

    def scaled(number: float, numbers: Sequence[float]) -> float:
        """Return where a number lies between the smallest and the largest, from 0 to 1."""
        return (number - min(numbers)) / ((max(numbers) - min(numbers)) or 1.0)

    def weaker_side(point: Standing) -> float:
        """Return the smaller one of a config's two scaled numbers."""
        return min(scaled(point.value, values), scaled(point.samples_per_s or 0.0, speeds))

    return max(candidates, key=weaker_side, default=None)
