"""The loop over scripted probes: what is probed, stored and resumed, and when a case ends."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests_loop import CASE, Quiet, bench, busy, failed, measured, opened, reader, spec, states, view, watched
from tests_replays import FakeClock

from tuner.cli.hints import what_to_repair
from tuner.errors import LaunchError, OutputError, StoreError, StudyError
from tuner.probe.probe_plan import Next, ProbePlan, Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import CaseOutcome, CaseStarted, Ending, ProbeEnded, ProbeRunning
from tuner.running.job import SEARCH, Job, Pulse
from tuner.running.loop import optimize
from tuner.search.choosing import Strategy
from tuner.study.cases import Case
from tuner.study.space import Config, Space
from tuner.study.spec import StudySpec

pytestmark = pytest.mark.early


def optimized(
    folder: Path,
    probe: Callable[[ProbePlan, Stop], ProbeResult],
    *,
    study: StudySpec | None = None,
    trials: int | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> tuple[CaseOutcome, Quiet]:
    listener = Quiet()
    with opened(folder) as database:
        job = Job(
            bench=bench(folder, study or spec()),
            database=database,
            probe=probe,
            listener=listener,
            interrupted=interrupted,
            trials=trials,
        )
        (outcome,) = optimize(job, [CASE])
    return outcome, listener


class Plain(NamedTuple):
    """A search of five trials that nothing disturbs: its folder, its end and what its listener heard."""

    folder: Path
    outcome: CaseOutcome
    listener: Quiet


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("plain")
    return Plain(folder, *optimized(folder, busy))


def test_seeds_come_first_and_no_config_twice(plain: Plain) -> None:
    listener = plain.listener
    assert plain.outcome.ending is Ending.TARGET
    assert [(config["num_envs"], config["agent_variant"]) for config in listener.launched[:4]] == [
        (64, "hiutil"),
        (64, "default"),
        (8, "hiutil"),
        (8, "default"),
    ]
    assert len({tuple(config.items()) for config in listener.launched}) == len(listener.launched) == 5


def test_of_equal_configs_the_nearest_to_the_default_is_the_best_so_far(plain: Plain) -> None:
    assert [event.leads for event in plain.listener.of(ProbeEnded)] == [True, True, False, False, False]


@pytest.mark.parametrize("sampler", ["random", "gain"])
def test_a_trial_is_the_best_so_far_by_the_rule_of_the_end(tmp_path: Path, sampler: str) -> None:
    # the second one's gain may be chance; at the end, any sampler measures the own command again
    speeds = iter([(100.0, 5.0), (112.0, 7.0), (150.0, 1.0), (100.0, 5.0)])

    def faster(plan: ProbePlan, stop: Stop) -> ProbeResult:
        speed, error = next(speeds)
        return replace(measured(plan, 50.0), samples_per_s=speed, samples_per_s_se=error)

    trainer = {"name": "command", "options": {"command": "train {workers}", "cases": ["walk"]}}
    search = {"trials": 3, "sampler": sampler}
    study = spec(objective="samples_per_s", trainer=trainer, space={"workers": {"choices": [1, 2, 4]}}, search=search)
    _, listener = optimized(tmp_path, faster, study=study)
    assert [event.leads for event in listener.of(ProbeEnded)] == [True, False, True, False]
    assert [config["workers"] for config in listener.launched].count(1) == 2
    assert listener.of(ProbeEnded)[2].left_s == 20.0  # for the own command's second reading


def test_the_listener_hears_how_far_the_search_has_come(plain: Plain) -> None:
    told = [(event.finished, event.target, event.left_s) for event in plain.listener.of(ProbeEnded)]
    assert told == [(n, 5, 20.0 * (5 - n)) for n in range(1, 6)]


def test_what_has_changed_since_the_newest_measurement_is_told(tmp_path: Path) -> None:
    def with_torch(version: str) -> Callable[[ProbePlan, Stop], ProbeResult]:
        return lambda plan, _: replace(measured(plan, 50.0), host={"cores": "999", "torch": version})

    optimized(tmp_path, with_torch("2.1"), trials=1)
    _, listener = optimized(tmp_path, with_torch("2.2"), trials=2)
    (started,) = listener.of(CaseStarted)
    assert [change.partition(" →")[0] for change in started.changed] == ["cores 999"]
    assert view(tmp_path).trials[-1].probe.notes == ("torch 2.1 → 2.2 since the newest trial, so speeds may differ",)


def test_another_script_in_another_folder_does_not_resume_a_study(tmp_path: Path) -> None:
    """People who share a database may give their studies the same name."""

    def of(folder: str, text: str) -> StudySpec:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "train.py").write_text(text)
        options = {"command": "python train.py {num_envs}", "cases": ["walk"]}
        return spec(trainer={"name": "command", "root": str(tmp_path / folder), "options": options})

    def known(plan: ProbePlan, stop: Stop) -> ProbeResult:
        file = plan.cwd / "train.py"
        host = {"script": f"train.py {file.read_text()}", "folder": str(plan.cwd)}
        return replace(measured(plan, 50.0), host=host)

    optimized(tmp_path, known, study=of("mine", "a"), trials=1)
    optimized(tmp_path, known, study=of("mine", "b"), trials=2)  # a script that was edited
    with pytest.raises(StudyError, match=re.escape(f"another train.py in {tmp_path / 'mine'}; give this one another")):
        optimized(tmp_path, known, study=of("theirs", "c"), trials=3)
    assert len(view(tmp_path).trials) == 2


def test_the_listener_hears_of_the_running_probe_as_often_as_it_wants_to(tmp_path: Path) -> None:
    clock, listener = FakeClock(), Quiet()

    def slow(plan: ProbePlan, stop: Stop) -> ProbeResult:
        result = replace(measured(plan, 60.0), samples_per_s=900.0)
        for so_far in (None, None, replace(result, window_s=None, iterations=1), None, result, None):
            clock.advance(0.6)
            stop(so_far)
        return result

    with opened(tmp_path) as database:
        job = Job(
            bench=bench(tmp_path, spec()),
            database=database,
            probe=slow,
            listener=listener,
            pulse=Pulse(every_s=1.0, clock=clock, utilisation=lambda: (50.0, None)),
            interrupted=lambda: False,
            trials=1,
        )
        optimize(job, [CASE])
    told = listener.of(ProbeRunning)
    assert [event.seconds for event in told] == pytest.approx([1.2, 2.4, 3.6])
    assert [(event.phase, event.iteration) for event in told] == [("starting", None), ("warm-up", 1), ("measuring", 7)]
    assert (told[2].value, told[2].samples_per_s, told[2].utilisation) == (60.0, 900.0, (50.0, None))


def test_a_later_case_that_cannot_be_searched_is_reported_before_the_first_probe(tmp_path: Path) -> None:
    template = {"command": "train {num_envs} {agent_variant} {first} {out_dir}", "cases": ["walk", "run"]}
    study = spec(
        trainer={"name": "command", "options": template},
        space={"num_envs": {"ladder": [8]}, "agent_variant": {"choices": ["default"]}, "first": {"choices": [1]}},
        search={"sampler": "gain"},
        overrides=[{"match": {"cases": ["run"]}, "space": {"first": {"range": [1, 1000]}}}],
    )

    def strategy(space: Space, *given: Any) -> Strategy:
        if len(space.values("first")) > 1:
            raise StudyError("no sampler for this space")
        return SEARCH.strategy(space, *given)

    listener = Quiet()
    with opened(tmp_path) as database:
        job = Job(
            bench=bench(tmp_path, study),
            database=database,
            probe=busy,
            listener=listener,
            interrupted=lambda: False,
            purpose=replace(SEARCH, strategy=strategy),
        )
        with pytest.raises(StudyError, match="case run: no sampler for this space"):
            optimize(job, [CASE, Case(name="run")])
    assert listener.launched == []


def test_a_second_run_does_nothing_and_says_so(plain: Plain) -> None:
    outcome, listener = optimized(plain.folder, busy)
    assert (outcome.ending, listener.launched) == (Ending.ALREADY, [])


def test_a_larger_target_goes_on_without_redoing_work(tmp_path: Path) -> None:
    _, first = optimized(tmp_path, busy, trials=3)
    _, second = optimized(tmp_path, busy, trials=6)
    assert len(second.launched) == 3
    assert not [config for config in second.launched if config in first.launched]


def test_the_space_can_be_exhausted(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path, busy, trials=100)
    assert (outcome.ending, len(listener.launched)) == (Ending.EXHAUSTED, 8)
    assert outcome.why == "every config has been probed or cannot fit"


@pytest.mark.parametrize(("start_up_s", "epochs"), [(None, [30]), (5.0, [20, 30])])
def test_a_rung_too_slow_to_start_is_left_and_one_too_slow_to_run_is_tried_with_less(
    tmp_path: Path, start_up_s: float | None, epochs: list[int]
) -> None:
    space = {"num_envs": {"ladder": [64]}, "update_epochs": {"choices": [30, 20, 40]}}

    def slow(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if plan.config["update_epochs"] == 20:
            return busy(plan, stop)
        return replace(failed(plan, FailureKind.TOO_SLOW), start_up_s=start_up_s)

    command = {"command": "train {num_envs} {update_epochs}", "cases": ["walk"]}
    study = spec(trainer={"name": "command", "options": command}, space=space, search={"sampler": "gain"})
    _, listener = optimized(tmp_path, slow, study=study)
    assert sorted({int(config["update_epochs"]) for config in listener.launched}) == epochs


def test_what_must_run_out_of_memory_is_never_launched(tmp_path: Path) -> None:
    def small_card(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.GPU_OOM) if int(plan.config["num_envs"]) > 8 else busy(plan, stop)

    outcome, listener = optimized(tmp_path, small_card, trials=100)
    assert outcome.ending is Ending.EXHAUSTED
    for variant in ("hiutil", "default"):
        rungs = [config["num_envs"] for config in listener.launched if config["agent_variant"] == variant]
        assert rungs in ([64, 8, 16], [64, 8, 32, 16])
    assert listener.told_status.count("ok") == 2


def test_a_host_s_failure_is_tried_once_more(tmp_path: Path) -> None:
    attempts: list[Config] = []

    def flaky(plan: ProbePlan, stop: Stop) -> ProbeResult:
        attempts.append(plan.config)
        return failed(plan, FailureKind.NCCL) if len(attempts) == 1 else busy(plan, stop)

    outcome, _ = optimized(tmp_path, flaky)
    assert outcome.ending is Ending.TARGET
    assert attempts[0] == attempts[1]
    assert len(attempts) == 6


def test_a_missing_dependency_stops_the_case_with_its_name(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path, lambda plan, stop: failed(plan, FailureKind.MISSING_DEPENDENCY, "trimesh"))
    assert outcome.ending is Ending.SETUP
    assert outcome.failure is not None
    assert outcome.failure.detail == "trimesh"
    assert len(listener.launched) == 1


def test_where_the_first_case_lacks_a_dependency_no_other_case_is_tried(tmp_path: Path) -> None:
    def without(kind: FailureKind) -> int:
        folder = tmp_path / kind
        with opened(folder) as database:
            job = Job(
                bench=bench(folder, spec()),
                database=database,
                probe=lambda plan, _: failed(plan, kind),
                interrupted=bool,
            )
            return len(optimize(job, [CASE, Case(name="run")]))

    assert (without(FailureKind.MISSING_DEPENDENCY), without(FailureKind.MISSING_ASSET)) == (1, 2)


def test_a_trainer_that_cannot_be_started_stops_the_case_and_leaves_no_trial_open(tmp_path: Path) -> None:
    def absent(plan: ProbePlan, stop: Stop) -> ProbeResult:
        raise LaunchError("the trainer cannot be started: no train")

    outcome, _ = optimized(tmp_path, absent)
    assert (outcome.ending, outcome.probed) == (Ending.SETUP, 1)
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.detail) == (
        FailureKind.INVALID_COMMAND,
        "the trainer cannot be started: no train",
    )
    assert states(tmp_path) == {"FAIL": 1}


def test_an_objective_that_nothing_measures_stops_the_case_with_its_name(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path, busy, study=spec(objective="samples_per_s"))
    assert (outcome.ending, len(listener.launched)) == (Ending.UNREAD, 3)
    assert "samples_per_s" in (outcome.why or "")


def test_three_crashes_in_a_row_stop_the_case(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path, lambda plan, stop: failed(plan, FailureKind.CRASH))
    assert (outcome.ending, len(listener.launched)) == (Ending.CRASHES, 3)


def test_configs_on_which_a_broken_trainer_crashed_are_probed_once_it_is_fixed(tmp_path: Path) -> None:
    study = spec(search={"trials": 9, "seeds_per_variant": 2, "sampler": "tpe"})
    _, broken = optimized(tmp_path, lambda plan, stop: failed(plan, FailureKind.CRASH), study=study, trials=9)
    assert len(broken.launched) == 3
    _, mended = optimized(tmp_path, busy, study=study, trials=9)
    assert all(config in mended.launched for config in broken.launched)


def test_once_something_has_run_crashes_of_a_few_configs_are_their_own(tmp_path: Path) -> None:
    def large_ones_crash(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.CRASH) if int(plan.config["num_envs"]) > 8 else busy(plan, stop)

    search = {"trials": 8, "seeds_per_variant": 4, "sampler": "random"}
    outcome, listener = optimized(tmp_path, large_ones_crash, study=spec(search=search), trials=8)
    assert (outcome.ending, len(listener.launched)) == (Ending.TARGET, 8)
    assert states(tmp_path) == {"COMPLETE": 2, "FAIL": 6}


def test_a_machine_that_keeps_failing_stops_the_case_after_two_configs(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path, lambda plan, stop: failed(plan, FailureKind.NCCL, "watchdog"))
    assert (outcome.ending, len(listener.launched)) == (Ending.HOST, 4)
    assert listener.launched[0] == listener.launched[1] != listener.launched[2] == listener.launched[3]


def test_a_trainer_that_is_always_done_too_early_is_no_fault_of_the_machine(tmp_path: Path) -> None:
    outcome, _ = optimized(
        tmp_path, lambda plan, stop: failed(plan, FailureKind.NO_READING, "done after 12 iterations")
    )
    said = what_to_repair(outcome) or ""
    assert (outcome.ending, "done after 12 iterations" in said) == (Ending.UNREAD, True)
    assert "let the trainer run longer" in said


@pytest.mark.parametrize(
    ("kind", "ending"), [(FailureKind.MISSING_DEPENDENCY, Ending.SETUP), (FailureKind.GPU_BUSY, Ending.HOST)]
)
def test_a_config_keeps_its_place_after_a_failure_that_says_nothing_about_it(
    tmp_path: Path, kind: FailureKind, ending: Ending
) -> None:
    runs = [optimized(tmp_path, lambda plan, stop: failed(plan, kind)) for _ in range(3)]
    assert {outcome.ending for outcome, _ in runs} == {ending}
    outcome, listener = optimized(tmp_path, busy)
    assert {broken.launched[0]["num_envs"] for _, broken in runs} == {listener.launched[0]["num_envs"]} == {64}
    assert outcome.ending is Ending.TARGET
    assert len(listener.launched) == 5


def test_an_interrupted_probe_is_recorded_and_repeated(tmp_path: Path) -> None:
    asked: list[bool] = []

    def interruptible(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if len(asked) < 2:
            asked.append(True)
            return busy(plan, stop)
        asked.append(True)
        assert stop(None).next is Next.INTERRUPTED
        return failed(plan, FailureKind.INTERRUPTED)

    outcome, first = optimized(tmp_path, interruptible, interrupted=lambda: len(asked) >= 3)
    assert outcome.ending is Ending.INTERRUPTED
    assert states(tmp_path) == {"COMPLETE": 2, "FAIL": 1}
    _, second = optimized(tmp_path, busy)
    assert second.launched[0] == first.launched[-1]
    assert states(tmp_path) == {"COMPLETE": 5, "FAIL": 1}


@pytest.mark.parametrize("window_seconds", [9.0, 11.0])
def test_the_pruner_sees_each_iteration_and_acts_once_the_window_is_long_enough(
    tmp_path: Path, window_seconds: float
) -> None:
    def live(plan: ProbePlan, stop: Stop) -> ProbeResult:
        util_pct = 90.0 if plan.config["num_envs"] == 64 else 5.0
        return watched(measured(plan, util_pct), stop)  # its window has 10 s

    pruner = {"name": "hyperband_patient", "min_resource": 1, "max_resource": 2, "patience": 1}
    study = spec(pruner=pruner, probe={"window_seconds": window_seconds})
    _, listener = optimized(tmp_path, live, study=study, trials=5)
    assert listener.told_status[:2] == ["ok", "ok"]
    assert ("pruned" in listener.told_status) == (window_seconds < 10)


@pytest.mark.parametrize(
    ("level_changed", "others_pct", "is_pruned"), [(False, 9.0, True), (True, 9.0, False), (False, 11.0, False)]
)
def test_no_probe_is_pruned_for_slow_iterations_before_a_change_of_level_or_beside_busy_programs(
    tmp_path: Path, level_changed: bool, others_pct: float, is_pruned: bool
) -> None:
    def slow(plan: ProbePlan, stop: Stop) -> ProbeResult:
        result = measured(plan, 90.0 if plan.config["num_envs"] == 64 else 5.0)
        devices = tuple(replace(device, others_mean_pct=others_pct) for device in result.devices)
        return watched(replace(result, devices=devices, level_changed=level_changed), stop)

    pruner = {"name": "hyperband_patient", "min_resource": 1, "max_resource": 2, "patience": 1}
    optimized(tmp_path, slow, study=spec(pruner=pruner), trials=5)
    assert ("PRUNED" in states(tmp_path)) is is_pruned


def test_an_error_of_the_tuner_itself_loses_no_stored_result(tmp_path: Path) -> None:
    launched: list[Config] = []

    def full_disk(plan: ProbePlan, stop: Stop) -> ProbeResult:
        launched.append(plan.config)
        if len(launched) == 3:
            raise OutputError("console.log cannot be written: No space left on device")
        return busy(plan, stop)

    with pytest.raises(OutputError):
        optimized(tmp_path, full_disk)
    assert states(tmp_path)["COMPLETE"] == 2


def test_a_changed_space_is_refused_with_what_changed(tmp_path: Path) -> None:
    optimized(tmp_path, busy, trials=1)
    changed = spec(space={"num_envs": {"ladder": [64, 32]}, "agent_variant": {"choices": ["hiutil", "default"]}})
    with pytest.raises(StoreError, match="num_envs") as refusal:
        optimized(tmp_path, busy, study=changed)
    assert "start anew" in str(refusal.value)


AGENT = {"hiutil": (90.0, 200.0), "default": (50.0, 1000.0)}
"""Variant → utilisation in percent, and samples/s per environment."""


def greedy(plan: ProbePlan, stop: Stop) -> ProbeResult:
    util_pct, each = AGENT[str(plan.config["agent_variant"])]
    rung = int(plan.config["num_envs"])
    return replace(measured(plan, util_pct + rung / 64), samples_per_s=each * rung)


def best(folder: Path) -> tuple[Config, dict[str, int]]:
    found = view(folder)
    assert found.best is not None
    return dict(found.best.trials[-1].config), dict(found.counts)


@pytest.mark.parametrize(
    ("factor", "variant", "ends"),
    [("0.1", "hiutil", {"ok": 8}), ("0.8", "default", {"ok": 4, "ineligible": 4})],
)
def test_the_best_keeps_the_constraints(tmp_path: Path, factor: str, variant: str, ends: dict[str, int]) -> None:
    study = spec(constraints={"samples_per_s": f">= {factor} * default"})
    _, listener = optimized(tmp_path, greedy, study=study, trials=8)
    assert best(tmp_path) == ({"num_envs": 64, "agent_variant": variant}, ends)
    for rung in (64, 32, 16, 8):
        variants = [config["agent_variant"] for config in listener.launched if config["num_envs"] == rung]
        assert variants == ["default", "hiutil"]


def test_a_resumed_study_compares_with_the_default_that_it_has_measured(tmp_path: Path) -> None:
    study = spec(constraints={"samples_per_s": ">= 0.8 * default"})
    _, first = optimized(tmp_path, greedy, study=study, trials=1)
    _, second = optimized(tmp_path, greedy, study=study, trials=2)
    assert [config["agent_variant"] for config in (*first.launched, *second.launched)] == ["default", "hiutil"]
    assert best(tmp_path)[1] == {"ok": 1, "ineligible": 1}


def test_without_a_default_to_compare_with_no_config_is_eligible(tmp_path: Path) -> None:
    def broken(plan: ProbePlan, stop: Stop) -> ProbeResult:
        alone = plan.config["agent_variant"] == "hiutil"
        return greedy(plan, stop) if alone else failed(plan, FailureKind.INVALID_CONFIG)

    optimized(tmp_path, broken, study=spec(constraints={"samples_per_s": ">= 0.8 * default"}), trials=2)
    study = reader(tmp_path)
    _, hiutil = study.trials()
    assert "samples_per_s of default at this rung is not known" in (hiutil.probe.ineligible or "")
    assert view(tmp_path).best is None


def test_a_default_that_others_are_compared_with_is_measured_to_the_end(tmp_path: Path) -> None:
    def live(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return watched(greedy(plan, stop), stop)

    _, listener = optimized(
        tmp_path,
        live,
        study=spec(
            constraints={"samples_per_s": ">= 0.1 * default"},
            pruner={"name": "hyperband_patient", "min_resource": 1, "max_resource": 2, "patience": 1},
        ),
        trials=4,
    )
    assert set(listener.told_status) == {"ok"}


def test_constraints_do_not_change_while_a_study_goes_on(tmp_path: Path) -> None:
    optimized(tmp_path, greedy, trials=1)
    with pytest.raises(StoreError, match=r"constraints: was None, is \{'samples_per_s': '>= 800'\}"):
        optimized(tmp_path, greedy, study=spec(constraints={"samples_per_s": ">= 800"}))
