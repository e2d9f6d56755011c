"""Choosers that follow a list of configs, and what ends a recovery."""

from collections.abc import Sequence
from itertools import product

from optuna.trial import TrialState

from tuner.search.choosing import Choice, Done, Price
from tuner.search.history import History
from tuner.search.standing import eligible
from tuner.search.trials import all_kept
from tuner.study.space import LADDER, VARIANT, Config, Space


class Ordered:
    """Chooses the configs of a list in their order, except for those that cannot fit into memory.

    Workers side by side keep to rungs of their own, so that each rung's session is started once.
    """

    def __init__(self, configs: Sequence[Config], ladder: str | None) -> None:
        """`ladder`: the parameter whose values are the rungs."""
        self._configs, self._ladder = configs, ladder or LADDER

    def choose(self, history: History, price: Price) -> Choice | None:
        """Choose the first new config of the open session, or of a rung where no worker is, or of all."""
        new = list(filter(history.is_new, self._configs))
        if not new:
            return None
        elsewhere = {one.params.get(self._ladder) for one in history.trials if one.state == TrialState.RUNNING}
        return Choice(config=min(new, key=lambda config: (price(config) > 0.0, config.get(self._ladder) in elsewhere)))


def downwards(space: Space) -> list[Config]:
    """Return each variant at each rung, from the largest rung down; other parameters take their first value."""
    rungs = sorted(space.rungs, key=float, reverse=True) or [None]
    return [space.first_at(rung, variant) for rung, variant in product(rungs, space.values(VARIANT) or (None,))]


def until_one_runs(history: History, price: Price) -> Done | None:
    """End a recovery once a config has succeeded."""
    return Done(reason="a config has run") if eligible(all_kept(history.trials)) else None
