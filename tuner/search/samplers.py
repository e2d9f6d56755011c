"""A strategy as an Optuna sampler; samples that fill a space; choosers of first configs, and of what Optuna draws.

A strategy chooses the config of each probe from the history of a study. It asks its choosers in order, and takes the
first answer. A session is a started trainer that serves several probes. A sibling is a similar case that was searched
before, from which a search learns.
"""

import math
import random
import warnings
from collections.abc import Callable, Container, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.errors import StudyError
from tuner.search.choosing import Choice, Chooser, Done, History, Starts, Strategy, one_start
from tuner.search.frontier import DEVICE_MEMORY
from tuner.search.trials import Sibling, distribution
from tuner.study import LADDER, Config, Parameter, SearchSpec, Space, Value, grouped


def space_filling(space: Space, count: int, seed: int = 0) -> list[Config]:
    """Choose `count` configs that fill the space: a sample that shows all of it. A larger `count` only adds to the end.

    The next config is always the config with the most values that no config before it has, so all values occur early.
    Among equals, it is the config farthest from all before it: a maximin design (Johnson, Moore and Ylvisaker, 1990),
    built greedily. Distances between numbers are distances between their ranks.

    `seed`: decides between equals.
    """
    pool = list(space.configs())
    random.Random(seed).shuffle(pool)  # noqa: S311 - decides between equals only
    distances = [math.inf] * len(pool)  # of each config of the pool to the nearest chosen config
    covered: set[tuple[str, Value]] = set()  # parameter and value, of all chosen configs
    chosen: list[Config] = []
    while pool and len(chosen) < count:
        best = max(range(len(pool)), key=lambda place: (len(pool[place].items() - covered), distances[place]))
        distances.pop(best)
        newest = pool.pop(best)
        chosen.append(newest)
        covered |= newest.items()
        distances = [min(least, distance(space, config, newest)) for config, least in zip(pool, distances, strict=True)]
    return chosen


def ordered_by_session(
    configs: Sequence[Config], session_key: Callable[[Config], str | None], ladder: str | None = LADDER
) -> list[Config]:
    """Return the order in which to probe configs, so that each session starts once.

    A session is a started trainer, which can serve the probes of several configs one after another. The configs of a
    session follow each other, and those without a session come last. What needs little device memory comes first, both
    among sessions and inside each. So the first config that runs out of memory comes late. The caller can then leave
    out the configs that need more.

    Args:
        configs: The configs, all of one space.
        session_key: Returns what is equal for configs that may share a session; None for a config without a session.
        ladder: The parameter that decides how much memory a config needs.
    """
    memory = partial(_memory, names=DEVICE_MEMORY.growing_parameters(ladder))
    by_session = grouped(configs, session_key)
    alone = by_session.pop(None, [])
    rising = [sorted(session, key=memory) for session in by_session.values()]
    rising.sort(key=lambda session: memory(session[0]))
    return [*chain.from_iterable(rising), *alone]


def _memory(config: Config, names: Sequence[str]) -> tuple[float, ...]:
    """Return a key that sorts configs by their need for device memory: the values of these parameters in turn.

    0 stands for a text, and for a parameter that the config does not use.
    """
    values = (config.get(name, 0) for name in names)
    return tuple(value if isinstance(value, int | float) else 0 for value in values)


def distance(space: Space, config: Config, second: Config) -> float:
    """Return how far two configs are apart: the sum of the distances of their values, each at most 1."""
    return sum(
        _value_distance(parameter, config.get(parameter.name), second.get(parameter.name))
        for parameter in space.parameters
    )


def _value_distance(parameter: Parameter, value: Value | None, second: Value | None) -> float:
    """Return the distance between two values of a parameter, from 0 to 1.

    It is 0 for equal values, 1 for different words, and for numbers the share of the ranks that lie between them. None
    stands for a config that does not use the parameter, which has the distance 1 to any value.
    """
    if value == second:
        return 0.0
    if value is None or second is None or any(isinstance(number, str) for number in parameter.values):
        return 1.0
    numbers = sorted(parameter.values)  # pyright: ignore[reportArgumentType] - at least two, as two of them differ
    return abs(numbers.index(value) - numbers.index(second)) / (len(numbers) - 1)


