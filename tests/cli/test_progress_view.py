"""The line that a user reads about each trial while a study runs."""

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from tests_loop import CASE, DEVICES, failed, measured
from tests_replays import scripted_plan

from tuner.probe.probe_plan import ProbePlan
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import BestSoFar, ProbeEnded, line
from tuner.search.choosing import Aim, Choice, History
from tuner.search.verdict import judge
from tuner.store.case_study import OwnTrial
from tuner.study.space import Space
from tuner.study.spec import ProbeSpec, read_constraint


@pytest.fixture
def plan(tmp_path: Path) -> ProbePlan:
    return scripted_plan(tmp_path, DEVICES, ProbeSpec())


def told(
    result: ProbeResult,
    *objectives: str,
    bound: str = ">= 10",
    origin: str | None = None,
    leads: bool = False,
    best: BestSoFar | None = None,
    confirms: bool = False,
    finished: int = 1,
    target: int | None = None,
    left_s: float | None = None,
) -> str:
    """Return the line of a trial."""
    choice = Choice(config=result.config, aim=Aim.CONFIRM if confirms else Aim.SEARCH, cold=True, origin=origin)
    history = History(optuna.create_study(), Space(()))  # nothing was probed before
    asked = OwnTrial(trial_id=8, number=7, config=result.config, choice=choice, history=history)
    verdict = judge(result, *(objectives or ("min_avg_util",)), constraints=[read_constraint("samples_per_s", bound)])
    event = ProbeEnded.of(
        CASE,
        asked,
        result,
        verdict,
        leads=leads,
        best=best,
        finished=finished,
        target=target,
        left_s=left_s,
    )
    text, _ = line(event) or ("", "")
    return text.strip()


def test_samples_stand_beside_utilisation(plan: ProbePlan) -> None:
    result = replace(measured(plan, 61.25), samples_per_s=15000.4)
    assert told(result) == "#7 num_envs=32: ok 61.2, 15,000 samples/s (20.0 s)"


def test_the_place_in_the_search_and_the_time_left_are_told(plan: ProbePlan) -> None:
    result = replace(measured(plan, 61.25), samples_per_s=15000.4)
    line = told(result, leads=True, finished=3, target=24, left_s=210.0)
    assert line.startswith("#7 (trial 3 of 24) num_envs=32: ok 61.2, 15,000 samples/s, best so far (")
    assert line.endswith("(20.0 s; about 3 min 30 s left)")
    assert told(result, finished=24, target=24, left_s=0.0).endswith("samples/s (20.0 s)")
    assert told(result, finished=3).endswith("samples/s (20.0 s)")
    assert told(result, left_s=19.0).endswith("about 19 s left)")


def test_another_reading_of_the_best_has_its_mean_and_is_not_called_the_best_so_far(plan: ProbePlan) -> None:
    result = replace(measured(plan, 61.25), samples_per_s=15000.4)
    line = told(result, leads=True, best=BestSoFar(value=61.5, error=0.2, trial=7, readings=2))
    assert "61.5 ± 0.2 of 2 (" in line
    assert "best so far" not in line
    assert "confirmed" not in line  # a session measured it
    confirmed = told(result, leads=True, confirms=True, best=BestSoFar(value=61.5, error=0.2, trial=7, readings=2))
    assert "confirmed by the plain command" in confirmed
    assert "61.5 ± 0.2 of 2 (" in confirmed
    assert "best so far" in told(result, leads=True, best=BestSoFar(value=61.25, error=0.2, trial=7))


def test_what_does_not_count_towards_the_target_has_no_place(plan: ProbePlan) -> None:
    assert told(measured(plan, 61.25), confirms=True, finished=3, target=24).startswith("#7 num_envs=32")
    assert told(failed(plan, FailureKind.NCCL), finished=3, target=24).startswith("#7 num_envs=32: nccl")
    assert told(failed(plan, FailureKind.GPU_OOM), finished=3, target=24).startswith(
        "#7 (trial 3 of 24) num_envs=32: gpu_oom"
    )


def test_a_number_has_its_error(plan: ProbePlan) -> None:
    result = replace(measured(plan, 61.25), samples_per_s=15000.4, samples_per_s_se=120.04)
    assert "ok 15,000 ± 120 (" in told(result, "samples_per_s")
    assert "ok 15,000 ± 120, 61.2 (" in told(result, "samples_per_s", "min_avg_util")
    devices = tuple(replace(device, delayed_mean_pct=50.0) for device in result.devices)
    assert "ok 15,000 ± 10,608 (" in told(replace(result, devices=devices), "samples_per_s")  # as at the end


def test_an_objective_that_was_not_measured_is_named(plan: ProbePlan) -> None:
    assert told(measured(plan, 61.25), "min_avg_sm") == "#7 num_envs=32: no_reading: no min_avg_sm (20.0 s)"


def test_an_objective_is_not_shown_twice(plan: ProbePlan) -> None:
    assert "ok 15,000 (" in told(replace(measured(plan, 61.25), samples_per_s=15000.4), "samples_per_s")


def test_each_of_several_objectives_is_shown(plan: ProbePlan) -> None:
    result = replace(measured(plan, 60.0), samples_per_s=15000.4)
    assert "ok 60.0, 15,000 (" in told(result, "min_avg_util", "samples_per_s")
    assert "ok 15,000, 60.0 (" in told(result, "samples_per_s", "min_avg_util")


def test_a_config_that_may_not_be_the_best_says_why(plan: ProbePlan) -> None:
    line = told(replace(measured(plan, 50.0), samples_per_s=900.0), bound=">= 1000")
    assert "ok 50.0, 900 samples/s; not eligible as best, samples_per_s is 900, >= 1000 is required (" in line


def test_a_failure_has_its_detail(plan: ProbePlan) -> None:
    assert "nccl: because (" in told(failed(plan, FailureKind.NCCL))


def test_why_a_probe_ended_early_is_told_apart_from_what_its_numbers_suffered(plan: ProbePlan) -> None:
    line = told(replace(measured(plan, 50.0), stopped="median after 9 iteration(s)", notes=("others worked",)))
    assert "pruned: median after 9 iteration(s); others worked (" in line


def test_what_comes_from_another_case_says_so(plan: ProbePlan) -> None:
    assert told(measured(plan, 50.0), origin="amp_walk").endswith("(20.0 s, from amp_walk)")
