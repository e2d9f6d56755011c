"""The loop beside other workers: it waits for their probes, takes back those of dead workers, and confirms alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from optuna.trial import TrialState
from tests_loop import CASE, Quiet, WithSessions, bench, best, busy, opened, reader, spec, states
from tests_store import ask, case_study, ok, tell

from tuner.probe.probe_plan import ProbePlan, Slot, Stop
from tuner.probe.result import ProbeResult
from tuner.records.case_record import CaseRecord
from tuner.records.schema import LEASE
from tuner.running.events import CaseOutcome, Ending
from tuner.running.job import Job, Workbench
from tuner.running.loop import optimize
from tuner.search.strategies import build_pruner, by_drawing
from tuner.search.verdict import Verdict
from tuner.store.case_study import CaseStudy
from tuner.store.database import Database
from tuner.store.leases import Lease
from tuner.study import Case, Config
from tuner.trainers.command import CommandTrainer


def optimized(database: Database, desk: Workbench, wait: Callable[[], None] | None) -> tuple[CaseOutcome, Quiet]:
    """Search the case; sessions probe where the trainer of the bench has sessions."""
    listener = Quiet()

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return replace(busy(plan, stop), warm=plan.request is not None)

    job = Job(bench=desk, database=database, probe=probe, listener=listener, interrupted=lambda: False, wait=wait)
    (outcome,) = optimize(job, [CASE])
    return outcome, listener


def with_sessions(folder: Path) -> Workbench:
    return replace(bench(folder, spec()), trainer=WithSessions(spec().trainer))


def as_another_worker(database: Database, desk: Workbench) -> CaseStudy:
    """Open the study of the case, as another worker does."""
    spec = desk.spec_for(CASE)
    return CaseStudy(
        database,
        desk.study_name(CASE),
        space=desk.space_for(CASE),
        strategy=lambda count: by_drawing(desk.space_for(CASE), spec.search, resumed_at=count),
        pruner=build_pruner(spec.pruner, spec.probe.iterations),
        identity=desk.identity_for(CASE),
        case=CaseRecord(),
    )


def test_the_best_is_confirmed_when_the_probes_of_other_cases_have_ended(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        neighbour = case_study(database, name="demo/run")
        theirs = ask(neighbour)
        outcome, listener = optimized(database, with_sessions(tmp_path), lambda: tell(neighbour, theirs, ok(1.0)))
    assert (outcome.ending, outcome.probed) == (Ending.TARGET, 6)
    assert listener.launched[-1] == max(listener.launched[:-1], key=lambda config: int(config["num_envs"]))
    found = best(tmp_path)
    assert (found.trial, found.is_warm, found.readings) == (5, False, 1)


def test_a_command_that_does_not_wait_leaves_the_confirmation_to_others(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        ask(case_study(database, name="demo/run"))
        outcome, _ = optimized(database, with_sessions(tmp_path), None)
    assert (outcome.ending, outcome.probed) == (Ending.ELSEWHERE, 5)
    (row,) = (one for one in reader(tmp_path).rows if one.case == "walk")
    assert row.best is not None
    assert row.unconfirmed == row.best


def test_what_ran_out_of_memory_for_another_worker_since_the_ask_is_not_launched(tmp_path: Path) -> None:
    desk = bench(tmp_path, spec(space={"num_envs": {"ladder": [8, 16, 32]}}))
    with opened(tmp_path) as database:
        neighbour = as_another_worker(database, desk)
        _, theirs = ask(neighbour), ask(neighbour)  # the largest rung, and the smallest

        class LatePlans(CommandTrainer):
            def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
                if not neighbour.history().finished:  # the first plan comes between the ask and the launch
                    tell(neighbour, theirs, Verdict(state=TrialState.PRUNED, status="gpu_oom", constraint=1.0))
                return super().plan(case, config, slot)

        _, listener = optimized(database, replace(desk, trainer=LatePlans(desk.spec.trainer)), None)
    assert (theirs.config["num_envs"], listener.launched, listener.told_status) == (8, [], ["gpu_oom"])


def test_a_worker_that_waits_takes_back_the_trial_of_a_worker_that_dies(tmp_path: Path) -> None:
    desk = bench(tmp_path, spec())
    with opened(tmp_path) as database:
        asked = ask(as_another_worker(database, desk))

        def die() -> None:
            database.storage.set_trial_user_attr(asked.trial_id, LEASE, replace(Lease.mine(), ticks=1).write())

        outcome, listener = optimized(database, desk, die)
    assert (outcome.ending, outcome.probed) == (Ending.TARGET, 5)
    assert asked.config in listener.launched
    assert states(tmp_path) == {"COMPLETE": 5, "FAIL": 1}