class StrategySampler(RandomSampler):
    """Assigns to each trial the config that a strategy chooses. Parameters outside the space are drawn at random."""

    def __init__(self, space: Space, strategy: Strategy, *, starts_needed: Starts = one_start) -> None:
        """Make a sampler that asks `strategy` for configs of `space`.

        `starts_needed` returns how many starts of the trainer a config needs now; it is called before each trial.
        """
        super().__init__()
        self._space = space
        self._strategy = strategy
        self._starts_needed = starts_needed
        self._chosen: dict[int, Config] = {}
        """Number of a trial → its config."""

    def exhausted(self, study: Study) -> bool:
        """Return whether nothing is left to probe; `ended` returns the reason."""
        return self.ended(study) is not None

    def ended(self, study: Study) -> str | None:
        """Return why nothing is left to probe; None while something is."""
        answer = self._strategy.choose(History(study, self._space), self._starts_needed)
        return answer.reason if isinstance(answer, Done) else None

    def unconfirmed(self, study: Study) -> Config | None:
        """Return the best config if the trainer's plain command must still measure it; None if it need not.

        Sessions may measure other values than the plain command, with which people train.
        """
        return self._strategy.confirm(History(study, self._space), self._starts_needed)

    def stop_callback(self, study: Study, trial: FrozenTrial) -> None:
        """End `study.optimize(…, callbacks=[sampler.stop_callback])` once nothing is left to probe."""
        if self.exhausted(study):
            study.stop()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose the whole config of a trial, and return nothing: `sample_independent` then returns each parameter.

        Optuna calls this once for each trial, before its first parameter. For parameters returned here, it would check
        the distribution, and refuse `suggest_int` where it finds choices.
        """
        self._chosen[trial.number] = self.choose(study, trial)
        return {}

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return the config of a trial. Raises StudyError for a study of several objectives, and after the end."""
        if (count := len(study.directions)) > 1:
            raise StudyError(f"the study has {count} objectives, and this sampler takes one; give it one `direction`")
        history = History(study, self._space, current_trial=trial.number)
        answer = self._strategy.choose(history, self._starts_needed)
        return answer.config if isinstance(answer, Choice) else self.after_end(history, answer)

    def after_end(self, history: History, done: Done) -> Config:
        """Raise StudyError: a trial is asked for after the search has ended. A subclass may return a config instead."""
        raise StudyError(f"the search has ended: {done.reason}; check `sampler.exhausted(study)` before each trial")

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of one parameter of a trial; that of a parameter outside the space is drawn at random.

        Raises StudyError where the value is not among those that the call of `trial.suggest_…` allows.
        """
        value = self._chosen[trial.number].get(param_name)
        if value is None:
            return super().sample_independent(study, trial, param_name, param_distribution)
        if not allowed(param_distribution, value):
            raise StudyError(
                f"the space has {param_name}={value}, outside {param_distribution}; suggest all its values"
            )
        return value

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Raise StudyError for a complete trial that has not suggested its whole config: nothing can be learnt from it.

        Optuna calls this before it stores the end of a trial.
        """
        if state is not TrialState.COMPLETE:
            return
        try:
            self._space.config_of(lambda parameter: trial.params[parameter.name])
        except KeyError as error:
            raise StudyError(
                f"trial {trial.number} did not suggest {error.args[0]}, so the search cannot learn from it; the space "
                "has it: suggest all its values"
            ) from error


def allowed(kind: BaseDistribution, value: Value) -> bool:
    """Return whether a value is one of those that a call of `trial.suggest_…` allows."""
    if isinstance(kind, CategoricalDistribution):
        return value in kind.choices
    return isinstance(kind, IntDistribution | FloatDistribution) and kind.low <= float(value) <= kind.high


def seeds_first(space: Space, per_variant: int) -> Chooser:
    """Return the chooser of the configs with which a search begins before anything is known: the seeds.

    They are the user's own config, and then `per_variant` configs for each variant of the trained agent. These have the
    largest, the smallest and middle values of the parameter that decides memory. See `Space.start_configs`.
    """
    configs = space.start_configs(per_variant)

    def choose(history: History, _starts_needed: Starts) -> Choice | None:
        """Choose the first seed that is new; None if all were probed."""
        config = next(filter(history.is_new, configs), None)
        return None if config is None else Choice(config=config)

    return choose


