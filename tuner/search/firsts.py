"""What comes first: the best configs of other cases, and the default config of a rung."""

from collections.abc import Sequence

from tuner.search.choosing import Choice, Chooser, Done, Price, Why, first_answer
from tuner.search.history import History
from tuner.search.siblings import Sibling
from tuner.search.trials import kept
from tuner.study.space import Space


class SiblingsFirst:
    """Chooses each sibling's best config once.

    A trial of such a config names the sibling (`ORIGIN`). A sibling that finds a better config later gets no second
    turn. Configs outside the space, configs probed already and configs sure to run out of memory are left out.
    """

    def __init__(self, space: Space, siblings: Sequence[Sibling]) -> None:
        """`siblings` have their turns in the given order."""
        firsts = {one.case: space.nearest(one.best) for one in siblings}
        self._firsts = {case: config for case, config in firsts.items() if config in space}

    def choose(self, history: History, price: Price) -> Choice | None:
        """Choose the best config of the next sibling that has not had its turn."""
        had = {kept(one).origin for one in history.trials}
        turns = (
            Choice(config=config, origin=case)
            for case, config in self._firsts.items()
            if case not in had and history.is_new(config)
        )
        return next(turns, None)


class DefaultFirst:
    """Chooses as other choosers do, but first the default config of each rung.

    A constraint may compare a config with the default config of its rung. If the default is probed first, the
    constraint is judged once, as soon as the config has been measured. Two workers that begin a rung at the same time
    both measure its default, so that neither waits for the other.
    """

    def __init__(self, space: Space, choosers: Sequence[Chooser]) -> None:
        self._space = space
        self._choosers = choosers

    def choose(self, history: History, price: Price) -> Choice | Done | None:
        """Choose the first answer of the other choosers, or the default of its rung if that is not known yet.

        A retry stays as it is. A default that cannot run is not waited for.
        """
        answer = first_answer(self._choosers, history, price)
        if not isinstance(answer, Choice) or answer.why not in {Why.SEARCH, Why.CALIBRATE}:
            return answer
        default = self._space.default_at(self._space.rung(answer.config))
        if default == answer.config or default not in self._space or history.is_over(default):
            return answer
        return Choice(config=default)
