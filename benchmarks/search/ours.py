"""The project's own strategies on a table, as its loop drives them."""

import math
from collections.abc import Callable
from dataclasses import replace

import optuna
from optuna.study import Study

from benchmarks.search.searching import Probing, Step
from tuner.probe.metrics import largest_value
from tuner.records.schema import COST, ERROR, PROBE
from tuner.records.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.choosing import Choice, History, Strategy, confirmation
from tuner.search.gain.chooser import Gain, by_gain
from tuner.search.gain.expected_gain import Goal
from tuner.search.strategies import by_drawing
from tuner.search.trials import running
from tuner.study.space import Config
from tuner.study.spec import SearchSpec

Best = Callable[[History], Config | None]


def search(probing: Probing, strategy: Strategy, best: Best | None = None) -> None:
    """Search until nothing is left to probe, then measure the best by the plain command, as a study does.

    `best` returns what a strategy believes to be the best, where that is not what reads best.
    """
    space, study = probing.ground.space, optuna.create_study(direction="maximize")
    while choice := _next(strategy, History(study, space), probing):
        probing.left.append(choice.trials_left)
        _add(study, probing, probing.probe(choice.config, cold=choice.cold))
        if best is not None:
            probing.recommended[-1] = best(History(study, space))


def _next(strategy: Strategy, history: History, probing: Probing) -> Choice | None:
    answer = strategy.choose(history, probing.starts_needed)
    if isinstance(answer, Choice):
        probing.ended = None
        return answer
    probing.ended = answer.reason
    config = strategy.confirm(history, probing.starts_needed)
    return confirmation(config) if config else None


def gain(probing: Probing) -> None:
    """Probe what gains most per second, by the sampler that a study of this table would have.

    Some of `ladders` hold samples per second in place of the utilisation. They have no ceiling.
    """
    ground = probing.ground
    ceiling = largest_value(ground.header.objective)
    goal = Goal(ceiling=ceiling if ground.best.value <= ceiling else math.inf)
    chosen = Gain(ground.space, ground.header.limits, goal=goal)
    search(probing, by_gain(ground.space, chosen), chosen.best)


def tpe(probing: Probing) -> None:
    """Probe the seeds, then what TPE draws."""
    search(probing, by_drawing(probing.ground.space, SearchSpec(seed=probing.seed)))


def _add(study: Study, probing: Probing, step: Step) -> None:
    verdict, result = step.row.verdict, step.row.result
    facts = {ERROR: verdict.error, PROBE: {"status": verdict.status, "warm": step.warm}}
    if not result.failure:
        facts[COST] = took(step, step.gpu_s / probing.ground.devices - step.row.run_s)
    trial = running(probing.ground.space, step.config, {name: fact for name, fact in facts.items() if fact})
    for name, violation in verdict.constraints.items():
        trial.set_constraint(name, violation)
    study.add_trial(trial)
    values = replace(verdict, value=step.reading).values
    study.tell(len(study.get_trials(deepcopy=False)) - 1, values, state=verdict.state)


def took(step: Step, start_s: float) -> dict[str, float]:
    """Return what a probe took, as a study keeps it: the share of memory, the seconds of start and run."""
    shares = [
        one.mem_peak_mib / one.mem_total_mib
        for one in step.row.result.devices
        if one.mem_peak_mib and one.mem_total_mib
    ]
    amounts = {MEMORY_SHARE: max(shares, default=None), START_S: start_s, RUN_S: step.row.run_s}
    return {name: amount for name, amount in amounts.items() if amount}
