"""The loop within a budget of time: no probe begins that would take longer than the rest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests_loop import CASE, Quiet, bench, busy, failed, measured, opened, spec, states, view
from tests_replays import FakeClock
from tests_table import MadeUp, study, workbench

from tuner.export.case_view import CaseView
from tuner.export.findings import Topic, findings
from tuner.export.summary import summary
from tuner.probe.probe_plan import Answer, Next, ProbePlan, Stop
from tuner.probe.quantities import HOUR_S
from tuner.probe.result import STOPPED, FailureKind, ProbeResult
from tuner.records.case_record import StudyAttributes
from tuner.records.schema import ENDED
from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.running.events import CaseOutcome, Ending, ProbeEnded, out_of_time
from tuner.running.job import Budget, Job, within_budget
from tuner.running.loop import optimize, plan_recording, record_cases, recording_bench
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import StudySpec

PROBE_S = 20.0
"""The seconds of each scripted probe."""


def optimized(
    folder: Path,
    budget_s: float,
    *,
    probe: Callable[[ProbePlan, Stop], ProbeResult] = busy,
    cases: Sequence[Case] = (CASE,),
    study: StudySpec | None = None,
) -> tuple[list[CaseOutcome], Quiet, Budget]:
    """Optimize for so many seconds. Only the probes advance the clock."""
    clock, listener = FakeClock(), Quiet()
    budget = Budget(clock, budget_s / HOUR_S)

    def timed(plan: ProbePlan, stop: Stop) -> ProbeResult:
        clock.advance(PROBE_S)
        return probe(plan, stop)

    with opened(folder) as database:
        job = Job(
            bench=bench(folder, study or spec()),
            database=database,
            probe=timed,
            listener=listener,
            interrupted=lambda: False,
        )
        return optimize(within_budget(job, budget), cases), listener, budget


def test_a_probe_that_cannot_be_done_in_the_time_left_is_not_begun(tmp_path: Path) -> None:
    (outcome,), listener, budget = optimized(tmp_path, 3.5 * PROBE_S)
    assert (outcome.ending, outcome.probed, len(listener.launched)) == (Ending.INTERRUPTED, 3, 3)
    assert states(tmp_path) == {"COMPLETE": 3}
    assert budget.is_over()
    said = "the next probe takes about 20.0 s, but only 10.0 s of 1 min 10 s are left; rerun to resume"
    assert out_of_time(budget) == said


def test_a_search_that_was_stopped_says_so_until_it_goes_on_or_ends(tmp_path: Path) -> None:
    """Status and report tell what the database knows: of the end of a time, of a budget, and of a cut probe."""

    def said() -> str:
        return " ".join(str(found) for found in findings(summary(view(tmp_path))) if found.topic is Topic.STOPPED)

    def watching(plan: ProbePlan, stop: Stop) -> ProbeResult:
        assert said() == ""
        return busy(plan, stop)

    optimized(tmp_path, 2 * PROBE_S, probe=watching)
    assert "limit of --hours; rerun to resume" in said()
    optimized(tmp_path, 100 * PROBE_S, probe=watching)
    assert "budget of 5 trials" in said()
    for trials in (100, 5):  # the search ends by itself, and a smaller budget then changes nothing
        optimized(tmp_path, 100 * PROBE_S, probe=watching, study=spec(search={"trials": trials}))
        assert said() == ""


def test_a_killed_search_is_one_that_was_stopped_unless_it_goes_on_or_has_ended() -> None:
    cut = TrialRecord(state="FAIL", probe=ProbeRecord(status="interrupted"))
    runs = TrialRecord(state="RUNNING")
    ended = StudyAttributes({ENDED: "no config is left"})
    views = [CaseView(name="walk", trials=trials) for trials in ([cut], [cut, runs], [])]
    assert [bool(case.stopped) for case in (*views, replace(views[0], attributes=ended))] == [True, False, False, False]


def test_what_is_left_suffices_to_the_second(tmp_path: Path) -> None:
    (outcome,), _, budget = optimized(tmp_path, 3 * PROBE_S)
    assert (outcome.ending, outcome.probed) == (Ending.INTERRUPTED, 3)
    assert out_of_time(budget) == "the 1 min 00 s of --hours are over; rerun to resume"


def test_a_resumed_run_knows_what_its_probes_have_taken_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    optimized(tmp_path, 2 * PROBE_S)
    (outcome,), listener, budget = optimized(tmp_path, 0.5 * PROBE_S)
    assert (outcome.ending, outcome.probed, listener.launched) == (Ending.INTERRUPTED, 0, [])
    assert out_of_time(budget).endswith("more than the 10.0 s of --hours; rerun with --hours 0.01")
    (outcome,), listener, _ = optimized(tmp_path, 100 * PROBE_S)
    assert (outcome.ending, len(listener.launched)) == (Ending.TARGET, 3)
    assert states(tmp_path) == {"COMPLETE": 5}


def test_the_first_probe_of_a_run_may_take_the_whole_time_although_its_preparation_took_some() -> None:
    clock = FakeClock()
    budget = Budget(clock, PROBE_S / HOUR_S)
    clock.advance(1.0)
    assert budget.has_time_for(PROBE_S)
    assert budget.has_time_for(PROBE_S)  # asked again, because a transaction is repeated
    budget.begin()
    assert not budget.has_time_for(PROBE_S)  # only the first


def test_with_nothing_left_to_do_no_time_is_missed(tmp_path: Path) -> None:
    optimized(tmp_path, 100 * PROBE_S)
    (outcome,), _, budget = optimized(tmp_path, 0.5 * PROBE_S)
    assert (outcome.ending, budget.is_over()) == (Ending.ALREADY, False)


def test_no_other_case_begins_once_the_rest_is_too_short(tmp_path: Path) -> None:
    outcomes, listener, _ = optimized(tmp_path, 2.5 * PROBE_S, cases=(CASE, Case(name="run")))
    assert ([outcome.case for outcome in outcomes], len(listener.launched)) == ([CASE], 2)


def cut(plan: ProbePlan, stop: Stop) -> ProbeResult:
    assert stop(None).next is Next.INTERRUPTED
    return replace(failed(plan, FailureKind.INTERRUPTED), failure=STOPPED)


def test_a_probe_that_the_end_of_the_time_cuts_says_so(tmp_path: Path) -> None:
    optimized(tmp_path, 0.5 * PROBE_S, probe=cut)
    (trial,) = view(tmp_path).trials
    assert (trial.status, "time of the search was over" in trial.probe.detail) == ("interrupted", True)


@pytest.mark.parametrize(
    ("sampler", "window_s", "states_after"),
    [("random", 6.0, {"COMPLETE": 1}), ("random", 4.0, {"FAIL": 1}), ("gain", 6.0, {"COMPLETE": 1})],
)
def test_a_probe_that_takes_all_of_the_time_gives_its_rough_value(
    tmp_path: Path, sampler: str, window_s: float, states_after: dict[str, int]
) -> None:
    clock = FakeClock()
    budget = Budget(clock, 0.5 * PROBE_S / HOUR_S)

    def long(plan: ProbePlan, stop: Stop) -> ProbeResult:
        so_far = replace(measured(plan, 40.0), window_s=window_s)
        assert stop(so_far) not in (Answer(Next.ENOUGH), Answer(Next.INTERRUPTED))
        clock.advance(PROBE_S)
        return so_far if stop(None).next is Next.ENOUGH else failed(plan, FailureKind.INTERRUPTED)

    with opened(tmp_path) as database:
        desk = bench(tmp_path, spec(search={"trials": 5, "sampler": sampler}))
        job = Job(bench=desk, database=database, probe=long, interrupted=lambda: False)
        optimize(within_budget(job, budget), [CASE])
    assert states(tmp_path) == states_after


def test_a_person_who_interrupts_gets_no_rough_value(tmp_path: Path) -> None:
    answers: list[Answer] = []

    def long(plan: ProbePlan, stop: Stop) -> ProbeResult:
        answers.append(stop(replace(measured(plan, 40.0), window_s=60.0)))
        return failed(plan, FailureKind.INTERRUPTED)

    with opened(tmp_path) as database:
        asked = iter([False, False, False, True])
        job = Job(bench=bench(tmp_path, spec()), database=database, probe=long, interrupted=lambda: next(asked, True))
        optimize(within_budget(job, Budget(FakeClock(), 1.0)), [CASE])
    assert set(answers) <= {Answer(Next.INTERRUPTED)}


def out_of_memory(plan: ProbePlan, stop: Stop) -> ProbeResult:
    return failed(plan, FailureKind.GPU_OOM)


@pytest.mark.parametrize("probe", [cut, out_of_memory])
def test_a_probe_begins_while_no_probe_time_is_known(
    tmp_path: Path, probe: Callable[[ProbePlan, Stop], ProbeResult]
) -> None:
    for _ in range(2):
        _, listener, budget = optimized(tmp_path, 0.5 * PROBE_S, probe=probe)
        assert (len(listener.launched), budget.shortage) == (1, None)


def test_without_a_limit_time_is_never_over() -> None:
    clock = FakeClock()
    budget = Budget(clock, hours=None)
    clock.advance(1e9)
    assert budget.has_time_for(1e9)
    assert not budget.is_over()


class Timed(MadeUp):
    """A prober that advances a clock by the time of each probe."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        result = super().__call__(plan, stop)
        self._clock.advance(result.total_s)
        return result


