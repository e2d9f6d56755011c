"""The loop with two objectives: what is stored, when a probe ends, what is confirmed, and which front results."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import TrialState
from tests_loop import CASE, Quiet, WithSessions, bench, failed, measured, opened, spec, view

from tuner.errors import StoreError
from tuner.probe.probe_plan import Next, ProbePlan, Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import CaseOutcome, Ending
from tuner.running.job import RECOVER, Job
from tuner.running.loop import optimize
from tuner.study.space import Config, Value
from tuner.study.spec import StudySpec

pytestmark = pytest.mark.early

BOTH = "util,samples_per_s"
FRONT = [(8, "hiutil"), (16, "hiutil"), (32, "hiutil"), (64, "hiutil"), (64, "default")]
"""The front of the probes that `trading` returns, the highest utilisation first."""
Probing = Callable[[ProbePlan, Stop], ProbeResult]


def pareto(**changes: Any) -> StudySpec:
    return spec(**({"objective": BOTH, "search": {"trials": 8, "seeds_per_variant": 2}} | changes))


def reading(plan: ProbePlan) -> ProbeResult:
    """More environments give more samples/s. hiutil has more utilisation, and more of it with fewer environments."""
    rung, hiutil = int(plan.config["num_envs"]), plan.config["agent_variant"] == "hiutil"
    util_pct = 90.0 - rung / 4 if hiutil else 40.0
    return replace(measured(plan, util_pct), samples_per_s=rung * (10.0 if hiutil else 30.0), samples_per_s_se=0.1)


def trading(plan: ProbePlan, stop: Stop) -> ProbeResult:
    return reading(plan)


def optimized(
    folder: Path, probe: Probing, *, study: StudySpec | None = None, sessions: bool = False, recover: bool = False
) -> tuple[CaseOutcome, Quiet, list[tuple[Config, bool]]]:
    """Run a study; return the probed configs, and whether a session probed each."""
    probed: list[tuple[Config, bool]] = []
    chosen, listener = study or pareto(), Quiet()

    def noted(plan: ProbePlan, stop: Stop) -> ProbeResult:
        warm = plan.request is not None
        probed.append((plan.config, warm))
        return replace(probe(plan, stop), warm=warm)

    with opened(folder) as database:
        desk = bench(folder, chosen)
        if sessions:
            desk = replace(desk, trainer=WithSessions(chosen.trainer))
        job = Job(bench=desk, database=database, probe=noted, listener=listener, interrupted=lambda: False)
        (outcome,) = optimize(replace(job, purpose=RECOVER) if recover else job, [CASE])
    return outcome, listener, probed


def front(folder: Path) -> list[tuple[Value, Value, bool]]:
    """Return rung and variant of each member, and whether a session measured it."""
    members = view(folder).front
    return [(one.config["num_envs"], one.config["agent_variant"], one.is_warm) for one in members]


def stored(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name="demo/walk", storage=f"sqlite:///{folder / 'study.db'}")


def test_each_trial_carries_all_objectives_and_optuna_sees_the_same_front(tmp_path: Path) -> None:
    study = pareto(search={"trials": 8, "seeds_per_variant": 1, "sampler": "tpe"})
    outcome, listener, _ = optimized(tmp_path, trading, study=study)
    assert (outcome.ending, listener.told_status) == (Ending.TARGET, ["ok"] * 8)
    kept = stored(tmp_path)
    assert kept.directions == [StudyDirection.MAXIMIZE] * 2
    assert kept.metric_names == ["min_avg_util", "samples_per_s"]
    assert {tuple(trial.values) for trial in kept.trials} >= {(88.0, 80.0), (40.0, 1920.0)}
    assert {trial.number for trial in kept.best_trials} == {one.trial for one in view(tmp_path).front}
    assert front(tmp_path) == [(*member, False) for member in FRONT]


def test_running_out_of_memory_is_learnt_and_the_front_is_what_fits(tmp_path: Path) -> None:
    def small_card(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.GPU_OOM) if int(plan.config["num_envs"]) > 8 else reading(plan)

    study = pareto(search={"trials": 100, "seeds_per_variant": 2, "sampler": "random"})
    outcome, listener, probed = optimized(tmp_path, small_card, study=study)
    assert outcome.ending is Ending.EXHAUSTED
    for variant in ("hiutil", "default"):
        rungs = [config["num_envs"] for config, _ in probed if config["agent_variant"] == variant]
        assert rungs in ([64, 8, 16], [64, 8, 32, 16])
    out_of_memory = [trial for trial in stored(tmp_path).trials if trial.state == TrialState.PRUNED]
    assert len(out_of_memory) == listener.told_status.count("gpu_oom") >= 4
    assert {tuple((trial.constraints or {}).items()) for trial in out_of_memory} == {(("memory_gib", 1.0),)}
    assert front(tmp_path) == [(8, "hiutil", False), (8, "default", False)]


def test_configs_that_may_not_be_the_best_are_not_on_the_front(tmp_path: Path) -> None:
    optimized(tmp_path, trading, study=pareto(constraints={"samples_per_s": ">= 0.3 * default", "util_spread": "<= 1"}))
    assert len(front(tmp_path)) == 5
    optimized(tmp_path / "kept", trading, study=pareto(constraints={"min_avg_util": "<= 80"}))
    assert front(tmp_path / "kept") == [(64, "hiutil", False), (64, "default", False)]


def test_no_probe_is_stopped_because_another_is_better(tmp_path: Path) -> None:
    iterations: list[int] = []

    def live(plan: ProbePlan, stop: Stop) -> ProbeResult:
        better = plan.config == {"num_envs": 64, "agent_variant": "hiutil"}
        so_far = replace(measured(plan, 90.0 if better else 1.0), samples_per_s=900.0 if better else 1.0)
        so_far = replace(so_far, devices=tuple(replace(one, util_se_pct=1.5) for one in so_far.devices))
        for count in range(1, 8):
            assert stop(replace(so_far, iterations=count)).next in {Next.GO, Next.MORE}
            iterations.append(count)
        return so_far

    pruner = {"name": "hyperband_patient", "min_resource": 1, "max_resource": 2, "patience": 1}
    _, listener, _ = optimized(tmp_path, live, study=pareto(pruner=pruner))
    assert listener.told_status == ["ok"] * 8
    assert len(iterations) == 8 * 7
    assert not any(trial.intermediate_values for trial in stored(tmp_path).trials)


def test_a_probe_ends_when_every_objective_is_known_well_enough(tmp_path: Path) -> None:
    ended: list[int] = []

    def live(plan: ProbePlan, stop: Stop) -> ProbeResult:
        result = measured(plan, 50.0)
        result = replace(result, devices=tuple(replace(one, util_se_pct=0.1) for one in result.devices))
        for count in range(4, 8):
            error = 10.0 if count < 6 else 1.0
            so_far = replace(result, iterations=count, samples_per_s=100.0, samples_per_s_se=error)
            if stop(so_far).next is Next.ENOUGH:
                ended.append(count)
                return so_far
        raise AssertionError

    optimized(tmp_path, live, study=pareto(search={"trials": 2}, probe={"min_iterations": 4}))
    assert ended == [6, 6]


def test_each_member_that_a_session_measured_is_measured_again_cold(tmp_path: Path) -> None:
    outcome, _, probed = optimized(tmp_path, trading, sessions=True)
    assert [tuple(config.values()) for config, warm in probed if not warm] == FRONT
    assert (outcome.ending, len(probed)) == (Ending.TARGET, 8 + 5)
    assert front(tmp_path) == [(*member, False) for member in FRONT]
    again, _, more = optimized(tmp_path, trading, sessions=True)
    assert (again.ending, more) == (Ending.ALREADY, [])


def test_a_best_that_the_plain_command_does_not_confirm_is_replaced_by_the_next(tmp_path: Path) -> None:
    def flattering(plan: ProbePlan, stop: Stop) -> ProbeResult:
        flattered = plan.request is not None and plan.config == {"num_envs": 8, "agent_variant": "default"}
        return replace(measured(plan, 99.0), samples_per_s=9e9) if flattered else reading(plan)

    _, _, probed = optimized(tmp_path, flattering, sessions=True)
    cold = [tuple(config.values()) for config, warm in probed if not warm]
    assert cold[0] == (8, "default")
    assert cold[1:] == FRONT
    assert front(tmp_path) == [(*member, False) for member in FRONT]


def test_a_member_that_the_plain_command_fails_on_is_none(tmp_path: Path) -> None:
    def only_warm(plan: ProbePlan, stop: Stop) -> ProbeResult:
        top = plan.request is None and plan.config == {"num_envs": 64, "agent_variant": "default"}
        return failed(plan, FailureKind.GPU_OOM) if top else reading(plan)

    optimized(tmp_path, only_warm, sessions=True)
    assert (64, "default") not in [member[:2] for member in front(tmp_path)]
    assert (32, "default", False) in front(tmp_path)


def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    _, _, first = optimized(tmp_path, trading, study=pareto(search={"trials": 2}))
    outcome, _, second = optimized(tmp_path, trading, study=pareto(search={"trials": 4}))
    assert (outcome.ending, len(first), len(second)) == (Ending.TARGET, 2, 2)
    assert not [config for config in second if config in first]


@pytest.mark.parametrize(
    ("first", "second"),
    [("min_avg_util", BOTH), (BOTH, "samples_per_s"), (BOTH, "samples_per_s,util"), (BOTH, "util,sm,samples_per_s")],
)
def test_other_objectives_are_refused_with_what_changed(tmp_path: Path, first: str, second: str) -> None:
    before, after = (pareto(objective=named, search={"trials": 1}) for named in (first, second))
    optimized(tmp_path, trading, study=before)
    with pytest.raises(StoreError) as refusal:
        optimized(tmp_path, trading, study=after)
    assert f"objective: was {before.objective!r}, is {after.objective!r}" in str(refusal.value)
    assert "start anew" in str(refusal.value)


def test_a_case_without_success_can_be_recovered(tmp_path: Path) -> None:
    _, _, probed = optimized(tmp_path, trading, recover=True)
    assert probed == [({"num_envs": 64, "agent_variant": "hiutil"}, False)]
    assert front(tmp_path) == [(64, "hiutil", False)]


def test_the_rungs_of_an_auto_ladder_are_made_for_several_objectives_too(tmp_path: Path) -> None:
    space = {"num_envs": {"ladder": "auto", "min": 8, "max": 64}, "agent_variant": {"choices": ["hiutil", "default"]}}
    outcome, listener, _ = optimized(tmp_path, trading, study=pareto(space=space))
    assert listener.fixed == [(8, 16, 32, 64)]
    assert outcome.ending is Ending.TARGET
