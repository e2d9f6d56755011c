"""Makes the Optuna studies on which the notebook `slow_study` and the tests show a diagnosis."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

BEGAN = datetime.fromisoformat("2026-11-21T08:00:00")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trials:
    """Trials that end alike."""

    state: TrialState
    count: int
    startup_s: tuple[float, float]
    """Drawn between these two."""
    steps: tuple[int, int] = (0, 0)
    """The reported steps, drawn between these two."""
    step_s: float = 0.0
    """Each step takes so long, give or take a fifth."""


STARVED = (
    Trials(state=TrialState.PRUNED, count=173, startup_s=(30, 60), steps=(4, 6), step_s=5.5),
    Trials(state=TrialState.COMPLETE, count=8, startup_s=(30, 60), steps=(60, 60), step_s=5.5),
    Trials(state=TrialState.FAIL, count=15, startup_s=(30, 60)),
)
"""Many starts, little training: of 200 trials 8 are complete, 173 pruned and 15 failed; four still run."""
HEALTHY = (
    Trials(state=TrialState.COMPLETE, count=40, startup_s=(15, 25), steps=(20, 20), step_s=60.0),
    Trials(state=TrialState.PRUNED, count=19, startup_s=(15, 25), steps=(5, 10), step_s=60.0),
    Trials(state=TrialState.FAIL, count=1, startup_s=(15, 25)),
)
"""Long trials, few of them pruned, and late."""


def add(
    storage: str | optuna.storages.BaseStorage,
    name: str,
    kinds: tuple[Trials, ...],
    *,
    at_once: int,
    workers: int,
    running: int = 0,
) -> None:
    """Add a study whose trials ran `at_once`, in random order, each with so many loader workers; some still run."""
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
    study.add_trials(drawn(kinds, at_once, workers))
    for _ in range(running):
        study.ask()


def drawn(kinds: tuple[Trials, ...], at_once: int, workers: int, *, seed: int = 0) -> Iterator[FrozenTrial]:
    """Yield the trials of a study; `seed` is that of the random numbers."""
    numbers = random.Random(seed)
    order = [kind for kind in kinds for _ in range(kind.count)]
    numbers.shuffle(order)
    free_s = [0.0] * at_once
    space: dict[str, BaseDistribution] = {"num_workers": IntDistribution(workers, workers)}
    for kind in order:
        steps = numbers.randint(*kind.steps)
        train_s = sum(kind.step_s * numbers.uniform(0.8, 1.2) for _ in range(steps))
        began_s = min(free_s)
        ended_s = began_s + numbers.uniform(*kind.startup_s) + train_s
        free_s[free_s.index(began_s)] = ended_s
        trial = optuna.create_trial(
            state=kind.state,
            value=numbers.random() if kind.state == TrialState.COMPLETE else None,
            params={"num_workers": workers},
            distributions=space,
            intermediate_values={step: numbers.random() for step in range(1, steps + 1)},
        )
        trial.datetime_start = BEGAN + timedelta(seconds=began_s)
        trial.datetime_complete = BEGAN + timedelta(seconds=ended_s)
        yield trial
