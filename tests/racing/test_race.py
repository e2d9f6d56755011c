import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.support.tests_loop import Quiet, bench, failed, measured, opened, spec
from tuner.errors import StoreError, TrainerError
from tuner.probe.probe_plan import Next, ProbePlan, Stop
from tuner.probe.result import Failure, FailureKind, ProbeResult, Score
from tuner.records.case_record import Claim, RunRecord
from tuner.running.job import Job
from tuner.store.leases import Lease
from tuner.store.races import RaceRuns
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.tools.racing import Entrant, Place, Race, verdict

WALK = Case(name="walk")
LEARNT = {64: 3.0, 32: 8.0, 16: 5.0, 8: 1.0}
"""How many points of return a config gains per 100 s of training, by its environments."""


class Memory(RaceRuns):
    """Keeps runs in memory, without a database."""

    def __init__(self) -> None:
        self.made: list[RunRecord] = []

    def read(self) -> tuple[RunRecord, ...]:
        return tuple(self.made)

    def claim(self, config: Config, seed: int, is_needless: Callable[[Sequence[RunRecord]], bool]) -> bool:
        return not is_needless(self.made)

    def renew_claim(self) -> None: ...

    def release(self) -> None: ...

    def add(self, run: RunRecord) -> None:
        self.made.append(run)


def silent(line: str) -> None:
    """Take a line."""


def trains(plan: ProbePlan, stop: Stop) -> ProbeResult:
    """Train until told to stop, in iterations of 10 s after a start of 30 s; odd seeds learn a little more."""
    seed = plan.slot.seed or 0
    result = replace(measured(plan, 50.0), start_up_s=30.0, samples_per_s=100.0, iterations_per_s=0.1)
    for iteration in range(1, 1000):
        at_s = 30.0 + 10.0 * iteration
        score = Score(at_s, LEARNT[int(plan.config["num_envs"])] * iteration / 10 + 0.1 * (seed % 2))
        result = replace(result, total_s=at_s, score=score)
        answer = stop(result)
        if answer.next is Next.ENOUGH:
            return result
        if answer.next is Next.INTERRUPTED:
            return failed(plan, FailureKind.INTERRUPTED)
        assert answer.next_result_s == 0.0  # no score is left out
    raise AssertionError("nobody ended the run")


def field() -> list[Entrant]:
    return [
        Entrant(config={"num_envs": rung, "agent_variant": "default"}, why=str(rung), measured={"util": rung})
        for rung in LEARNT
    ]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    study = spec()
    with opened(tmp_path / "demo") as database:
        yield Job(
            bench=bench(tmp_path, study), database=database, probe=trains, listener=Quiet(), interrupted=lambda: False
        )


def raced(job: Job, runs: Memory, *, total_s: float = 3200.0) -> list[Place]:
    return Race(job, WALK, runs, silent, configs=field(), seeds=2, total_s=total_s).run()


def rungs(runs: Memory) -> list[int]:
    return [int(run.config["num_envs"]) for run in runs.made]


def test_the_better_half_trains_on_and_the_winner_learns_most(job: Job) -> None:
    runs = Memory()
    places = raced(job, runs)
    assert [one.entrant.config["num_envs"] for one in places] == [32, 16, 64, 8]
    assert [round(one.seconds) for one in places] == [400, 400, 200, 200]
    assert rungs(runs) == [64, 32, 16, 8] * 2 + [32, 16] * 2
    assert [run.seed for run in runs.made] == [0] * 4 + [1] * 4 + [2] * 2 + [3] * 2
    assert places[0].mean
    assert places[0].mean.value == pytest.approx(8.0 * 34.5 / 10 + 0.05)
    first, second = verdict(places)
    assert "num_envs=32 agent_variant=default (32) learns most" in first
    assert "standard errors behind" in second


def test_a_race_goes_on_where_it_was_stopped(job: Job) -> None:
    whole, runs = Memory(), Memory()
    expected = raced(job, whole)
    for questions in (3, 50, 100):
        left = iter(range(questions))
        raced(replace(job, interrupted=lambda left=left: next(left, None) is None), runs)
        assert len(runs.made) < len(whole.made)
    assert raced(job, runs) == expected
    assert rungs(runs) == rungs(whole)


