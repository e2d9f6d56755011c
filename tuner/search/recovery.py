"""One config that runs, as soon as possible: for a case that has had no success."""

from itertools import product

from optuna.study import Study

from tuner.search.ordered import OrderedSampler
from tuner.search.standing import eligible
from tuner.search.trials import readings
from tuner.study.space import LADDER, VARIANT, Config, Space, Value


def downwards(space: Space) -> list[Config]:
    """Give each variant at each rung, from the largest rung down; other parameters take their first value."""
    rungs = sorted(space.values(LADDER), key=float, reverse=True) or [None]
    variants = space.values(VARIANT) or (None,)

    def at(rung: Value | None, variant: Value | None) -> Config:
        chosen = {LADDER: rung, VARIANT: variant}
        return space.draw(lambda parameter: chosen.get(parameter.name) or parameter.values[0])

    return [at(rung, variant) for rung, variant in product(rungs, variants)]


class RecoverySampler(OrderedSampler):
    """Goes down the ladder from the largest rung not known to fail; has nothing left once a config has succeeded."""

    def __init__(self, space: Space) -> None:
        super().__init__(space, downwards(space))

    def exhausted(self, study: Study) -> bool:
        """Tell whether a config has succeeded, or none is left."""
        return _succeeded(study) or super().exhausted(study)

    def ended(self, study: Study) -> str | None:
        """Say which of the two it is."""
        return "a config has run" if _succeeded(study) else super().ended(study)


def _succeeded(study: Study) -> bool:
    return bool(eligible(readings(study.get_trials(deepcopy=False))))
