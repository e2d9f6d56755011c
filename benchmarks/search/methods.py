"""The methods that `tuner` is compared with, each in its recommended settings."""

import importlib.util
import random
import warnings
from collections.abc import Callable

import optuna
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import Trial, TrialState

from benchmarks.search.searching import Probing
from tuner.kept.stored import INELIGIBLE, MEMORY
from tuner.search.verdict import State
from tuner.study.space import LADDER, VARIANT, Config, Parameter, Space, Value, config_digest

GP_INSTALLED = all(map(importlib.util.find_spec, ("scipy", "torch")))
"""Whether the packages that Optuna's GP sampler imports are installed."""


def ladder(probing: Probing) -> None:
    """Probe each variant from the largest rung downwards, up to its first success, `hiutil` before `default`."""
    space = probing.ground.space
    for variant in space.values(VARIANT) or (None,):
        for rung in reversed(space.values(LADDER)):
            chosen = {LADDER: rung, VARIANT: variant}
            config = space.draw(lambda parameter, chosen=chosen: chosen.get(parameter.name) or parameter.values[0])
            if config in space and probing.probe(config).reading is not None:
                break


def grid(probing: Probing) -> None:
    """Probe every config, in the order of the space."""
    for config in probing.ground.configs:
        probing.probe(config)


def grid_thrice(probing: Probing) -> None:
    """Measure every config that works three times. This shows how well plain means find the best, at any price."""
    for config in probing.ground.configs:
        if probing.probe(config).reading is not None:
            for _ in range(2):
                probing.probe(config, confirms=True)


def shuffled(probing: Probing) -> None:
    """Probe every config in random order: random search without repeats."""
    configs = list(probing.ground.configs)
    random.Random(probing.seed).shuffle(configs)
    for config in configs:
        probing.probe(config)


def coordinate_descent(probing: Probing) -> None:
    """Take the best value of one parameter after another, from a random config. Begin anew where none is better."""
    _Descent(probing, _all_values).run()


def hill_climbing(probing: Probing) -> None:
    """Descend by coordinates, with steps to a neighbouring value only where values are ordered."""
    _Descent(probing, _neighbours).run()


def _all_values(parameter: Parameter, value: Value) -> list[Value]:
    return [other for other in parameter.values if other != value]


def _neighbours(parameter: Parameter, value: Value) -> list[Value]:
    if any(isinstance(other, str) for other in parameter.values):
        return _all_values(parameter, value)
    ordered = sorted(parameter.values)  # pyright: ignore[reportArgumentType] - numbers all
    place = ordered.index(value)
    return [ordered[near] for near in (place + 1, place - 1) if 0 <= near < len(ordered)]


class _Descent:
    """Probes nothing twice."""

    def __init__(self, probing: Probing, moves: Callable[[Parameter, Value], list[Value]]) -> None:
        self._probing = probing
        self._moves = moves
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
                moves = self._moves(parameter, config[parameter.name])
                rivals = (_changed(self._space, config, parameter.name, value) for value in moves)
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
    return space.draw(lambda parameter: wanted.get(parameter.name, parameter.values[0]))


def random_search(probing: Probing) -> None:
    """Draw every parameter at random."""
    _optuna(probing, optuna.samplers.RandomSampler(seed=probing.seed), constrained=False)


def tpe_fail(probing: Probing) -> None:
    """Search with Optuna's TPE by default settings; failed trials have the state FAIL."""
    _optuna(probing, TPESampler(seed=probing.seed), constrained=False)


def tpe_pruned(probing: Probing) -> None:
    """Search with Optuna's TPE by default settings; failed trials are PRUNED, memory and eligibility constraints."""
    _optuna(probing, TPESampler(seed=probing.seed), constrained=True)


def tpe_constrained(probing: Probing) -> None:
    """Search with Optuna's TPE. It is told the order of numbers, and that each failure is a constraint."""
    _optuna(probing, TPESampler(seed=probing.seed), constrained=True, told=True)


def gp(probing: Probing) -> None:
    """Search with Optuna's GP sampler by default settings; memory and eligibility are constraints.

    The sampler learns from complete trials alone. So a failed config gets the value of one that keeps nothing busy.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _optuna(probing, GPSampler(seed=probing.seed), constrained=True, failed=0.0)


def _optuna(
    probing: Probing, sampler: BaseSampler, *, constrained: bool, failed: float | None = None, told: bool = False
) -> None:
    """Search. A failed config gets the value `failed`, or no value where that is None.

    A config that the table lacks costs nothing and is pruned, so that no sampler asks for it for ever. With `told`, the
    sampler knows the order of numbers, and any failure is a constraint that is not kept.
    """
    space, study = probing.ground.space, optuna.create_study(direction="maximize", sampler=sampler)
    while True:
        trial = study.ask()
        config = space.draw(lambda parameter, trial=trial: _suggested(trial, parameter, ordered=told))
        step = probing.probe(config) if config in space else None
        if constrained:
            trial.set_constraint(MEMORY, (step and step.row.verdict.constraint) or 0.0)
            trial.set_constraint(INELIGIBLE, 1.0 if step and step.row.verdict.ineligible else 0.0)
        if told:
            trial.set_constraint("failed", 0.0 if step and step.reading is not None else 1.0)
        reading = failed if step is None or step.reading is None else step.reading
        if reading is not None:
            study.tell(trial, reading)
        else:
            pruned = step is None or told or (constrained and step.row.verdict.state is State.PRUNED)
            study.tell(trial, state=TrialState.PRUNED if pruned else TrialState.FAIL)


def _suggested(trial: Trial, parameter: Parameter, *, ordered: bool) -> Value:
    """Suggest rungs and ranges by their place, so that a sampler knows which values are neighbours.

    With `ordered`, this holds for every parameter of more than two numbers whose values are sorted.
    """
    numbers = ordered and len(parameter.values) > 2 and not any(isinstance(one, str) for one in parameter.values)
    if parameter.name == LADDER or parameter.is_range or numbers:
        return parameter.values[trial.suggest_int(parameter.name, 0, len(parameter.values) - 1)]
    return trial.suggest_categorical(parameter.name, parameter.values)  # pyright: ignore[reportReturnType]