def siblings_first(space: Space, siblings: Sequence[Sibling]) -> Chooser:
    """Return the chooser of each sibling's best config, in the order of `siblings`: of similar cases, measured before.

    Each sibling has one turn: the trial of its config stores its name, and it is then left out, even if it finds a
    better config later. Configs outside the space are left out, too, and so are those that `History.is_new` excludes:
    configs that were probed, or cannot fit into memory. The user's own config comes before all, where it is known,
    because the others are compared with it.
    """
    nearest = {sibling.case: space.nearest(sibling.best) for sibling in siblings}
    # it may be outside: this space may lack a value of the sibling, or have other rules
    configs = {case: config for case, config in nearest.items() if config in space}

    def choose(history: History, _starts_needed: Starts) -> Choice | None:
        """Choose the first new config of `configs`, the best config of each sibling; before it, the user's own config.

        A trial's origin is the sibling whose config it probes. A sibling that is the origin of a trial is left out;
        None if all are.
        """
        probed_siblings = {trial.origin for trial in history.records}
        for case, config in configs.items():
            if case in probed_siblings or not history.is_new(config):
                continue
            if space.own and history.is_new(space.own):
                return Choice(config=space.own)
            return Choice(config=config, origin=case)
        return None

    return choose


class OptunaChooser:
    """Chooses what Optuna's TPE or random sampler draws, and no config twice."""

    def __init__(self, space: Space, search: SearchSpec, *, resumed_at: int = 0) -> None:
        """Choose what a sampler of Optuna draws.

        Args:
            space: The parameters and their values.
            search: Which sampler draws, and its seed.
            resumed_at: The number of trials so far. It changes the seed: a resumed search draws new numbers.
        """
        self._space = space
        self._distributions = {parameter.name: distribution(parameter) for parameter in space.parameters}
        self._random = random.Random(search.seed + resumed_at)  # noqa: S311 - choosing configs is no cryptography
        self._inner = _optuna_sampler(search, resumed_at)

    def choose(self, history: History, starts_needed: Starts) -> Choice | None:
        """Choose the cheapest new config of four draws; None if no config is new.

        TPE repeats itself in small spaces. If no draw is new, the new config nearest to the first draw is chosen, out
        of the first 1,000 new ones in a random order.
        """
        if not any(map(history.is_new, self._space.configs())):
            return None
        study, trial = _next_trial(history)
        relative_space = self._inner.infer_relative_search_space(study, trial)  # the parameters to draw together
        draws = [self._draw(study, trial, relative_space) for _ in range(4)]
        if new_draws := list(filter(history.is_new, draws)):
            return Choice(config=min(new_draws, key=starts_needed))
        new_configs = list(islice(filter(history.is_new, self._space.configs()), 1000))
        self._random.shuffle(new_configs)  # decides between equally near configs
        return Choice(config=min(new_configs, key=lambda config: distance(self._space, config, draws[0])))

    def _draw(self, study: Study, trial: FrozenTrial, relative_space: dict[str, BaseDistribution]) -> Config:
        """Return the config that Optuna's sampler draws: the parameters of the relative space together, others alone.

        It may draw any value of a parameter's distribution. The nearest of the space's own values replaces it.
        """
        drawn_together = self._inner.sample_relative(study, trial, relative_space)

        def pick(parameter: Parameter) -> Value:
            """Return the value of a parameter that is nearest to what is drawn for it."""
            if parameter.name in drawn_together:
                return parameter.nearest(drawn_together[parameter.name])
            kind = self._distributions[parameter.name]
            return parameter.nearest(self._inner.sample_independent(study, trial, parameter.name, kind))

        return self._space.config_of(pick)


class _HistoryStorage(InMemoryStorage):
    """Shows the trials of a history to Optuna's samplers without copying them. What a sampler stores is not kept."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._history = trials

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials of the history that are in one of the states."""
        return [trial for trial in self._history if states is None or trial.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: object) -> None:
        """Store nothing: the trial is only a stand-in, see `_next_trial`."""


def _next_trial(history: History) -> tuple[Study, FrozenTrial]:
    """Return a study with the history's trials, and a stand-in for the next trial, for Optuna's samplers.

    They draw only for a trial that has begun, but here the config is chosen before its trial begins.
    """
    study = optuna.create_study(
        storage=_HistoryStorage(history.trials), directions=history.study.directions, sampler=RandomSampler()
    )
    trial = create_trial(state=TrialState.RUNNING)
    trial.number = history.number
    return study, trial


def _optuna_sampler(search: SearchSpec, resumed_at: int) -> BaseSampler:
    """Return Optuna's sampler that the study file names; `resumed_at` changes its seed."""
    if search.sampler == "random":
        return RandomSampler(seed=search.seed + resumed_at)
    with warnings.catch_warnings():
        # Optuna warns of `group`, which it calls experimental.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(seed=search.seed + resumed_at, multivariate=True, group=True, constant_liar=True)
