"""What the search stores in a study's trials when they begin, and reads of them: configs and failures.

A trial is Optuna's record of a probe, which is one short run with one config. The ladder is the parameter that decides
how much memory a config needs, and its values are the rungs.
"""

from collections.abc import Container, Mapping, Sequence
from decimal import Decimal
from itertools import takewhile
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.probe import FailureKind
from tuner.records.case_record import StudyAttributes
from tuner.records.trial import TrialRecord, read
from tuner.search import standing
from tuner.study import Config, Parameter, Space, Value, same_launch


def distribution(parameter: Parameter) -> BaseDistribution:
    """Return Optuna's distribution of a parameter, which must not change while a study goes on.

    - Written rungs and choices become categories.
    - A range becomes integers, or floats where not all of its values are integers.
    - An `auto` ladder becomes all integers between its bounds, because its rungs are unknown until some trials have
      run.
    """
    values = parameter.values
    if parameter.bounds:
        return IntDistribution(*parameter.bounds, log=True)
    if not parameter.is_range:
        return CategoricalDistribution(values)
    first, *later = (Decimal(repr(value)) for value in values)
    step = float(later[0] - first) if later and not parameter.is_log else None
    if all(isinstance(value, int) for value in values):
        return IntDistribution(int(values[0]), int(values[-1]), log=parameter.is_log, step=int(step or 1))
    return FloatDistribution(float(values[0]), float(values[-1]), log=parameter.is_log, step=step)


def suggest(trial: Trial, space: Space) -> Config:
    """Return the config that the sampler chose for a trial."""

    def pick(parameter: Parameter) -> Value:
        """Return the value that the sampler chose for a parameter."""
        kind = distribution(parameter)
        if isinstance(kind, IntDistribution):
            return trial.suggest_int(parameter.name, kind.low, kind.high, step=kind.step, log=kind.log)
        if isinstance(kind, FloatDistribution):
            return trial.suggest_float(parameter.name, kind.low, kind.high, step=kind.step, log=kind.log)
        return trial.suggest_categorical(parameter.name, parameter.values)  # pyright: ignore[reportReturnType]

    return space.config_of(pick)


def running(space: Space, config: Config, attributes: Mapping[str, Any] | None = None) -> FrozenTrial:
    """Return a running trial of a config of the space, with these user attributes, for a study to store at once."""
    kinds = {parameter.name: distribution(parameter) for parameter in space.parameters if parameter.name in config}
    # a study gives the values back in this form, such as 2.0 for 2
    params = {name: kind.to_external_repr(kind.to_internal_repr(config[name])) for name, kind in kinds.items()}
    return create_trial(state=TrialState.RUNNING, params=params, distributions=kinds, user_attrs=dict(attributes or {}))


def trials_that_count(study: Study, states: Container[TrialState] | None = None) -> list[FrozenTrial]:
    """Return the trials of a study, except for two kinds that show nothing about their configs:

    - Trials from before a person repaired the study's set-up, which is only done before it has measured anything.
    - Trials that were too slow for a time limit that has been raised since.

    `states`: the states of the trials; None for all.
    """
    attributes = StudyAttributes(study.user_attrs)
    repaired, longer = attributes.trials_before_repair, attributes.trials_before_longer
    trials = (trial for trial in study.get_trials(deepcopy=False, states=states) if trial.number >= repaired)
    return [trial for trial in trials if trial.number >= longer or typed_trial(trial).failure != FailureKind.TOO_SLOW]


def incumbent(study: Study) -> float | None:
    """Return the value that a running probe of a study with one objective must beat; None where there is none.

    It is the largest mean of the eligible configs.
    """
    ended = trials_that_count(study, states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL))
    return standing.incumbent(map(typed_trial, ended))


def typed_trial(trial: FrozenTrial) -> TrialRecord:
    """Return a trial of Optuna in the typed form that the whole package reads."""
    return read(
        trial.user_attrs,
        # Optuna looks for them in the system attributes at each call, which takes time
        trial.constraints if trial.system_attrs else None,
        state=trial.state.name,
        config=trial.params,
        number=trial.number,
        values=tuple(trial.values) if trial.values and trial.state == TrialState.COMPLETE else (),
    )


def failures_in_a_row(trials: Sequence[FrozenTrial], config: Config) -> int:
    """Return how often a config has failed in a row up to its newest trial, to decide whether it is probed again.

    Failures that show nothing about the config do not count, and do not end the row.
    """
    ended = [trial for trial in trials if trial.state.is_finished() and same_launch(trial.params, config)]
    failed = takewhile(lambda trial: trial.state == TrialState.FAIL, reversed(ended))
    return sum(standing.counts_against_config(typed_trial(trial).failure) for trial in failed)
