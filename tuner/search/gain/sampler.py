"""The config that is expected to gain most for each second that it takes, as long as there is something to gain."""

from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from tuner.search.gain.outlook import Outlook
from tuner.search.gain.pool import Pool
from tuner.search.history import History
from tuner.search.observed import Observed
from tuner.search.sampler import CaseSampler
from tuner.search.siblings import Sibling
from tuner.search.trials import PATIENCE, launched, meaningful
from tuner.study.space import Config, Space
from tuner.study.spec import CERTAINTY, ProbeSpec


class GainSampler(CaseSampler):
    """Weighs what a config is expected to gain against the seconds it takes; see `Outlook`.

    It knows the study's trials and nothing else, so that a new process goes on where another one ended. A config is
    probed again on purpose alone: where its readings are too few to tell whether it is the best.
    """

    def __init__(
        self,
        space: Space,
        limits: ProbeSpec | None = None,
        *,
        certainty: float = CERTAINTY,
        outlook: type[Outlook] = Outlook,
        siblings: Sequence[Sibling] = (),
    ) -> None:
        """`limits` say when a start takes too long and how much memory is to stay free; `siblings`: likest first.

        `certainty`: probability with which the best is to be as good as any other before a search ends.
        """
        super().__init__(space)
        self._limits = limits or ProbeSpec()
        self._certainty = certainty
        self._patience = space.values(PATIENCE)
        self._pool = Pool(space.restricted_to(set(space.names) - {PATIENCE}))
        self._elsewhere = RandomSampler()
        self._look = outlook
        self._siblings = siblings
        self._looked: tuple[object, Outlook] | None = None

    def exhausted(self, study: Study) -> bool:
        """Tell whether nothing is left to gain, and no retry is due; `ended` says why."""
        return self.ended(study) is not None

    def ended(self, study: Study) -> str | None:
        """Say why nothing is left to gain; None while there is, or while a retry is due."""
        history = History(study, self._space)
        return None if history.due() else self._outlook(study, history).ended()

    def best(self, study: Study) -> Config | None:
        """Give the eligible config that is believed to be the best, without the pruner's patience."""
        return self._best(self._outlook(study, History(study, self._space)))

    def unconfirmed(self, study: Study) -> Config | None:
        """Give what is believed to be the best, where a session alone has measured it.

        None, too, where the best of those measured cold is surely as good as any: of equals one is enough.
        """
        history = History(study, self._space)
        outlook = self._outlook(study, history)
        best = self._best(outlook)
        known = [launched(config) for config in history.confirmed()]
        confirmed = [config for config in known if config in self._pool.space]
        if best is None or best in confirmed or (confirmed and outlook.is_as_good(confirmed[0])):
            return None
        return self._whole(best, len(history.trials))

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose what gains most for its price; where nothing may be probed any more, what is best."""
        outlook = self._outlook(study, history)
        config = outlook.next(self.price) or self._best(outlook) or self._pool.configs[0]
        return self._whole(config, trial.number)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw parameters outside the space at random."""
        return self._elsewhere.sample_independent(study, trial, param_name, param_distribution)

    def _whole(self, config: Config, number: int) -> Config:
        """Add the pruner's patience, where that is searched: each value in turn."""
        patience = self._patience[number % len(self._patience)] if self._patience else 0
        return self._space.draw(lambda parameter: config.get(parameter.name, patience))

    def _best(self, outlook: Outlook) -> Config | None:
        return None if outlook.best is None else self._pool.configs[outlook.best]

    def _outlook(self, study: Study, history: History) -> Outlook:
        """Look at the study's trials; what was seen is kept as long as they stay as they are."""
        trials = [one for one in meaningful(history.trials) if launched(one.params) in self._pool.space]
        state = [(one.number, one.state) for one in trials]
        if self._looked is None or self._looked[0] != state:
            sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
            self._looked = (
                state,
                self._look(
                    self._pool,
                    Observed(trials, sign=sign, siblings=self._siblings),
                    self._limits,
                    self._certainty,
                ),
            )
        return self._looked[1]
