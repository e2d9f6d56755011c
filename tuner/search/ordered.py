"""Choosers that follow a list of configs, and what ends a recovery."""

from collections.abc import Sequence
from itertools import product

from optuna.trial import TrialState

from tuner.search.choosing import Choice, Done, Price
from tuner.search.history import History
from tuner.search.standing import eligible
from tuner.search.trials import all_kept
from tuner.study.space import LADDER, VARIANT, Config, Space, Value


class Ordered:
    """Chooses the configs of a list in their order, except for those that cannot fit into memory.

    Workers side by side keep to rungs of their own, so that each rung's session is started once.
    """

    def __init__(self, configs: Sequence[Config]) -> None:
        self._configs = configs

    def choose(self, history: History, price: Price) -> Choice | None:
        """Choose the first new config of the open session, or of a rung where no worker is, or of all."""
        new = list(filter(history.is_new, self._configs))
        if not new:
            return None
        elsewhere = {one.params.get(LADDER) for one in history.trials if one.state == TrialState.RUNNING}
        return Choice(config=min(new, key=lambda config: (price(config) > 0.0, config.get(LADDER) in elsewhere)))


def downwards(space: Space) -> list[Config]:
    """Return each variant at each rung, from the largest rung down; other parameters take their first value."""
    rungs = sorted(space.values(LADDER), key=float, reverse=True) or [None]
    variants = space.values(VARIANT) or (None,)

    def at(rung: Value | None, variant: Value | None) -> Config:
        chosen = {name: value for name, value in ((LADDER, rung), (VARIANT, variant)) if value is not None}
        return space.draw(lambda parameter: chosen.get(parameter.name, parameter.values[0]))

    return [at(rung, variant) for rung, variant in product(rungs, variants)]


def until_one_runs(history: History, price: Price) -> Done | None:
    """End a recovery once a config has succeeded."""
    return Done(reason="a config has run") if eligible(all_kept(history.trials)) else None
