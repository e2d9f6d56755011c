"""A case begins with what was best in the cases like it."""

from collections.abc import Sequence

from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.history import History
from tuner.search.sampler import CaseSampler
from tuner.search.siblings import Sibling
from tuner.search.trials import kept
from tuner.search.wrapping import WrappingSampler
from tuner.study.space import Config, Space


class SiblingsFirst(WrappingSampler):
    """Chooses each sibling's best config, then as another sampler does.

    Each sibling has one turn, which its name on a trial (`ORIGIN`) marks: one that finds a better config later on adds
    none. A config outside the space, probed already or sure to run out of memory is left out.
    """

    def __init__(self, space: Space, inner: CaseSampler, siblings: Sequence[Sibling]) -> None:
        """`siblings` come in the order in which they have their turns."""
        super().__init__(space, inner)
        firsts = {one.case: space.nearest(one.best) for one in siblings}
        self._firsts = {case: config for case, config in firsts.items() if config in space}
        self._turn: tuple[str, Config] | None = None

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose what is best in the next sibling that has not had its turn, else the inner sampler's config."""
        had = {kept(one).origin for one in history.trials}
        turns = (one for one in self._firsts.items() if one[0] not in had and history.is_new(one[1]))
        self._turn = next(turns, None)
        return self._turn[1] if self._turn else super().choose(study, trial, history)

    def origin(self, config: Config) -> str | None:
        """Name the sibling whose turn it was, where this is its config."""
        case, best = self._turn or (None, None)
        return case if config == best else None
