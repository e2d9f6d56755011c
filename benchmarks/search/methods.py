"""The methods that `tuner` is compared with, each in its recommended settings."""

import importlib
import importlib.util
import logging
import random
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import Trial, TrialState

from benchmarks.search.searching import Probing
from tuner.records.schema import INELIGIBLE, MEMORY
from tuner.study.space import LADDER, Condition, Config, Parameter, Space, Value, config_digest

GP_INSTALLED = all(map(importlib.util.find_spec, ("scipy", "torch")))
"""Whether the packages that Optuna's GP sampler imports are installed."""
SMAC_INSTALLED = importlib.util.find_spec("smac") is not None
"""Whether SMAC3 is installed: `pip install smac`."""
SMAC_TRIALS = 1_000_000
"""The trials that SMAC may make. The probing ends the search before that."""


def shuffled(probing: Probing) -> None:
    """Probe every config in random order: random search without repeats."""
    configs = list(probing.ground.configs)
    random.Random(probing.seed).shuffle(configs)
    for config in configs:
        probing.probe(config)


def coordinate_descent(probing: Probing) -> None:
    """Take the best value of one parameter after another, from a random config. Begin anew where none is better."""
    _Descent(probing).run()


class _Descent:
    """Probes nothing twice."""

    def __init__(self, probing: Probing) -> None:
        self._probing = probing
        self._space = probing.ground.space
        self._left = {config_digest(config): config for config in probing.ground.configs}
        self._readings: dict[str, float] = {}
        self._random = random.Random(probing.seed)

    def run(self) -> None:
        while self._left:
            config = self._random.choice(list(self._left.values()))
            self._reading(config)
            while (better := self._pass(config)) != config:
                config = better

    def _pass(self, config: Config) -> Config:
        for parameter in self._space.parameters:
            if parameter.name in config:
                others = (value for value in parameter.values if value != config[parameter.name])
                rivals = (_changed(self._space, config, parameter.name, value) for value in others)
                config = max([config, *(rival for rival in rivals if rival in self._space)], key=self._reading)
        return config

    def _reading(self, config: Config) -> float:
        digest = config_digest(config)
        if digest in self._left:
            step = self._probing.probe(self._left.pop(digest))
            bad = step.reading is None or step.row.verdict.ineligible
            self._readings[digest] = float("-inf") if bad else step.reading or 0.0
        return self._readings[digest]


def _changed(space: Space, config: Config, name: str, value: Value) -> Config:
    wanted = {**config, name: value}
    return space.config_of(lambda parameter: wanted.get(parameter.name, parameter.values[0]))


def tpe(probing: Probing) -> None:
    """Search with Optuna's TPE. It is told the order of numbers, and that each failure is a constraint."""
    _optuna(probing, TPESampler(seed=probing.seed), failed=None)


def gp(probing: Probing) -> None:
    """Search with Optuna's GP sampler by default settings; memory and eligibility are constraints.

    The sampler learns from complete trials alone. So a failed config gets the value of one that keeps nothing busy.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _optuna(probing, GPSampler(seed=probing.seed), failed=0.0)


def _optuna(probing: Probing, sampler: BaseSampler, *, failed: float | None) -> None:
    """Search. A failed config gets the value `failed`.

    Where that is None, a failed config is pruned, its failure is a constraint that is not kept, and the sampler knows
    the order of numbers. A config that the table lacks costs nothing and counts as failed.
    """
    space, study = probing.ground.space, optuna.create_study(direction="maximize", sampler=sampler)
    while True:
        trial = study.ask()
        config = space.config_of(lambda parameter, trial=trial: _suggested(trial, parameter, ordered=failed is None))
        step = probing.probe(config) if config in space else None
        trial.set_constraint(MEMORY, (step and step.row.verdict.constraint) or 0.0)
        trial.set_constraint(INELIGIBLE, 1.0 if step and step.row.verdict.ineligible else 0.0)
        if failed is None:
            trial.set_constraint("failed", 0.0 if step and step.reading is not None else 1.0)
        reading = failed if step is None or step.reading is None else step.reading
        study.tell(trial, reading, state=None if reading is not None else TrialState.PRUNED)


def _suggested(trial: Trial, parameter: Parameter, *, ordered: bool) -> Value:
    """Suggest rungs and ranges by their place, so that a sampler knows which values are neighbours.

    With `ordered`, this holds for every parameter of more than two numbers whose values are sorted.
    """
    numbers = ordered and len(parameter.values) > 2 and not any(isinstance(one, str) for one in parameter.values)
    if parameter.name == LADDER or parameter.is_range or numbers:
        return parameter.values[trial.suggest_int(parameter.name, 0, len(parameter.values) - 1)]
    return trial.suggest_categorical(parameter.name, parameter.values)  # pyright: ignore[reportReturnType]


def smac(probing: Probing) -> None:
    """Search as SMAC recommends for settings: a random forest, log expected improvement, few repeats of good configs.

    A failed config counts as one that keeps nothing busy. So does a config that the table lacks, at no cost.
    """
    package, history = importlib.import_module("smac"), importlib.import_module("smac.runhistory")
    exhausted = importlib.import_module("smac.main.exceptions").ConfigurationSpaceExhaustedException
    space = probing.ground.space
    with tempfile.TemporaryDirectory() as folder, suppress(exhausted):
        scenario = package.Scenario(
            _configuration_space(space, probing.seed),
            n_trials=SMAC_TRIALS,
            seed=probing.seed,
            output_directory=Path(folder),
        )
        facade = package.HyperparameterOptimizationFacade(
            scenario, lambda config, seed: 0.0, logging_level=logging.ERROR
        )
        while True:
            asked = facade.ask()
            busy, gpu_s = _probed(probing, _config(space, dict(asked.config)))
            facade.tell(asked, history.TrialValue(cost=-busy, time=gpu_s), save=False)


def _probed(probing: Probing, config: Config) -> tuple[float, float]:
    """Return the objective and the GPU-seconds of a probe."""
    if config not in probing.ground.space:
        return 0.0, 0.0
    step = probing.probe(config)
    return 0.0 if step.reading is None or step.row.verdict.ineligible else step.reading, step.gpu_s


def _configuration_space(space: Space, seed: int) -> Any:
    package = importlib.import_module("ConfigSpace")
    known = package.ConfigurationSpace(seed=seed)
    for parameter in space.parameters:
        ordered = parameter.name == LADDER or parameter.is_range
        kind = package.OrdinalHyperparameter if ordered else package.CategoricalHyperparameter
        known.add(kind(parameter.name, list(parameter.values)))
    for parameter in space.parameters:
        conditions = [
            package.InCondition(known[parameter.name], known[one.parameter], _holding(space, one))
            for one in parameter.conditions
        ]
        if conditions:
            known.add(conditions[0] if len(conditions) == 1 else package.AndConjunction(*conditions))
    return known


def _holding(space: Space, condition: Condition) -> list[Any]:
    return [value for value in space.values(condition.parameter) if condition.holds({condition.parameter: value})]


def _config(space: Space, chosen: dict[str, Any]) -> Config:
    """Return a config in the space's own types. SMAC returns numpy's types."""

    def pick(parameter: Parameter) -> Any:
        return parameter.values[parameter.values.index(chosen[parameter.name])]

    return space.config_of(pick)
