"""What the search stores in a study's trials when they begin, and reads of them: configs, values, failures and costs.

A trial is Optuna's record of a probe, which is one short run with one config. The ladder is the parameter that decides
how much memory a config needs, and its values are the rungs.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import takewhile
from typing import Any, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.probe import FailureKind
from tuner.records.case_record import StudyAttributes
from tuner.records.trial import COMPLETE, FINISHED, MEMORY_SHARE, RUNNING, START_S, TrialRecord, read
from tuner.search import standing
from tuner.search.frontier import HOST_MEMORY, MEMORYLESS, Frontier, Need, OutOfMemory
from tuner.search.resource_model import Amounts
from tuner.search.standing import counts_against_config, eligible
from tuner.study import (
    LADDER,
    VARIANT,
    Config,
    Parameter,
    ProbeSpec,
    Space,
    Value,
    launch_digest,
    launched,
    same_launch,
)


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


_TIME_OF_ITERATIONS = Need(growing=(LADDER, "update_epochs"), ignored=frozenset(), grows_by_rung=False)
"""The time of the iterations: more environments or more epochs never take less time.

What the size of a minibatch does to this time is unknown, as is the effect of a command's own parameters. So this holds
of no other ladder.
"""
_TIME_OF_START = Need(growing=(LADDER,), ignored=MEMORYLESS | {"batch_size"})
"""The time of the start: more environments never shorten it, and neither epochs nor minibatches change it."""

Cost = tuple[Config, Mapping[str, float]]
"""A config, and what a probe of it took, by name: its share of the memory, and the seconds of its start and its run."""
Reading = tuple[Config, float, float | None]
"""A config, a measured value and its standard error, None where that is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sibling:
    """What a similar case has measured before, of this study or another: its best config is tried first."""

    case: str
    best: Config
    """Its best eligible config."""
    costs: Sequence[Cost] = ()
    """What its probes took."""
    readings: Sequence[Reading] = ()
    """Its measurements; larger values are better."""


def amounts(costs: Iterable[Cost], name: str, space: Space) -> Amounts:
    """Return the measured amounts of one part of the cost, such as `start_s`, with their configs.

    Configs of a variant outside the space are left out, because a variant may need quite another amount.
    """
    variants = space.values(VARIANT) or (None,)
    known = [(config, took[name]) for config, took in costs if name in took and config.get(VARIANT) in variants]
    return [config for config, _ in known], [amount for _, amount in known]


class MeasuredValue(NamedTuple):
    """A value that one probe has measured."""

    number: float
    """Larger numbers are better."""
    error: float | None
    """The standard error; None where it is unknown."""
    devices: str = ""
    """The devices that measured the value; empty where they are unknown."""


@dataclass(slots=True)
class Measured:
    """A config that has been measured."""

    config: Config
    values: list[MeasuredValue] = field(default_factory=list)
    eligible: bool = False
    """Whether the config may be the best; see `standing.eligible`."""


