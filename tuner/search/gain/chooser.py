"""Chooses the config with the largest expected gain per second, until there is nothing left to gain.

`GainSampler` does so in any Optuna study: see docs/sampler.md. A sibling is a similar case that was searched before.
"""

import math
from collections.abc import Sequence
from functools import cached_property

from optuna.study import Study

from tuner.search.choosing import FIRST_TRIALS, Choice, Done, History, Starts, Strategy, confirmation, one_start, retry
from tuner.search.gain.acquisition import Acquisition
from tuner.search.gain.expected_gain import Goal
from tuner.search.gain.outlook import Outlook
from tuner.search.gain.pool import Pool
from tuner.search.gain.readings import sibling_readings
from tuner.search.gain.surrogate import Surrogate
from tuner.search.samplers import StrategySampler, siblings_first
from tuner.search.trials import Observed, Sibling
from tuner.study import PATIENCE, TRAINING_HOURS, Config, ProbeSpec, Space, launched


class Gain:
    """Weighs what a config is expected to gain against the seconds it takes; see `Acquisition`.

    It derives everything from the study's trials, so a new process continues where another process ended. A config is
    probed again only if its measurements do not yet show whether the config is the best.
    """

    def __init__(
        self,
        space: Space,
        limits: ProbeSpec | None = None,
        *,
        goal: Goal | None = None,
        siblings: Sequence[Sibling] = (),
    ) -> None:
        """Search a space by expected gain. Raises StudyError if no config of a large space keeps its constraints.

        Args:
            space: The parameters and their values.
            limits: When a start takes too long, and how much memory must stay free.
            goal: When the search has found enough.
            siblings: Similar cases, whose measurements tell about this one; the most similar one first.
        """
        self._space = space
        self._limits = limits or ProbeSpec()
        self._goal = goal or Goal()
        self._patience = space.values(PATIENCE)
        self._pool = self._space_pool = Pool(space.restricted_to(set(space.names) - {PATIENCE}))
        self._siblings = siblings
        self._latest: tuple[object, Outlook] | None = None
        """The numbers and states of the trials, and what is known of each config after them."""
        self._acquisitions: dict[Starts, Acquisition] = {}
        """What follows from the latest outlook, for each function that says what a probe takes now."""

    def ended(self, history: History, starts_needed: Starts) -> Done | None:
        """Return why nothing is left to gain; None while something is."""
        reason = self._acquisition(history, starts_needed).reason_to_end()
        return None if reason is None else Done(reason=reason)

    def choose(self, history: History, starts_needed: Starts) -> Choice | None:
        """Choose the config that gains most per second of its probe; None where nothing may be probed any more."""
        acquisition = self._acquisition(history, starts_needed)
        place = acquisition.next_place()
        if place is None:
            return None
        config = self._with_patience(self._pool.configs[place], history.number)
        return Choice(config=config, expected_s=acquisition.probe_s(place), trials_left=acquisition.probes_left)

    def compare_with_own(self, history: History, _starts_needed: Starts) -> Choice | None:
        """Choose the user's own config or the best to be measured again, if their speeds cannot be compared yet.

        None if they can. From the fourth trial on, the own config is also repeated if other programs have disturbed it.
        """
        if self._own is None:
            return None
        disturbed = history.disturbed_baseline(self._own) if history.finished >= FIRST_TRIALS else None
        config = history.incomparable_config(self._own) or disturbed
        return confirmation(self._with_patience(config, history.number)) if config else None

    def confirm(self, history: History, starts_needed: Starts) -> Config | None:
        """Return the config with the highest expected value, if the plain command must still measure it.

        It need not if it has measured a config that is as good, as `Acquisition.is_as_good` decides. A study of a speed
        then measures the user's own config or the best again, if the gain is not sure. None if all is measured.
        """
        acquisition = self._acquisition(history, starts_needed)
        best = acquisition.outlook.best_config
        if best is None:
            return None
        confirmed = [config for config in history.confirmed() if config in self._pool.space]
        config = best
        if best in confirmed or (confirmed and acquisition.is_as_good(confirmed[0])):
            config = history.to_compare(self._own) if self._own else None
        return self._with_patience(config, history.number) if config else None

    @property
    def _own(self) -> Config | None:
        """The user's own config in a study of a speed; None in any other study."""
        return self._space.own if self._goal.ceiling == math.inf else None

    def best(self, history: History) -> Config | None:
        """Return the eligible config with the highest expected value, without the pruner's patience; or None."""
        return self._outlook(history).best_config

    def after_end(self, history: History, starts_needed: Starts) -> Config:
        """Choose a config although the search has ended: the most informative one, otherwise the best."""
        acquisition = self._acquisition(history, starts_needed)
        place = acquisition.next_place()
        if place is None:
            place = acquisition.outlook.best_place or 0  # without a best, any config
        return self._with_patience(self._pool.configs[place], history.number)

    def _with_patience(self, config: Config, number: int) -> Config:
        """Return a config with the pruner's patience added, if the study searches it.

        Trials have the values of the patience in turn. `number`: that of the trial.
        """
        patience = self._patience[number % len(self._patience)] if self._patience else 0
        return self._space.config_of(lambda parameter: config.get(parameter.name, patience))

    def _acquisition(self, history: History, starts_needed: Starts) -> Acquisition:
        """Return what each config is expected to gain and to take, given a history and the starts that it needs now."""
        outlook = self._outlook(history)
        return self._acquisitions.setdefault(starts_needed, Acquisition(outlook, starts_needed))

    def _outlook(self, history: History) -> Outlook:
        """Return what is known of each config, given a history. It is computed anew only when a trial has changed."""
        trials = [trial for trial in history.meaningful if launched(trial.params) in self._pool.space]
        state = [(trial.number, trial.state) for trial in trials]
        if self._latest is None or self._latest[0] != state:
            observed = Observed(trials, sign=history.signs[0], siblings=self._siblings, ladder=self._space.ladder)
            if self._space_pool.is_part:  # too large to list: all neighbours of the best 20 are candidates
                best = sorted(observed.measured.values(), key=lambda entry: -entry.values[-1].number)[:20]
                tried = [launched(trial.params) for trial in trials]
                self._pool = self._space_pool.extended(tried, [entry.config for entry in best])
            self._latest = state, Outlook(self._pool, observed, self._limits, self._goal, self._source)
            self._acquisitions.clear()
        return self._latest[1]

    @cached_property
    def _source(self) -> Surrogate | None:
        """The model of the most similar sibling, from which this case learns; None if no sibling has measured anything.

        Each sibling's model learns from that of the next less similar sibling in turn.
        """
        model, levels = None, self._pool.levels
        for sibling in reversed(self._siblings):
            if (readings := sibling_readings(sibling, levels, self._pool.space)) is not None:
                model = Surrogate(levels, readings, source=model)
        return model