def test_a_run_keeps_no_speed_that_is_unsure(job: Job) -> None:
    def unsure(plan: ProbePlan, stop: Stop) -> ProbeResult:
        error = {64: 30.0, 32: 8.0}.get(int(plan.config["num_envs"]))
        return replace(trains(plan, stop), samples_per_s_se=error)

    runs = Memory()
    raced(replace(job, probe=unsure), runs)
    assert {int(run.config["num_envs"]): run.samples_per_s for run in runs.made} == {64: None, 32: 100, 16: 100, 8: 100}


def test_a_run_that_trained_long_enough_is_whole_however_short_its_window(job: Job) -> None:
    plans: list[ProbePlan] = []

    def short(plan: ProbePlan, stop: Stop) -> ProbeResult:
        plans.append(plan)
        return replace(trains(plan, stop), failure=Failure(kind=FailureKind.CRASH, rule="", detail="window too short"))

    places = raced(replace(job, probe=short), Memory(), total_s=160.0)
    assert not any(place.failure for place in places)
    assert {plan.slot.limits.window_seconds for plan in plans} == {2.5, 5.0}


def test_a_run_that_is_shorter_than_an_iteration_compares_nothing_and_stops_the_race(job: Job) -> None:
    runs = Memory()
    with pytest.raises(TrainerError, match=r"an iteration of num_envs=64 .* took 10 s, and a run trains for 9 s; give"):
        raced(job, runs, total_s=144.0)
    assert not runs.made


def test_a_pause_that_is_longer_than_a_run_stops_no_race_that_has_scores(job: Job) -> None:
    def pauses(plan: ProbePlan, stop: Stop) -> ProbeResult:
        def later(result: ProbeResult | None) -> ProbeResult | None:
            """Return a result as if 500 s had passed after the third iteration."""
            pause_s = 500.0 if result and result.total_s > 60.0 else 0.0
            score = result and result.score
            moved = score and Score(score.t_s + pause_s, score.value)
            return result and replace(result, total_s=result.total_s + pause_s, score=moved)

        return later(trains(plan, lambda so_far: stop(later(so_far)))) or pytest.fail("no result")

    assert raced(replace(job, probe=pauses), Memory())[0].entrant.config["num_envs"] == 32


def test_no_run_begins_that_the_time_is_too_short_for(job: Job) -> None:
    asked: list[float | None] = []

    def has_time(seconds: float | None) -> bool:
        asked.append(seconds)
        return len(asked) < 10

    runs = Memory()
    raced(replace(job, has_time=has_time), runs)
    assert asked == pytest.approx([200.0] + [230.0] * 7 + [430.0] * 2)
    assert rungs(runs) == [64, 32, 16, 8] * 2 + [32]


def test_a_config_that_fails_leaves_the_race(job: Job) -> None:
    def breaks(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.GPU_OOM) if plan.config["num_envs"] == 64 else trains(plan, stop)

    runs = Memory()
    places = raced(replace(job, probe=breaks), runs)
    assert places[-1].failure == "gpu_oom: because"
    assert rungs(runs).count(64) == 1
    assert any("left the race: gpu_oom" in line for line in verdict(places))


@pytest.mark.parametrize("kind", [FailureKind.NCCL, FailureKind.GPU_BUSY, FailureKind.INVALID_COMMAND])
def test_a_fault_of_the_machine_or_the_set_up_stops_the_race_and_no_config_leaves_it(
    job: Job, kind: FailureKind
) -> None:
    def breaks(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, kind) if plan.config["num_envs"] == 16 else trains(plan, stop)

    runs = Memory()
    with pytest.raises(TrainerError, match=rf"the race stopped at num_envs=16 .*: {kind.value}: because; whole runs"):
        raced(replace(job, probe=breaks), runs)
    assert rungs(runs) == [64, 32]
    assert not any(place.failure for place in raced(job, runs))


