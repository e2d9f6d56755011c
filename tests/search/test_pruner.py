"""The pruners in an in-memory study with invented utilisations."""

from collections.abc import Sequence

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.pruners import BasePruner, NopPruner
from optuna.trial import FrozenTrial
from tests_space import USUAL

from tuner.search.samplers import StrategySampler
from tuner.search.strategies import GuardedPruner, build_pruner, by_drawing
from tuner.search.trials import suggest
from tuner.study.space import PATIENCE, config_digest
from tuner.study.spec import PrunerSpec, SearchSpec

PATIENCES: dict[str, BaseDistribution] = {PATIENCE: CategoricalDistribution((1, 2, 3, 4))}
ITERATIONS = 8


class Advice(BasePruner):
    """A pruner that wants to stop at the given steps."""

    def __init__(self, *steps: int) -> None:
        self._steps = steps

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        return trial.last_step in self._steps


ALWAYS = Advice(*range(100))


def make_study(pruner: BasePruner, *, best: float | None = 60.0) -> optuna.Study:
    study = optuna.create_study(study_name="demo/walk", direction="maximize", pruner=pruner)
    if best is not None:
        study.tell(study.ask(), best)
    return study


def stopped_at(study: optuna.Study, values: Sequence[float], patience: int | None = None) -> int | None:
    """Report one value after the other. Return the step, from 1, at which the pruner stops the probe."""
    if patience is not None:
        study.enqueue_trial({PATIENCE: patience})
    trial = study.ask(PATIENCES if patience is not None else None)
    for step, value in enumerate(values, start=1):
        trial.report(value, step)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return step
    study.tell(trial, values[-1])
    return None


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_a_probe_far_below_the_best_is_stopped_once_patience_ends(patience: int) -> None:
    study = make_study(GuardedPruner(ALWAYS, patience=patience, margin_pct=10))
    assert stopped_at(study, [50.0] * ITERATIONS) == patience


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_the_trial_s_own_patience_counts(patience: int) -> None:
    study = make_study(GuardedPruner(ALWAYS, patience=3, margin_pct=10))
    assert stopped_at(study, [50.0] * ITERATIONS, patience) == patience


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.integers(1, 4), st.floats(0, 50))
def test_only_patience_values_in_a_row_below_the_margin_stop_a_probe(
    values: list[float], patience: int, margin_pct: float
) -> None:
    best, limit = 60.0, 60.0 * (1 - margin_pct / 100)
    low = [
        position for position in range(patience, len(values) + 1) if max(values[position - patience : position]) < limit
    ]
    study = make_study(GuardedPruner(ALWAYS, patience=patience, margin_pct=margin_pct), best=best)
    assert stopped_at(study, values) == min(low, default=None)


def test_a_probe_near_the_best_runs_to_its_end() -> None:
    study = make_study(GuardedPruner(ALWAYS, patience=1, margin_pct=10))
    assert stopped_at(study, [54.5] * ITERATIONS) is None


def test_a_lucky_reading_of_the_best_is_no_more_to_beat_than_its_mean() -> None:
    study = make_study(GuardedPruner(ALWAYS, patience=1, margin_pct=10))
    study.tell(study.ask(), 80.0)  # the best was 60 before
    assert stopped_at(study, [64.0] * ITERATIONS) is None
    assert stopped_at(study, [56.0] * ITERATIONS) == 1


def test_one_good_iteration_ends_the_waiting() -> None:
    study = make_study(GuardedPruner(ALWAYS, patience=3, margin_pct=10))
    assert stopped_at(study, [20.0, 20.0, 58.0, 20.0, 20.0, 20.0]) == 6


def test_without_advice_no_probe_is_stopped() -> None:
    study = make_study(GuardedPruner(NopPruner(), patience=1, margin_pct=0))
    assert stopped_at(study, [1.0] * ITERATIONS) is None


def test_advice_given_once_holds_while_patience_lasts() -> None:
    study = make_study(GuardedPruner(Advice(2), patience=4, margin_pct=10))
    assert stopped_at(study, [20.0] * ITERATIONS) == 4


def test_without_a_complete_trial_no_probe_is_stopped() -> None:
    study = make_study(GuardedPruner(ALWAYS, patience=1, margin_pct=0), best=None)
    assert stopped_at(study, [1.0] * ITERATIONS) is None


def stops(name: str, bad_util: float) -> list[int | None]:
    """Return where each of six bad probes was stopped, after twenty good ones."""
    study = make_study(build_pruner(PrunerSpec.model_validate({"name": name}), ITERATIONS), best=None)
    for util in range(50, 70):
        trial = study.ask()
        for step in range(1, ITERATIONS + 1):
            trial.report(float(util), step)
            trial.should_prune()
        study.tell(trial, float(util))
    return [stopped_at(study, [bad_util - index / 10] * ITERATIONS) for index in range(6)]


def test_the_pruner_stops_clearly_bad_probes_and_leaves_probes_near_the_best_alone() -> None:
    assert [step for step in stops("hyperband_patient", 20.0) if step is not None]
    assert stops("hyperband_patient", 60.0) == [None] * 6


def test_no_pruner_stops_nothing() -> None:
    assert stops("none", 0.0) == [None] * 6


def test_no_pruner_acts_before_its_least_resource() -> None:
    assert 1 not in stops("hyperband_patient", 20.0)


def test_the_sampler_sees_the_whole_study_under_the_pruner() -> None:
    study = make_study(build_pruner(PrunerSpec(), ITERATIONS), best=None)
    study.sampler = StrategySampler(USUAL, by_drawing(USUAL, SearchSpec(seeds_per_variant=4)))
    asked: list[str] = []
    for _ in range(20):
        trial = study.ask()
        asked.append(config_digest(suggest(trial, USUAL)))
        trial.report(50.0, 1)
        trial.should_prune()
        study.tell(trial, 50.0)
    assert len(set(asked)) == len(asked)