class Observed:
    """What a study's trials show about each config. Configs that differ only in the pruner's patience count as one.

    The last value of a probe that the pruner stopped counts as a measurement. Such a config is not eligible.
    """

    def __init__(
        self,
        trials: Sequence[FrozenTrial],
        *,
        sign: float = 1.0,
        siblings: Sequence[Sibling] = (),
        ladder: str | None = LADDER,
    ) -> None:
        """Sort out what each trial shows of its config, in their order.

        Args:
            trials: The trials of the study.
            sign: -1 if the study minimises its objective, otherwise 1.
            siblings: Similar cases, the most similar one first.
            ladder: The parameter whose values are the rungs.
        """
        self._siblings = siblings
        self.measured: dict[str, Measured] = {}
        """Digest of a config → its measurements."""
        self.newest_devices = ""
        """The devices that measured the newest value."""
        self.warm = False
        """Whether a session made the newest measurement."""
        self.running = 0
        """The number of trials that run now."""
        self.running_or_failed: set[str] = set()
        """The digests of configs that run now, or that failed and have not been measured since."""
        self.out_of_memory: list[Config] = []
        """The configs that ran out of device memory."""
        self.out_of_host_memory: list[Config] = []
        """The configs that ran out of the host's memory."""
        self.failed: list[Config] = []
        """The configs that failed for another reason than memory or time."""
        self._costs: list[Cost] = []
        self._failures: list[OutOfMemory] = []
        records = list(map(typed_trial, trials))
        # The tuner gives each probe a digest. Another program that fills a study may at least store shares of memory.
        is_memory_known = any(record.probe.digest or MEMORY_SHARE in record.cost for record in records)
        self.memoryless = MEMORYLESS if is_memory_known else frozenset[str]()
        """The parameters that do not change the need for device memory; none if another program chose their names."""
        for trial, record in zip(trials, records, strict=True):
            is_complete_soak = record.state == COMPLETE and record.soaks
            if not is_complete_soak:  # the flags of a soak may cost time, so its values do not count
                self._note(record, _first_value(trial), sign)
        may_be_best = eligible(records)
        for digest, measured in self.measured.items():
            measured.eligible = digest in may_be_best
        self.frontier = Frontier(self._failures, ladder=ladder)
        """Where memory or time ends: the configs that ran out of memory or time."""

    @property
    def failures(self) -> int:
        """The number of trials that failed because of their config."""
        return len(self.failed) + len(self._failures)

    def known_amounts(self, name: str, space: Space) -> list[Amounts]:
        """Return the measured amounts of the part `name` of the cost, such as `start_s`: a list for each case.

        The sibling that is least similar comes first, and this study last.
        """
        costs_of_cases = [sibling.costs for sibling in reversed(self._siblings)]
        costs_of_cases.append(self._costs)
        return [amounts(costs, name, space) for costs in costs_of_cases]

    def longest_start_s(self, limits: ProbeSpec, space: Space) -> float:
        """Return the most seconds of a start: the limit of silence, unless a longer start shows that trainers print."""
        starts_s = [start_s for _, starts in self.known_amounts(START_S, space) for start_s in starts]
        is_silent = max(starts_s, default=0.0) <= limits.start_up_silence_seconds
        return limits.longest_start_s if is_silent else limits.max_start_seconds

    def _note(self, trial: TrialRecord, value: float | None, sign: float) -> None:
        """Add what a trial shows of its config: a value, a failure, or that it runs now.

        `value`: its first objective; None where it has none. `sign`: -1 if the study minimises its
        objective, otherwise 1.
        """
        digest, config = launch_digest(trial.config), launched(trial.config)
        if value is None:  # the trial runs now, or it failed
            self.running += trial.state == RUNNING
            self.running_or_failed.add(digest)
            self._note_failure(trial, config)
            return
        self.running_or_failed.discard(digest)
        measured = self.measured.setdefault(digest, Measured(config))
        measured.values.append(MeasuredValue(sign * value, trial.error, trial.measured_on))
        self.newest_devices, self.warm = trial.measured_on, trial.warm
        if trial.cost:
            self._costs.append((config, trial.cost))

    def _note_failure(self, trial: TrialRecord, config: Config) -> None:
        """Add the config of a trial without a value to those that lacked memory, lacked time, or failed otherwise."""
        failure = trial.failure
        is_by_tuner = trial.probe.digest or trial.retry
        if failure is None and trial.state in FINISHED and not is_by_tuner:
            failure = FailureKind.CRASH  # another program's trial that has neither a value nor a reason
        need = None
        if failure == FailureKind.GPU_OOM:
            self.out_of_memory.append(config)
            need = Need(ignored=self.memoryless)
        elif failure == FailureKind.HOST_OOM:
            self.out_of_host_memory.append(config)
            need = HOST_MEMORY
        elif failure == FailureKind.TOO_SLOW:
            need = _TIME_OF_ITERATIONS if trial.failed_after_start else _TIME_OF_START
        if need is None and counts_against_config(failure):
            self.failed.append(config)
        elif need is not None and not trial.retry:  # a trial to be repeated shows no end of memory or time
            self._failures.append(OutOfMemory(config, trial.missing_gib or 1.0, need))


def _first_value(trial: FrozenTrial) -> float | None:
    """Return the first objective of a trial; None where it has none.

    Where the pruner stopped the trial, this is the last value that the trial reported.
    """
    if trial.state == TrialState.COMPLETE:
        return trial.values[0]
    if trial.state != TrialState.PRUNED or not trial.intermediate_values:
        return None
    last_step = max(trial.intermediate_values)
    return trial.intermediate_values[last_step]