def learns(envs: int, returns: Callable[[int], float]) -> Callable[[ProbePlan, Stop], ProbeResult]:
    """Return a probe in which one config's return is that of its iteration, and the others train as usual."""

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if plan.config["num_envs"] != envs:
            return trains(plan, stop)

        def changed(so_far: ProbeResult | None) -> ProbeResult | None:
            score = so_far and so_far.score
            return so_far and score and replace(so_far, score=Score(score.t_s, returns(round(score.t_s / 10) - 3)))

        return changed(trains(plan, lambda so_far: stop(changed(so_far)))) or pytest.fail("no result")

    return probe


def test_a_config_that_ends_in_returns_that_are_not_finite_does_not_win(job: Job) -> None:
    runs = Memory()
    places = raced(replace(job, probe=learns(8, lambda at: 50.0 if at <= 10 else math.nan)), runs)
    assert [one.entrant.config["num_envs"] for one in places] == [32, 16, 64, 8]
    assert places[-1].mean is None
    assert rungs(runs).count(8) == 1
    said = " ".join(verdict(places))
    assert "num_envs=8 agent_variant=default (8) left the race: diverged: no finite number" in said
    assert "num_envs=32 agent_variant=default (32) learns most" in said


def test_returns_that_are_unknown_now_and_then_are_no_divergence(job: Job) -> None:
    def sparse(at: int) -> float:
        return math.nan if at < 4 or at % 3 == 2 else 100.0 + at

    places = raced(replace(job, probe=learns(8, sparse)), Memory())
    assert not any(place.failure for place in places)
    assert places[0].entrant.config["num_envs"] == 8


def test_a_run_that_ends_early_is_told_as_what_it_trained_and_is_not_ranked(job: Job) -> None:
    def early(plan: ProbePlan, stop: Stop) -> ProbeResult:
        seed = plan.slot.seed or 0
        if plan.config["num_envs"] != 8 and not (plan.config["num_envs"] == 32 and seed > 1):
            return trains(plan, stop)
        whole = replace(measured(plan, 50.0), start_up_s=30.0, total_s=100.0, score=Score(100.0, 1e6))
        stop(whole)
        return whole

    runs = Memory()
    places = raced(replace(job, probe=early), runs)
    assert [one.entrant.config["num_envs"] for one in places] == [16, 32, 64, 8]
    assert [round(one.seconds) for one in places] == [400, 200, 200, 0]
    assert [one.mean.runs if one.mean else 0 for one in places] == [2, 2, 2, 0]
    assert [bool(one.failure) for one in places] == [False, True, False, True]
    assert "after 70 of 200 s of training" in str(places[-1].failure)
    made = [(run.config["num_envs"], run.trained_s) for run in runs.made if run.trained_s < run.seconds]
    assert made == [(8, 70.0), (32, 70.0)]


def searched_runs(job: Job) -> RaceRuns:
    """Return the runs of a race in the job's database, as a process of its own reads them."""
    storage = job.database.storage
    if job.database.transact(lambda: storage.study_id("demo/walk")) is None:
        job.database.transact(lambda: storage.create_new_study([], "demo/walk"))
    return RaceRuns(job.database, "demo/walk")


