"""The loop over an `auto` ladder: it is calibrated once, then fixed, and no measurement is lost."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from tests_loop import CASE, Quiet, bench, bounded, failed, measured, opened, reader, spec, view

from tuner.errors import StoreError
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import CaseOutcome, Ending
from tuner.running.job import RECOVER, Job
from tuner.running.loop import optimize
from tuner.study.space import Config
from tuner.study.spec import StudySpec

pytestmark = pytest.mark.early

LADDER = {"ladder": "auto", "min": 8, "max": 4096}
VARIANTS = {"choices": ["hiutil", "default"]}
AUTO = spec(space={"num_envs": LADDER, "agent_variant": VARIANTS})
DOUBLINGS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
RUNGS = (8, 16, 32, 64, 128, 256, 512, 704, 896, 1024)
"""The rungs if `card` fits 944 environments with headroom and 1000 without."""

ALONE = spec(space={"num_envs": LADDER, "agent_variant": {"choices": ["default"]}})
"""One config at each rung."""

Probe = Callable[[ProbePlan, Stop], ProbeResult]


def card(plan: ProbePlan, stop: Stop, *, base_mib: float = 1000.0, total_mib: float | None = 10_000.0) -> ProbeResult:
    """Probe a card on which each environment takes 9 MiB."""
    rung = int(plan.config["num_envs"])
    peak_mib = base_mib + 9.0 * rung
    if total_mib is not None and peak_mib > total_mib:
        return failed(plan, FailureKind.GPU_OOM)
    result = measured(plan, 99.0 * rung / (rung + 100.0))
    devices = tuple(replace(one, mem_peak_mib=peak_mib, mem_total_mib=total_mib) for one in result.devices)
    return replace(result, start_up_s=10.0, devices=devices)


def fails(kind: FailureKind, *rungs: int) -> Probe:
    return lambda plan, stop: failed(plan, kind) if plan.config["num_envs"] in rungs else card(plan, stop)


def optimized(
    folder: Path,
    probe: Probe = card,
    *,
    study: StudySpec = AUTO,
    trials: int | None = 4,
    interrupted: Callable[[], bool] = lambda: False,
    to_recover: bool = False,
    most: int | None = None,
) -> tuple[CaseOutcome, Quiet]:
    listener, desk = Quiet(), bench(folder, study)
    with opened(folder) as database:
        job = Job(
            bench=bounded(desk, most) if most else desk,
            database=database,
            probe=probe,
            listener=listener,
            interrupted=interrupted,
            trials=trials,
        )
        (outcome,) = optimize(replace(job, purpose=RECOVER) if to_recover else job, [CASE])
    return outcome, listener


def fixed(folder: Path) -> tuple[int, ...] | None:
    return view(folder).attributes.rungs


def ends(folder: Path) -> str | None:
    return view(folder).attributes.ended


def launched_at(listener: Quiet) -> list[object]:
    return [config["num_envs"] for config in listener.launched]


def told(folder: Path) -> list[tuple[object, str | None]]:
    return [(trial.config.get("num_envs"), trial.status) for trial in reader(folder).trials()]


def test_two_probes_make_the_rungs_and_count_as_trials(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path)
    assert (outcome.ending, outcome.probed) == (Ending.TARGET, 4)
    assert (listener.calibrated, listener.fixed) == (["num_envs"], [RUNGS])
    assert launched_at(listener) == [16, 128, RUNGS[-1], RUNGS[-1]]
    assert listener.launched[:2] == [{"num_envs": rung, "agent_variant": "default"} for rung in (16, 128)]
    assert len(told(tmp_path)) == 4
    assert fixed(tmp_path) == RUNGS
    study = optuna.load_study(study_name=f"demo/{CASE.name}", storage=f"sqlite:///{tmp_path}/study.db")
    assert study.metric_names == ["min_avg_util"]


def test_a_case_has_ended_only_once_nothing_is_left_to_search(tmp_path: Path) -> None:
    for trials in (2, 4):
        optimized(tmp_path, study=ALONE, trials=trials)
        assert ends(tmp_path) is None
    outcome, _ = optimized(tmp_path, study=ALONE, trials=100)
    assert ends(tmp_path) == outcome.why == "every config has been probed or cannot fit"


def test_recovery_leaves_it_open_whether_a_case_has_ended(tmp_path: Path) -> None:
    optimized(tmp_path, study=ALONE, trials=3)
    recovered, _ = optimized(tmp_path, study=ALONE, to_recover=True)
    assert (recovered.why, ends(tmp_path)) == ("a config has run", None)
    searched, _ = optimized(tmp_path, study=ALONE, trials=100)
    optimized(tmp_path, study=ALONE, to_recover=True)
    assert ends(tmp_path) == searched.why


def test_rungs_stay_whatever_a_new_calibration_would_say(tmp_path: Path) -> None:
    optimized(tmp_path)
    outcome, listener = optimized(tmp_path, lambda plan, stop: card(plan, stop, total_mib=2000.0), trials=6)
    assert (outcome.ending, listener.calibrated, listener.fixed) == (Ending.TARGET, [], [RUNGS])
    assert {*launched_at(listener)} <= {*RUNGS}
    _, again = optimized(tmp_path, trials=6)
    assert (again.launched, again.fixed) == ([], [RUNGS])


def test_a_written_ladder_is_used_as_it_is(tmp_path: Path) -> None:
    _, listener = optimized(tmp_path, study=spec(), trials=100)
    assert (listener.calibrated, listener.fixed, fixed(tmp_path)) == ([], [], None)
    assert {*launched_at(listener)} == {8, 16, 32, 64}


def test_every_rung_is_searched_and_no_config_twice(tmp_path: Path) -> None:
    study = spec(space={"num_envs": {**LADDER, "max": 256}, "agent_variant": VARIANTS})
    outcome, listener = optimized(tmp_path, study=study, trials=100)
    assert outcome.ending is Ending.EXHAUSTED
    launches = [tuple(config.values()) for config in listener.launched]
    rungs = (8, 16, 32, 64, 128, 256)
    assert sorted(launches) == sorted((rung, variant) for rung in rungs for variant in ("hiutil", "default"))


@pytest.mark.parametrize("at", [2, 3])
def test_a_kill_while_calibrating_loses_nothing(tmp_path: Path, at: int) -> None:
    seen: list[Config] = []

    def dies(plan: ProbePlan, stop: Stop) -> ProbeResult:
        seen.append(plan.config)
        if len(seen) == at:
            raise KeyboardInterrupt
        return card(plan, stop)

    with pytest.raises(KeyboardInterrupt):
        optimized(tmp_path, dies)
    before = told(tmp_path)
    _, listener = optimized(tmp_path)
    assert listener.calibrated == (["num_envs"] if at < 3 else [])
    assert fixed(tmp_path) == RUNGS
    assert [one for one in before if one[1] == "ok"] == [(16, "ok"), (128, "ok")][: at - 1]
    assert told(tmp_path)[: at - 1] == before[: at - 1]
    assert 16 not in launched_at(listener)[1:]


def test_an_interrupted_calibration_goes_on_later(tmp_path: Path) -> None:
    asked: list[bool] = []

    def interrupted() -> bool:
        asked.append(True)
        return len(asked) > 2

    outcome, listener = optimized(tmp_path, interrupted=interrupted)
    assert (outcome.ending, listener.fixed) == (Ending.INTERRUPTED, [])
    assert (fixed(tmp_path), view(tmp_path).stopped) == (None, "the search was stopped early; rerun to resume")
    again, _ = optimized(tmp_path)
    assert again.ending is Ending.TARGET
    assert fixed(tmp_path) == RUNGS
    assert told(tmp_path)[:2] == [(16, "ok"), (128, "ok")]


def test_the_first_of_two_workers_decides(tmp_path: Path) -> None:
    """The second worker ends its calibration, on a card half as large, after the first worker has fixed the rungs."""
    first: list[Quiet] = []

    def slow(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if not first:
            first.append(Quiet())
            first[0] = optimized(tmp_path, trials=3)[1]
        return card(plan, stop, total_mib=5000.0)

    outcome, second = optimized(tmp_path, slow, trials=8)
    assert outcome.ending is Ending.TARGET
    assert first[0].fixed == second.fixed == [RUNGS]
    assert launched_at(first[0])[:2] == [128, 64]
    assert launched_at(second)[0] == 16
    assert {rung for rung, _ in told(tmp_path)} <= {*RUNGS}


def test_without_totals_of_memory_the_ladder_goes_to_its_end(tmp_path: Path) -> None:
    optimized(tmp_path, lambda plan, stop: card(plan, stop, total_mib=None))
    assert fixed(tmp_path) == DOUBLINGS


def test_out_of_memory_leads_down(tmp_path: Path) -> None:
    _, listener = optimized(tmp_path, lambda plan, stop: card(plan, stop, base_mib=9000.0))
    assert launched_at(listener)[:3] == [16, 128, 64]
    made = fixed(tmp_path)
    assert made is not None
    assert {8, 16, 32, 64, 128} <= {*made}
    finer = [rung for rung in made if 32 < rung < 64]
    assert 2 * 16 * 1.25 <= min(finer) <= max(finer) <= 52  # 52 is the largest that leaves the headroom
    assert max(made) == 128


def test_a_missing_dependency_stops_the_case_before_there_are_rungs(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path, fails(FailureKind.MISSING_DEPENDENCY, 16))
    assert (outcome.ending, outcome.probed, listener.fixed) == (Ending.SETUP, 1, [])
    assert fixed(tmp_path) is None
    mended, _ = optimized(tmp_path)
    assert mended.ending is Ending.TARGET


def test_three_crashes_stop_the_case_before_there_are_rungs(tmp_path: Path) -> None:
    outcome, _ = optimized(tmp_path, fails(FailureKind.CRASH, *DOUBLINGS))
    assert (outcome.ending, fixed(tmp_path)) == (Ending.CRASHES, None)


def test_one_crash_makes_another_rung_the_second(tmp_path: Path) -> None:
    _, listener = optimized(tmp_path, fails(FailureKind.CRASH, 128))
    assert launched_at(listener)[:3] == [16, 128, 64]
    assert fixed(tmp_path) == RUNGS


def test_a_host_s_failure_is_tried_once_more(tmp_path: Path) -> None:
    failures = iter([FailureKind.NCCL])

    def flaky(plan: ProbePlan, stop: Stop) -> ProbeResult:
        kind = next(failures, None)
        return failed(plan, kind) if kind else card(plan, stop)

    _, listener = optimized(tmp_path, flaky)
    assert launched_at(listener)[:3] == [16, 16, 128]
    assert fixed(tmp_path) == RUNGS


def test_recovery_is_done_with_the_first_config_that_ran(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path, to_recover=True)
    assert (outcome.probed, launched_at(listener), listener.fixed) == (2, [16, 128], [RUNGS])
    again, _ = optimized(tmp_path, to_recover=True)
    assert again.ending is Ending.ALREADY


def test_constraints_compare_with_the_default_that_calibrated(tmp_path: Path) -> None:
    study = spec(
        space={"num_envs": {**LADDER, "max": 256}, "agent_variant": VARIANTS},
        constraints={"min_avg_util": ">= 0.5 * default"},
    )
    _, listener = optimized(tmp_path, study=study, trials=100)
    assert launched_at(listener)[:2] == [16, 128]
    variants = {"default": 0, "hiutil": 0}
    for config in listener.launched:
        variants[str(config["agent_variant"])] += 1
    assert variants == {"default": 6, "hiutil": 6}  # 8 to 256


@pytest.mark.parametrize(
    ("begun", "changed"),
    [
        (spec(), AUTO),
        (AUTO, spec()),
        (AUTO, spec(space={"num_envs": {**LADDER, "max": 8192}, "agent_variant": VARIANTS})),
    ],
)
def test_a_changed_ladder_is_refused_before_anything_is_probed(
    tmp_path: Path, begun: StudySpec, changed: StudySpec
) -> None:
    optimized(tmp_path, study=begun, trials=1)
    before = told(tmp_path)
    with pytest.raises(StoreError, match=r"space\.num_envs\.auto: was .*, is "):
        optimized(tmp_path, study=changed)
    assert told(tmp_path) == before


def test_where_the_trainer_does_not_vary_num_envs_nothing_is_calibrated(tmp_path: Path) -> None:
    options = {"command": "train {agent_variant}", "cases": ["walk"]}
    study = spec(space={"num_envs": LADDER, "agent_variant": VARIANTS}, trainer={"name": "command", "options": options})
    _, listener = optimized(tmp_path, lambda plan, stop: measured(plan, 50.0), study=study, trials=100)
    assert (listener.calibrated, len(listener.launched)) == ([], 2)


@pytest.mark.parametrize("sampler", ["tpe", "gain"])
def test_each_sampler_keeps_to_the_rungs(tmp_path: Path, sampler: str) -> None:
    study = spec(
        space={"num_envs": LADDER, "agent_variant": VARIANTS, "num_workers": {"range": [0, 3]}},
        trainer={
            "name": "command",
            "options": {"command": "train {num_envs} {agent_variant} {num_workers}", "cases": ["walk"]},
        },
        search={"sampler": sampler, "seeds_per_variant": 1},
    )
    _, listener = optimized(tmp_path, study=study, trials=6)
    assert len(listener.launched) >= 4
    assert {*launched_at(listener)} <= {*RUNGS}


@pytest.mark.parametrize(
    ("most", "rungs"),
    [
        (600, (8, 16, 32, 64, 128, 256, 512, 600)),
        (1000, (8, 16, 32, 64, 128, 256, 512, 704, 896, 1000)),
        (100, (8, 16, 32, 64, 100)),
    ],
)
def test_no_rung_is_made_that_the_trainer_cannot_run(tmp_path: Path, most: int, rungs: tuple[int, ...]) -> None:
    _, listener = optimized(tmp_path, trials=3, most=most)
    assert listener.fixed == [rungs]
    assert fixed(tmp_path) == rungs
    _, again = optimized(tmp_path, trials=4, most=most)
    assert again.fixed == [rungs]
    assert {*launched_at(listener), *launched_at(again)} <= {*rungs}
