"""The calibration of an `auto` ladder: probes of two small rungs, and the rungs that follow from their results."""

from collections.abc import Callable, Sequence

from optuna.trial import FrozenTrial, TrialState

from tuner.kept.study import KeptStudy
from tuner.kept.trial import MEMORY_SHARE, START_S
from tuner.search.choosing import ALL_PROBED, Choice, Done, Price, Why
from tuner.search.growth import inherited
from tuner.search.history import History
from tuner.search.observed import Observed
from tuner.search.rungs import calibration_rungs, make_rungs
from tuner.study.space import LADDER, Config, Space
from tuner.study.spec import ProbeSpec

ENOUGH = 2
"""Calibration ends when this many rungs have run, because two points give a straight line."""
SURE = 2.0
"""A rung is left out only if it exceeds memory or time by this many standard deviations of the prediction."""


class Calibration:
    """Chooses one small rung after another until two have run, or until another worker has made the rungs.

    If all that is left is a rung that another worker probes now, this worker probes the rung, too.
    """

    def __init__(self, space: Space) -> None:
        self._configs = calibration_configs(space)

    def ended(self, history: History, price: Price) -> Done | None:
        """End once the rungs can be made, or exist already."""
        complete = [one for one in history.trials if one.state == TrialState.COMPLETE]
        ended = (
            KeptStudy(history.study.user_attrs).rungs is not None
            or len({trial.params[LADDER] for trial in complete}) >= ENOUGH
            or all(map(history.is_over, self._configs))
        )
        return Done(reason=ALL_PROBED) if ended else None

    def choose(self, history: History, price: Price) -> Choice:
        """Choose the first config that is new, otherwise the first whose probe has not ended."""
        unfinished = [config for config in self._configs if not history.is_over(config)]
        return Choice(config=next(filter(history.is_new, unfinished), unfinished[0]), why=Why.CALIBRATE)


def calibration_configs(space: Space) -> list[Config]:
    """Return the configs that calibration probes, in this order: the default config of each rung."""
    return [usual(space) | {LADDER: rung} for rung in calibration_rungs(_doublings(space))]


def rungs_after(trials: Sequence[FrozenTrial], space: Space, limits: ProbeSpec) -> tuple[int, ...]:
    """Make the rungs from a study's trials so far. The ladder of `space` holds the doublings.

    A rung is left out only if it surely needs too much memory or time to start. A rung that has run out of memory or
    time stays as the last rung.
    """
    observed, config_of = Observed(trials), usual(space)
    memory = _expectation(observed, space, MEMORY_SHARE, error=0.02, choices=0.1)
    start_s = _expectation(observed, space, START_S, error=0.1, choices=0.0)

    def possible(rung: int) -> bool:
        config = config_of | {LADDER: rung}
        ends = ((memory, 1.0), (start_s, limits.longest_start_s))
        return observed.frontier.beyond(config) is None and all(_least(*needs(config)) <= end for needs, end in ends)

    def safe(rung: int) -> bool:
        return possible(rung) and memory(config_of | {LADDER: rung})[0] <= 1.0 - limits.headroom_pct / 100.0

    tried = {int(trial.params[LADDER]) for trial in trials if LADDER in trial.params}
    return make_rungs(_doublings(space), safe=safe, possible=possible, tried=tried)


def _doublings(space: Space) -> list[int]:
    return [int(rung) for rung in space.values(LADDER)]


def usual(space: Space) -> Config:
    """Return the default config of the smallest rung; the first config where no variant is called default."""
    smallest = space.values(LADDER)[0]
    default = space.default_at(smallest)
    return default if default in space else space.draw(lambda parameter: parameter.values[0])


Expectation = Callable[[Config], tuple[float, float]]
"""Returns mean and standard deviation of the amount that a probe of a config will show."""


def _expectation(observed: Observed, space: Space, name: str, *, error: float, choices: float) -> Expectation:
    """Fit a straight line to the measured amounts. If nothing has been measured, every expected amount is 0."""
    growth = inherited(space, observed.known_amounts(name, space), error=error, choices=choices)
    if growth is None:
        return lambda config: (0.0, 0.0)

    def expected(config: Config) -> tuple[float, float]:
        mean, deviation = growth.expect([config])
        return float(mean[0]), float(deviation[0])

    return expected


def _least(mean: float, deviation: float) -> float:
    return mean - SURE * deviation
