"""The strategies: which choosers choose, in which order."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tuner.probe.metrics import full
from tuner.search.batch_calibration import BatchCalibration, BatchToFit
from tuner.search.calibration import Calibration
from tuner.search.choosing import Strategy, retry
from tuner.search.drawing import Drawn, Seeds
from tuner.search.firsts import DefaultFirst, SiblingsFirst
from tuner.search.gain.chooser import Gain
from tuner.search.gain.goal import Goal
from tuner.search.ordered import Ordered, downwards, until_one_runs
from tuner.search.siblings import Sibling
from tuner.study.space import Config, Space
from tuner.study.spec import SearchSpec, StudySpec

Siblings = Callable[[], Sequence[Sibling]]
"""Looks up the cases that are like a case. Called only where they matter."""


def searching(space: Space, spec: StudySpec, resumed_at: int, siblings: Siblings) -> Strategy:
    """Return the strategy that the study file names. `resumed_at`: the number of trials so far."""
    known = siblings()
    if spec.sampler == "gain":
        return by_gain(space, Gain(space, spec.probe, goal=_goal(spec), siblings=known), known)
    return by_drawing(space, spec.search, known, resumed_at=resumed_at)


def _goal(spec: StudySpec) -> Goal:
    """Return when a search has found enough."""
    return Goal(
        training_hours=spec.search.training_hours,
        ceiling=full(spec.objectives[0]),
    )


def by_gain(space: Space, gain: Gain, siblings: Sequence[Sibling] = ()) -> Strategy:
    """Choose the siblings' best configs, then what gains most. A search may end before each sibling had its turn."""
    return Strategy(
        choosers=(retry, gain.ended, SiblingsFirst(space, siblings).choose, gain.choose), confirmer=gain.confirm
    )


def by_drawing(space: Space, search: SearchSpec, siblings: Sequence[Sibling] = (), *, resumed_at: int = 0) -> Strategy:
    """Choose the siblings' best configs, then the seeds, then what TPE or a random sampler draws."""
    seeds, drawn = Seeds(space, search.seeds_per_variant), Drawn(space, search, resumed_at=resumed_at)
    return Strategy(choosers=(retry, SiblingsFirst(space, siblings).choose, seeds.choose, drawn.choose))


def in_order(configs: Sequence[Config]) -> Strategy:
    """Probe a list of configs, as a recording does."""
    return Strategy(choosers=(retry, Ordered(configs).choose))


def recovery(space: Space) -> Strategy:
    """Go down the ladder until one config runs, for a case that has had no success."""
    return Strategy(choosers=(until_one_runs, retry, Ordered(downwards(space)).choose))


def calibration(space: Space) -> Strategy:
    """Probe small rungs, from which the rungs of an `auto` ladder are made."""
    steps = Calibration(space)
    return Strategy(choosers=(steps.ended, retry, steps.choose))


def batch_calibration(batch: BatchToFit) -> Strategy:
    """Probe small batch sizes, from which a batch size that is `auto` is worked out."""
    steps = BatchCalibration(batch)
    return Strategy(choosers=(steps.ended, retry, steps.choose))


def defaults_first(strategy: Strategy, space: Space) -> Strategy:
    """Probe the default config of each rung before any other config of the rung."""
    return replace(strategy, choosers=(DefaultFirst(space, strategy.choosers).choose,))