def by_gain(space: Space, gain: Gain, siblings: Sequence[Sibling] = ()) -> Strategy:
    """Return the strategy that probes the siblings' best configs, and then what gains most.

    A search may end before each sibling's best config has been probed.
    """
    choosers = (retry, gain.compare_with_own, gain.ended, siblings_first(space, siblings), gain.choose)
    return Strategy(choosers=choosers, confirm=gain.confirm, predicts_end=True)


class GainSampler(StrategySampler):
    """An Optuna sampler that weighs what a config is expected to gain against the seconds it takes; see `Gain`.

    The study has one objective, which it maximises or minimises.
    """

    def __init__(
        self,
        space: Space,
        limits: ProbeSpec | None = None,
        *,
        training_hours: float = TRAINING_HOURS,
        siblings: Sequence[Sibling] = (),
        starts_needed: Starts = one_start,
    ) -> None:
        """Make a sampler for studies of this space.

        Args:
            space: The parameters and their values.
            limits: When a start takes too long, and how much memory must stay free.
            training_hours: The length of the training that will use the best config. The search ends when more probes
                would take more time than this training gains.
            siblings: Similar cases, whose measurements tell about this one; the most similar one first.
            starts_needed: Returns how many trainer starts a probe of a config takes now.
        """
        goal = Goal(training_hours=training_hours)
        self._gain = Gain(space, limits, goal=goal, siblings=siblings)
        super().__init__(space, by_gain(space, self._gain), starts_needed=starts_needed)

    def best(self, study: Study) -> Config | None:
        """Return the eligible config with the highest expected value, without the pruner's patience; or None."""
        return self._gain.best(History(study, self._space))

    def after_end(self, history: History, done: Done) -> Config:
        """Choose the most informative config left, otherwise the best, so that `study.optimize` runs all its trials."""
        return self._gain.after_end(history, self._starts_needed)