def test_two_races_of_one_database_make_each_run_once(job: Job) -> None:
    other: list[list[Place]] = []
    waited: list[str] = []

    def second(plan: ProbePlan, stop: Stop) -> ProbeResult:
        assert not waited, "a waiting process begins no run"
        return trains(plan, stop)

    def first(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if not other:  # while the first run of this process trains, another process makes all the others of the round
            other.append([])
            elsewhere = replace(job, probe=second)
            other[0] = Race(elsewhere, WALK, searched_runs(job), silent, configs=field(), seeds=2, total_s=3200.0).run()
        return trains(plan, stop)

    mine = replace(job, probe=first)
    places = Race(mine, WALK, searched_runs(job), silent, configs=field(), seeds=2, total_s=3200.0).run()
    made = [(run.config["num_envs"], run.seed) for run in searched_runs(job).read()]
    assert len(made) == len(set(made)) == 12
    assert places[0].mean
    assert places[0].mean.runs == 2


def test_a_race_waits_for_the_run_of_another_process_and_goes_on(job: Job) -> None:
    elsewhere, run = searched_runs(job), RunRecord(config=field()[0].config, seed=0, seconds=1600.0, trained_s=1600.0)
    assert elsewhere.claim(run.config, 0, lambda runs: False)
    waits: list[str] = []

    def wait() -> None:
        waits.append("waited")
        elsewhere.add(replace(run, curve=((1.0, 2.0), (400.0, 3.0))))

    Race(replace(job, wait=wait), WALK, searched_runs(job), silent, configs=field(), seeds=2, total_s=3200.0).run()
    assert waits == ["waited"]
    made = [(one.config["num_envs"], one.seed) for one in searched_runs(job).read()]
    assert made.count((64, 0)) == 1
    assert len(made) == 12


def test_the_claim_of_a_process_that_is_gone_is_taken_back(job: Job) -> None:
    gone, config = searched_runs(job), field()[0].config
    assert gone.claim(config, 0, lambda runs: False)
    assert not searched_runs(job).claim(config, 0, lambda runs: False)
    lease = Lease.mine()
    dead = Claim(config=config, seed=0, lease=replace(lease, ticks=1, pid=lease.pid).write())
    gone_id = job.database.transact(lambda: job.database.storage.study_id("demo/walk"))
    assert gone_id is not None
    job.database.transact(
        lambda: job.database.storage.set_study_user_attr(gone_id, "race.0000", {"claim": asdict(dead)}), exclusive=True
    )
    heir = searched_runs(job)
    assert heir.claim(config, 0, lambda runs: False)
    heir.add(RunRecord(config=config, seed=0, seconds=1.0))
    assert len(heir.read()) == 1
    assert not searched_runs(job).claim(config, 0, lambda runs: len(runs) == 1)


def test_an_interrupted_run_gives_its_claim_back(job: Job) -> None:
    def stopped(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.INTERRUPTED)

    Race(replace(job, probe=stopped), WALK, searched_runs(job), silent, configs=field(), seeds=2, total_s=9.0).run()
    assert searched_runs(job).claim(field()[0].config, 0, lambda runs: False)


def test_a_run_that_the_user_stops_is_not_kept(job: Job) -> None:
    def stopped(plan: ProbePlan, stop: Stop) -> ProbeResult:
        assert stop(None).next is Next.INTERRUPTED
        return failed(plan, FailureKind.INTERRUPTED)

    asked = iter([False])
    runs = Memory()
    raced(replace(job, probe=stopped, interrupted=lambda: next(asked, True)), runs)
    assert runs.made == []


def test_runs_train_with_their_own_seeds_and_real_settings(job: Job) -> None:
    plans: list[ProbePlan] = []

    def watched(plan: ProbePlan, stop: Stop) -> ProbeResult:
        plans.append(plan)
        return trains(plan, stop)

    raced(replace(job, probe=watched), Memory())
    assert {plan.slot.seed for plan in plans} == {0, 1, 2, 3}
    assert not any(plan.request or plan.slot.limits.thin for plan in plans)


def test_runs_on_other_cards_are_told(job: Job) -> None:
    cards = iter(["GPU-a"] * 5 + ["GPU-b"] * 7)

    def elsewhere(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return replace(trains(plan, stop), host={"name": "node", "devices": next(cards)})

    *_, last = verdict(raced(replace(job, probe=elsewhere), Memory()))
    assert last == "The runs had 2 sets of devices: GPU-a; GPU-b. This alone may change scores."


def test_a_trainer_without_scores_is_said(job: Job) -> None:
    def mute(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return replace(trains(plan, stop), score=None)

    def silent(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return replace(mute(plan, lambda so_far: stop(so_far and replace(so_far, score=None))), score=None)

    runs = Memory()
    with pytest.raises(TrainerError, match=r"num_envs=64 .* gave no return in 200 s of training; let the study name"):
        raced(replace(job, probe=silent), runs)
    assert runs.made == []


def told(plan: ProbePlan, stop: Stop, returns: float) -> ProbeResult:
    """Train as `trains` does, with one return all the time."""

    def flat(so_far: ProbeResult) -> ProbeResult:
        return replace(so_far, score=so_far.score and Score(so_far.score.t_s, returns))

    return flat(trains(plan, lambda so_far: stop(so_far and flat(so_far))))


@pytest.mark.parametrize("worse_by", [0.0, 1.0])
def test_returns_that_never_change_stop_the_race(job: Job, worse_by: float) -> None:
    runs = Memory()
    flat = replace(job, probe=lambda plan, stop: told(plan, stop, -worse_by * float(plan.config["num_envs"])))
    with pytest.raises(TrainerError, match="no return changed within any of its 2 runs; let the study name what the"):
        raced(flat, runs)
    assert rungs(runs) == [64]


def test_runs_with_another_source_of_the_score_do_not_count(job: Job) -> None:
    runs = Memory()
    raced(job, runs)
    runs.made = [replace(run, score_source="another row", curve=((1.0, 1e6),)) for run in runs.made]
    before = len(runs.made)
    places = raced(job, runs)
    assert len(runs.made) == 2 * before
    assert places[0].mean
    assert places[0].mean.value < 1e6


def test_the_first_start_on_a_machine_compiles_kernels_and_is_no_measure_of_the_next(job: Job) -> None:
    asked: list[float | None] = []
    starts = iter([170.0, 30.0, 40.0] + [30.0] * 9)

    def compiles(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return replace(trains(plan, stop), start_up_s=next(starts))

    raced(replace(job, probe=compiles, has_time=lambda seconds: not asked.append(seconds)), Memory())
    assert asked[:4] == pytest.approx([200.0, 370.0, 300.0, 240.0])
    assert asked[-1] == pytest.approx(430.0)


def test_a_config_without_a_score_loses_and_the_others_go_on(job: Job) -> None:
    def slow(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if plan.config["num_envs"] != 32:
            return trains(plan, stop)
        return replace(trains(plan, lambda so_far: stop(so_far and replace(so_far, score=None))), score=None)

    places = raced(replace(job, probe=slow), Memory())
    assert [one.entrant.config["num_envs"] for one in places] == [16, 64, 8, 32]
    assert places[-1].mean is None


def test_how_clear_a_winner_is_follows_from_the_seeds(job: Job) -> None:
    def noisy(plan: ProbePlan, stop: Stop) -> ProbeResult:
        def shifted(so_far: ProbeResult | None) -> ProbeResult | None:
            score = so_far and so_far.score
            shift = 12.0 * ((plan.slot.seed or 0) % 2)
            return replace(so_far, score=Score(score.t_s, score.value + shift)) if so_far and score else so_far

        return shifted(trains(plan, lambda so_far: stop(shifted(so_far)))) or pytest.fail("no result")

    _, clear, *_ = verdict(raced(job, Memory()))
    assert "Two equal configs would differ so in less than 1 % of races." in clear
    _, vague, *_ = verdict(raced(replace(job, probe=noisy), Memory()))
    assert "the winner is not clear" in vague


def test_runs_are_kept_beside_the_trials_of_the_case(job: Job) -> None:
    config: Config = {"num_envs": 32}
    run = RunRecord(config=config, seed=3, seconds=75.0, curve=((1.0, -2.5), (2.0, 4.0)), host={"name": "a"})
    with pytest.raises(StoreError, match="has no search of demo/walk; a race trains configs of a search"):
        RaceRuns(job.database, "demo/walk")
    job.database.transact(lambda: job.database.storage.create_new_study([], "demo/walk"))
    kept = RaceRuns(job.database, "demo/walk")
    kept.add(run)
    kept.add(replace(run, seed=4))
    assert RaceRuns(job.database, "demo/walk").read() == (run, replace(run, seed=4))
