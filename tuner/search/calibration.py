"""The calibration of an `auto` ladder: probes at two small rungs, and the rungs that follow from what they took."""

from collections.abc import Callable, Sequence

from optuna.trial import FrozenTrial, TrialState

from tuner.kept.study import KeptStudy
from tuner.kept.trial import MEMORY_SHARE, START_S
from tuner.search.choosing import ALL_PROBED, Choice, Done, Price
from tuner.search.growth import inherited
from tuner.search.history import History
from tuner.search.observed import Observed
from tuner.search.rungs import calibration_rungs, make_rungs
from tuner.study.space import LADDER, Config, Space
from tuner.study.spec import ProbeSpec

ENOUGH = 2
"""Rungs that have run, through which a straight line can be drawn."""
SURE = 2.0
"""Standard deviations by which a rung must be expected beyond an end to be left out."""


class Calibration:
    """Chooses one small rung after another until two have run, or until the study holds its rungs.

    A rung that runs elsewhere is probed here, too, if it is all that is left.
    """

    def __init__(self, space: Space) -> None:
        self._configs = calibration_configs(space)

    def ended(self, history: History, price: Price) -> Done | None:
        """End once the rungs can be made, or are there already."""
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
        return Choice(config=next(filter(history.is_new, unfinished), unfinished[0]))


def calibration_configs(space: Space) -> list[Config]:
    """Give the configs to calibrate with, in the order in which they are tried: the default of each rung."""
    return [_usual(space) | {LADDER: rung} for rung in calibration_rungs(_doublings(space))]


def rungs_after(trials: Sequence[FrozenTrial], space: Space, limits: ProbeSpec) -> tuple[int, ...]:
    """Make the rungs from a study's trials so far, `space` having the doublings for its rungs.

    A rung is left out only where memory or the time for a start surely ends before it; one that ran out of either is
    the last.
    """
    observed, usual = Observed(trials), _usual(space)
    memory = _expectation(observed, space, MEMORY_SHARE, error=0.02, variants=0.1)
    start_s = _expectation(observed, space, START_S, error=0.1, variants=0.0)

    def possible(rung: int) -> bool:
        config = usual | {LADDER: rung}
        ends = ((memory, 1.0), (start_s, limits.longest_start_s))
        return observed.walls.beyond(config) is None and all(_least(*line(config)) <= end for line, end in ends)

    def safe(rung: int) -> bool:
        return possible(rung) and memory(usual | {LADDER: rung})[0] <= 1.0 - limits.headroom_pct / 100.0

    tried = {int(trial.params[LADDER]) for trial in trials if LADDER in trial.params}
    return make_rungs(_doublings(space), safe=safe, possible=possible, tried=tried)


def _doublings(space: Space) -> list[int]:
    return [int(rung) for rung in space.values(LADDER)]


def _usual(space: Space) -> Config:
    """Give the default config of the smallest rung, or the first one where no variant is called default."""
    smallest = space.values(LADDER)[0]
    default = space.default_at(smallest)
    return default if default in space else space.draw(lambda parameter: parameter.values[0])


Line = Callable[[Config], tuple[float, float]]
"""Gives mean and standard deviation of the amount that a probe of a config will show."""


def _expectation(observed: Observed, space: Space, name: str, *, error: float, variants: float) -> Line:
    """Draw a straight line through what was measured; where nothing was, nothing is expected to be needed."""
    growth = inherited(space, observed.lines(name, space), error=error, variants=variants)
    if growth is None:
        return lambda config: (0.0, 0.0)

    def expected(config: Config) -> tuple[float, float]:
        mean, deviation = growth.expect([config])
        return float(mean[0]), float(deviation[0])

    return expected


def _least(mean: float, deviation: float) -> float:
    return mean - SURE * deviation
