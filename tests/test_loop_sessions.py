"""The loop over a trainer with sessions: what is measured warm, what again cold, and what without sessions."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import tests_loop
from tests_loop import CASE, Quiet, WithSessions, bench, busy, failed, measured, opened, spec, states, watched
from tests_replays import FakeClock

from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.quantities import HOUR_S
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import CaseOutcome, Ending, ProbeEnded
from tuner.running.job import RECOVER, Budget, Job, within_budget
from tuner.running.loop import optimize
from tuner.study.space import Config
from tuner.study.spec import StudySpec

pytestmark = pytest.mark.early

Probed = list[tuple[Config, bool]]


def optimized(
    folder: Path,
    probe: Callable[[ProbePlan, Stop], ProbeResult],
    *,
    study: StudySpec | None = None,
    open_session: Callable[[], str | None] = lambda: None,
    interrupted: Callable[[], bool] = lambda: False,
    recover: bool = False,
    budget: Budget | None = None,
) -> tuple[CaseOutcome, Quiet, Probed]:
    """Run a study; return the probed configs, and whether a session probed each."""
    probed: Probed = []

    def noted(plan: ProbePlan, stop: Stop) -> ProbeResult:
        warm = plan.request is not None
        probed.append((plan.config, warm))
        return replace(probe(plan, stop), warm=warm)

    chosen = study or spec()
    listener = Quiet()
    with opened(folder) as database:
        job = Job(
            bench=replace(bench(folder, chosen), trainer=WithSessions(chosen.trainer)),
            database=database,
            probe=noted,
            listener=listener,
            interrupted=interrupted,
            open_session=open_session,
        )
        job = within_budget(job, budget) if budget else job
        (outcome,) = optimize(replace(job, purpose=RECOVER) if recover else job, [CASE])
    return outcome, listener, probed


def best(folder: Path) -> dict[str, object]:
    found = tests_loop.best(folder)
    return {"config": found.config, "warm": found.is_warm, "value": found.value}


def test_all_are_probed_warm_and_the_best_again_cold(tmp_path: Path) -> None:
    outcome, _, probed = optimized(tmp_path, busy)
    assert (outcome.ending, outcome.probed, outcome.confirmed) == (Ending.TARGET, 6, 1)
    assert [warm for _, warm in probed] == [True] * 5 + [False]
    assert probed[-1][0] == probed[0][0]
    assert best(tmp_path)["warm"] is False
    outcome, _, probed = optimized(tmp_path, busy)
    assert (outcome.ending, probed) == (Ending.ALREADY, [])  # a second run confirms nothing twice


def test_the_time_left_holds_the_confirmation_which_starts_as_slowly_as_a_session(tmp_path: Path) -> None:
    launched: list[ProbePlan] = []

    def slow_to_open(plan: ProbePlan, stop: Stop) -> ProbeResult:
        launched.append(plan)
        return replace(busy(plan, stop), total_s=300.0 if len(launched) == 1 else 20.0)

    _, listener, _ = optimized(tmp_path, slow_to_open)
    *_, before_last, last_of_search, confirmation = [event.left_s for event in listener.of(ProbeEnded)]
    assert (before_last, last_of_search, confirmation) == (320.0, 300.0, None)


def test_the_end_of_a_limited_time_is_kept_for_a_confirmation_that_starts_anew(tmp_path: Path) -> None:
    clock = FakeClock()

    def slow_to_start(plan: ProbePlan, stop: Stop) -> ProbeResult:
        is_new = plan.request is None or clock.now() == 0.0
        result = replace(busy(plan, stop), total_s=300.0 if is_new else 20.0)
        clock.advance(result.total_s)
        return result

    study = spec(search={"trials": 60, "seeds_per_variant": 4, "sampler": "tpe"})
    _, _, probed = optimized(tmp_path, slow_to_start, study=study, budget=Budget(clock, 730.0 / HOUR_S))
    assert [warm for _, warm in probed][:7] == [True] * 6 + [False]  # the rest of the time holds a seventh in a session


def test_a_study_that_asks_for_it_has_no_sessions(tmp_path: Path) -> None:
    _, _, probed = optimized(tmp_path, busy, study=spec(probe={"warm": False}))
    assert [warm for _, warm in probed] == [False] * 5


def test_a_value_that_only_a_session_has_measured_is_not_the_best(tmp_path: Path) -> None:
    def flattering(plan: ProbePlan, stop: Stop) -> ProbeResult:
        top = plan.config == {"num_envs": 64, "agent_variant": "hiutil"}
        return measured(plan, 20.0 if top and plan.request is None else float(plan.config["num_envs"]))

    _, _, probed = optimized(
        tmp_path, flattering, study=spec(search={"trials": 8, "seeds_per_variant": 4, "sampler": "tpe"})
    )
    cold = [tuple(config.values()) for config, warm in probed if not warm]
    assert cold == [(64, "hiutil"), (64, "default")]
    assert best(tmp_path)["value"] == 64.0


def test_readings_within_the_noise_of_the_best_are_not_all_repeated(tmp_path: Path) -> None:
    def plateau(plan: ProbePlan, stop: Stop) -> ProbeResult:
        result = measured(plan, 60.0 + (plan.request is not None))
        return replace(result, devices=tuple(replace(device, util_se_pct=1.0) for device in result.devices))

    _, _, probed = optimized(tmp_path, plateau)
    assert [warm for _, warm in probed].count(False) == 1


@pytest.mark.parametrize("sampler", ["tpe", "gain"])
def test_a_confirmation_that_was_interrupted_is_done_by_the_next_run(tmp_path: Path, sampler: str) -> None:
    cold: list[bool] = []
    study = spec(search={"trials": 60, "sampler": sampler})

    def stopped(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if plan.request is not None:
            return busy(plan, stop)
        cold.append(True)
        return failed(plan, FailureKind.INTERRUPTED)

    outcome, _, first = optimized(tmp_path, stopped, study=study, interrupted=lambda: bool(cold))
    assert outcome.ending is Ending.INTERRUPTED
    _, _, second = optimized(tmp_path, busy, study=study)
    assert [(config["num_envs"], warm) for config, warm in second] == [(first[-1][0]["num_envs"], False)]
    assert best(tmp_path)["warm"] is False


@pytest.mark.parametrize("kind", [FailureKind.CRASH, FailureKind.MISSING_DEPENDENCY, FailureKind.HANG])
def test_sessions_that_fail_cost_a_study_nothing_but_time(tmp_path: Path, kind: FailureKind) -> None:
    def broken(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return busy(plan, stop) if plan.request is None else failed(plan, kind)

    outcome, listener, probed = optimized(tmp_path, broken)
    assert outcome.ending is Ending.TARGET
    assert [warm for _, warm in probed] == [True, False, True, False, False, False, False]
    assert probed[0][0] == probed[1][0] != probed[2][0] == probed[3][0]
    assert listener.told_status.count("ok") == 5
    assert states(tmp_path) == {"COMPLETE": 5, "FAIL": 2}


def test_a_config_that_the_plain_command_fails_on_as_well_is_no_fault_of_sessions(tmp_path: Path) -> None:
    def largest_crashes(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.CRASH) if int(plan.config["num_envs"]) == 64 else busy(plan, stop)

    _, _, probed = optimized(tmp_path, largest_crashes)
    crashed = [warm for config, warm in probed if config["num_envs"] == 64]
    assert crashed == [True, False, True, False]
    assert all(warm for config, warm in probed[:-1] if config["num_envs"] != 64)


def test_where_the_plain_command_fails_as_well_the_case_stops(tmp_path: Path) -> None:
    outcome, _, probed = optimized(tmp_path, lambda plan, stop: failed(plan, FailureKind.MISSING_DEPENDENCY, "trimesh"))
    assert outcome.ending is Ending.SETUP
    assert [warm for _, warm in probed] == [True, False]


def test_out_of_memory_in_a_session_is_the_config_s_own(tmp_path: Path) -> None:
    def small_card(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.GPU_OOM) if int(plan.config["num_envs"]) > 16 else busy(plan, stop)

    _, _, probed = optimized(tmp_path, small_card)
    failed_configs = [config for config, _ in probed if int(config["num_envs"]) > 16]
    assert all(warm for config, warm in probed if config in failed_configs)
    assert len(failed_configs) == len({tuple(config.items()) for config in failed_configs})


def test_what_the_open_session_can_serve_is_preferred(tmp_path: Path) -> None:
    command = {"name": "command", "options": {"command": "train {num_envs} {update_epochs}", "cases": ["walk"]}}
    space = {"num_envs": {"ladder": [8, 16, 32, 64]}, "update_epochs": {"range": [1, 12]}}
    search = {"trials": 10, "seeds_per_variant": 2, "sampler": "random"}
    starts = {}
    for priced in (False, True):
        keys: list[str] = []

        def session(plan: ProbePlan, stop: Stop, keys: list[str] = keys) -> ProbeResult:
            keys.append(plan.session_key)
            return busy(plan, stop)

        def open_session(keys: list[str] = keys, priced: bool = priced) -> str | None:
            return keys[-1] if keys and priced else None

        study = spec(trainer=command, space=space, search=search)
        optimized(tmp_path / str(priced), session, study=study, open_session=open_session)
        starts[priced] = sum(key != before for before, key in pairwise(keys))
    assert starts[True] < starts[False] - 1


def test_a_confirmation_is_measured_to_its_end(tmp_path: Path) -> None:
    pruner = {"name": "hyperband_patient", "min_resource": 1, "max_resource": 2, "patience": 1}

    def disappointing(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return watched(measured(plan, 90.0 if plan.request is not None else 5.0), stop)

    study = spec(pruner=pruner, search={"trials": 2, "seeds_per_variant": 2, "sampler": "tpe"})
    _, listener, probed = optimized(tmp_path, disappointing, study=study)
    assert [warm for _, warm in probed] == [True] * 2 + [False] * 2
    assert listener.told_status == ["ok"] * 4


def test_a_config_that_is_measured_again_is_measured_to_its_end(tmp_path: Path) -> None:
    pruner = {"name": "hyperband_patient", "min_resource": 1, "max_resource": 2, "patience": 1}
    space = {"num_envs": {"choices": [64]}, "agent_variant": {"choices": ["hiutil"]}}
    readings = iter([90.0, 5.0])

    def scattered(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return watched(measured(plan, next(readings)), stop)

    search = {"trials": 2, "sampler": "gain"}
    study = spec(pruner=pruner, space=space, search=search, probe={"warm": False})
    _, listener, _ = optimized(tmp_path, scattered, study=study)
    assert listener.told_status == ["ok"] * 2
    assert best(tmp_path)["value"] == 47.5


def test_gain_ends_by_itself_and_its_best_is_measured_cold(tmp_path: Path) -> None:
    outcome, _, probed = optimized(tmp_path, busy, study=spec(search={"trials": 100, "sampler": "gain"}))
    assert outcome.ending is Ending.EXHAUSTED
    assert outcome.why
    (cold,) = [config for config, warm in probed if not warm]
    assert best(tmp_path)["config"] == cold


TOP: Config = {"num_envs": 64, "agent_variant": "hiutil"}


@pytest.mark.parametrize("kind", [FailureKind.CRASH, FailureKind.NCCL])
def test_gain_measures_the_next_best_where_the_plain_command_fails_on_the_best(
    tmp_path: Path, kind: FailureKind
) -> None:
    def top_fails_cold(plan: ProbePlan, stop: Stop) -> ProbeResult:
        util = float(plan.config["num_envs"]) + 20.0 * (plan.config["agent_variant"] == "hiutil")
        return failed(plan, kind) if plan.config == TOP and plan.request is None else measured(plan, util)

    study = spec(search={"trials": 30, "sampler": "gain"})
    _, _, probed = optimized(tmp_path, top_fails_cold, study=study)
    assert (TOP, False) in probed
    assert best(tmp_path)["config"] != TOP
    assert best(tmp_path)["warm"] is False


@pytest.mark.parametrize(("sampler", "kind"), [("gain", FailureKind.GPU_OOM), ("tpe", FailureKind.CRASH)])
def test_what_only_sessions_can_run_is_not_exported_as_the_best(
    tmp_path: Path, sampler: str, kind: FailureKind
) -> None:
    cold: list[Config] = []

    def fails_cold(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if plan.request is not None:
            return busy(plan, stop)
        cold.append(plan.config)
        return failed(plan, kind)

    study = spec(search={"trials": 5, "sampler": sampler})
    optimized(tmp_path, fails_cold, study=study, interrupted=lambda: bool(cold))
    assert best(tmp_path)["config"] != cold[0]
    assert best(tmp_path)["warm"] is True
    _, _, probed = optimized(tmp_path, busy, study=study)
    assert probed[-1] == (best(tmp_path)["config"], False)
    assert cold[0] not in [config for config, _ in probed]


def test_recovery_goes_on_where_the_plain_command_fails_on_what_a_session_ran(tmp_path: Path) -> None:
    def small_card(plan: ProbePlan, stop: Stop) -> ProbeResult:
        most = 16 if plan.request is None else 64
        return failed(plan, FailureKind.CRASH) if int(plan.config["num_envs"]) > most else busy(plan, stop)

    outcome, _, probed = optimized(tmp_path, small_card, recover=True)
    assert outcome.why == "a config has run"
    assert [tuple(config.values()) for config, warm in probed if not warm][-1] == (16, "hiutil")
    assert best(tmp_path)["value"] == 16.0
    assert tests_loop.view(tmp_path).largest_ok == 16


@pytest.mark.parametrize(
    ("sampler", "kinds"), [("tpe", (FailureKind.NCCL,)), ("gain", (FailureKind.PORT_IN_USE, FailureKind.NCCL))]
)
def test_a_confirmation_that_the_machine_spoils_is_made_again(
    tmp_path: Path, sampler: str, kinds: tuple[FailureKind, ...]
) -> None:
    cold: list[Config] = []

    def spoiled(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if plan.request is None:
            cold.append(plan.config)
            if len(cold) <= len(kinds):
                return failed(plan, kinds[len(cold) - 1])
        return busy(plan, stop)

    optimized(tmp_path, spoiled, study=spec(search={"trials": 5, "sampler": sampler}))
    assert all(config == cold[0] for config in cold[: len(kinds) + 1])
    assert (best(tmp_path)["config"], best(tmp_path)["warm"]) == (cold[0], False)
