"""Recovery over scripted probes: down the ladder until a config of each case runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests_loop import CASE, Quiet, bench, busy, failed, opened, reader, spec

from tuner.cli.record import safe_rungs
from tuner.export.case_view import CaseView
from tuner.export.tables import safe_rung
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import CaseOutcome, Ending
from tuner.running.job import RECOVER, Job
from tuner.running.loop import optimize
from tuner.study.cases import Case

OTHER = Case(name="run")


def worked(
    folder: Path, probe: Callable[[ProbePlan, Stop], ProbeResult], *, recover: bool = True, trials: int | None = None
) -> tuple[list[CaseOutcome], list[tuple[object, ...]]]:
    """Recover or search two cases; return how they ended and what was launched."""
    listener = Quiet()
    with opened(folder) as database:
        job = Job(
            bench=bench(folder, spec()),
            database=database,
            probe=probe,
            listener=listener,
            interrupted=lambda: False,
            trials=trials,
        )
        outcomes = optimize(replace(job, purpose=RECOVER) if recover else job, [CASE, OTHER])
    return outcomes, [tuple(config.values()) for config in listener.launched]


def small_card(plan: ProbePlan, stop: Stop) -> ProbeResult:
    """Probe a card that fits 16 environments of one case and 8 of the other."""
    most = 16 if plan.slot.out_dir.parent.name == CASE.name else 8
    return failed(plan, FailureKind.GPU_OOM) if int(plan.config["num_envs"]) > most else busy(plan, stop)


def test_the_ladder_is_gone_down_until_one_config_runs(tmp_path: Path) -> None:
    outcomes, launched = worked(tmp_path, small_card)
    assert [outcome.probed for outcome in outcomes] == [5, 7]
    per_rung = [(rung, variant) for rung in (64, 32, 16, 8) for variant in ("hiutil", "default")]
    assert launched == [*per_rung[:5], *per_rung[:7]]


def test_what_is_known_to_fail_is_not_tried_again(tmp_path: Path) -> None:
    worked(tmp_path, lambda plan, stop: failed(plan, FailureKind.GPU_OOM), recover=False, trials=1)
    _, launched = worked(tmp_path, small_card)
    assert launched[0] == (64, "default")


def test_a_case_with_a_success_is_left_alone(tmp_path: Path) -> None:
    worked(tmp_path, busy, recover=False, trials=1)
    outcomes, launched = worked(tmp_path, small_card)
    assert [outcome.ending for outcome in outcomes] == [Ending.ALREADY, Ending.ALREADY]
    assert {outcome.why for outcome in outcomes} == {"a config has run"}
    assert launched == []


def test_a_case_in_which_nothing_runs_ends(tmp_path: Path) -> None:
    outcomes, launched = worked(tmp_path, lambda plan, stop: failed(plan, FailureKind.TOO_SLOW))
    assert [outcome.ending for outcome in outcomes] == [Ending.EXHAUSTED, Ending.EXHAUSTED]
    assert len(launched) == 18  # the first start of each of the two cases may compile, and is tried once more


def test_the_safe_rung_is_the_least_of_the_largest_that_ran(tmp_path: Path) -> None:
    worked(tmp_path, small_card)
    study = reader(tmp_path)
    assert {case.name: case.largest_ok for case in study.cases} == {CASE.name: 16, OTHER.name: 8}
    assert safe_rung(study.cases) == 8
    assert safe_rung([*study.cases, CaseView(name="none")]) is None


def test_methods_with_the_same_safe_rung_share_a_sentence(tmp_path: Path) -> None:
    worked(tmp_path, busy)
    (line,) = safe_rungs(reader(tmp_path))
    assert line.startswith("walk, run, all cases: num_envs 64 ")
