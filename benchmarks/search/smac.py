"""SMAC3, for the comparison where it is installed: `pip install smac`."""

import importlib
import importlib.util
import logging
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.search.searching import Probing
from tuner.study.space import LADDER, Condition, Config, Parameter, Space

INSTALLED = importlib.util.find_spec("smac") is not None
_NO_END = 1_000_000
"""The trials that SMAC may make. The probing ends the search before that."""


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
            n_trials=_NO_END,
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
    step = probing.probe(config, confirms=any(one.config == config for one in probing.steps))
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

    return space.draw(pick)