def test_a_recording_ends_before_a_probe_that_cannot_be_done(tmp_path: Path) -> None:
    clock = FakeClock()
    prober, budget = Timed(clock), Budget(clock, 0.05)
    desk = recording_bench(workbench(tmp_path, study()))
    with opened(tmp_path) as database:
        job = Job(bench=desk, database=database, probe=prober, listener=Quiet(), interrupted=lambda: False)
        recordings = [plan_recording(desk, case, None) for case in (CASE, Case(name="run"))]
        ended = record_cases(within_budget(replace(job, open_session=lambda: prober.open_session), budget), recordings)
        outcomes = [case.outcome for case in ended if case.outcome]
    assert [(outcome.ending, outcome.case) for outcome in outcomes] == [(Ending.INTERRUPTED, CASE)]
    assert budget.shortage is not None
    assert clock.now() <= budget.total_s
    assert states(tmp_path, desk.stored_name) == {"COMPLETE": len(prober.results)}


@pytest.mark.parametrize(
    ("probes", "gain", "delayed_pct", "again_at"),
    [
        (3, 2.0, 0.0, []),
        (9, 2.0, 0.0, [7]),
        (3, 2.0, 60.0, [2]),  # the disturbed reading hides whether another config is faster
        (9, 2.0, 60.0, [4]),
        (3, 400.0, 60.0, []),
    ],
)
def test_the_own_config_is_measured_again_at_the_end_of_the_time_and_after_four_trials_if_it_hides_the_gain(
    tmp_path: Path, probes: int, gain: float, delayed_pct: float, again_at: list[int]
) -> None:
    own: Config = {"workers": 0, "fused": 0}
    disturbed = iter([delayed_pct])  # the first probe alone

    def by_workers(plan: ProbePlan, stop: Stop) -> ProbeResult:
        result, delayed = measured(plan, 50.0), next(disturbed, 0.0)
        devices = tuple(replace(device, delayed_mean_pct=delayed) for device in result.devices)
        speed = 100.0 + gain * int(plan.config["workers"])
        return replace(result, samples_per_s=speed, samples_per_s_se=0.5, devices=devices)

    search = {"trials": 70, "sampler": "gain", "seeds_per_variant": 1}
    trainer = {"name": "command", "options": {"command": "train {workers} {fused}", "cases": ["walk"]}}
    space = {"workers": {"choices": list(range(40))}, "fused": {"choices": [0, 1]}}
    study = spec(objective="samples_per_s", trainer=trainer, space=space, search=search)
    _, listener, budget = optimized(tmp_path, probes * PROBE_S, probe=by_workers, study=study)
    assert len(listener.launched) == probes
    assert [place for place, config in enumerate(listener.launched[1:], 1) if config == own] == again_at
    assert budget.is_over()


@pytest.mark.parametrize(("trials", "budget_s"), [(6, 100 * PROBE_S), (60, 5 * PROBE_S)])
def test_a_search_that_would_go_on_for_longer_tells_no_more_time_than_its_trials_or_its_budget(
    tmp_path: Path, trials: int, budget_s: float
) -> None:
    _, listener, _ = optimized(tmp_path, budget_s, study=spec(search={"trials": trials}))
    most_s = min(trials * PROBE_S, budget_s)
    told = [
        (event.left_s, most_s - event.finished * PROBE_S)
        for event in listener.of(ProbeEnded)
        if event.left_s is not None
    ]
    assert told
    assert listener.of(ProbeEnded)[0].left_s is None  # nothing is known yet of where it ends
    assert all(left_s == pytest.approx(rest_s) for left_s, rest_s in told)
