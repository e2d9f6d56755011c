"""What a search tells the person who has typed the command."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests_counts import COUNTED_TRAINING
from tests_loop import CASE, Quiet, bench, failed, measured, opened, spec, view

from tuner.count.signature import Shares
from tuner.drafting.outcome import outcome_of
from tuner.export import gain
from tuner.export.case_view import CaseView
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import Change, FailureKind, ProbeResult
from tuner.running.events import ProbeEnded
from tuner.running.job import Job, Workbench
from tuner.running.loop import optimize
from tuner.study.cases import Case
from tuner.study.spec import StudySpec


def faster(parameter: str, plan: ProbePlan, stop: Stop) -> ProbeResult:
    """Measure a speed that grows with a parameter."""
    return replace(measured(plan, 50.0), samples_per_s=100.0 * int(plan.config[parameter]))


def searched_bench(
    folder: Path,
    study: StudySpec,
    probe: Callable[[ProbePlan, Stop], ProbeResult],
    listener: Quiet | None = None,
    case: Case = CASE,
) -> Workbench:
    """Return the bench of a study whose only case has been searched."""
    desk, listener = bench(folder, study), listener or Quiet()
    with opened(folder) as database:
        optimize(Job(bench=desk, database=database, probe=probe, listener=listener, interrupted=lambda: False), [case])
    return desk


@pytest.mark.parametrize(("fastest", "told_as"), [(4, None), (8, "  ahead: 8 (not used before)")])
def test_a_value_that_the_best_begins_to_use_is_a_change_only_if_it_is_not_as_typed(
    tmp_path: Path, fastest: int, told_as: str | None
) -> None:
    study = spec(
        trainer={
            "name": "command",
            "options": {"command": "train --workers {workers} --ahead {ahead}", "cases": ["walk"]},
        },
        space={
            "workers": {"choices": [0, 2]},
            "ahead": {"choices": [4, 8], "when": {"workers": {"min": 1}}},
        },
        search={"trials": 3, "sampler": "random"},
    )

    def busier(plan: ProbePlan, stop: Stop) -> ProbeResult:
        speed = 90.0 if plan.config.get("ahead") == fastest else 50.0
        return replace(measured(plan, speed), samples_per_s=speed)

    desk = searched_bench(tmp_path, study, busier)
    told, line = outcome_of(desk, view(tmp_path), ["train", "--workers", "0", "--ahead", "4"])

    assert "  workers: 0 → 2" in told
    assert [text for text in told if "ahead" in text] == [told_as] * (told_as is not None)
    assert line == f"train --workers 2 --ahead {fastest}"


def test_a_typed_folder_of_the_run_is_there_for_the_line_to_copy(tmp_path: Path) -> None:
    typed = ["sh", "-c", "echo {workers} > {out_dir}/a"]
    study = spec(
        trainer={"name": "command", "options": {"command": typed, "cases": ["walk"]}},
        space={"workers": {"choices": [1, 2]}},
        objective="samples_per_s",
        search={"trials": 2, "sampler": "random"},
    )

    desk = searched_bench(tmp_path, study, partial(faster, "workers"))
    line = outcome_of(desk, view(tmp_path), typed).command
    assert line is not None
    subprocess.run(["/bin/sh", "-c", line], check=True)
    assert (desk.folder / "best/walk/a").read_text() == "2\n"


@pytest.mark.parametrize(
    ("failing", "detail", "shown"), [(2, "workers  are broken", "workers are broken"), (3, "w" * 201, "w" * 198 + " …")]
)
def test_configs_that_failed_are_counted_with_their_kind_and_the_newest_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, detail: str, shown: str
) -> None:
    monkeypatch.chdir(tmp_path)
    study = spec(
        trainer={"name": "command", "options": {"command": "train {workers}", "cases": ["walk"]}},
        space={"workers": {"choices": [0, 2, 4]}},
        objective="samples_per_s",
        search={"trials": 8, "sampler": "random"},
    )

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        plan.slot.out_dir.mkdir(parents=True, exist_ok=True)
        plan.slot.console.touch()
        if int(plan.config["workers"]) >= 6 - 2 * failing:
            return failed(plan, FailureKind.CRASH, detail)
        return replace(measured(plan, 50.0), samples_per_s=100.0)

    desk = searched_bench(tmp_path, study, probe)
    *before, line = outcome_of(desk, view(tmp_path), ["train", "0"]).lines
    newest = max(trial.number for trial in view(tmp_path).failures)
    log = f"log: demo/probes/walk/{newest:04d}/console.log"
    assert line == f"{failing} of 3 configs failed, {failing} crash; #{newest}: {shown}; {log}"
    assert any(("each other config failed" if failing == 2 else "no config has run (crash)") in text for text in before)


def test_the_line_to_copy_names_the_file_that_is_written(tmp_path: Path) -> None:
    case = "2048"  # no number of a member of a front
    file = tmp_path / "train.yaml"
    file.write_text("workers: 1\n")
    options = {"command": f"cat {file}", "cases": [case], "files": {str(file): {"workers": "workers"}}}
    study = spec(
        trainer={"name": "command", "options": options},
        space={"workers": {"choices": [1, 2]}},
        objective="samples_per_s",
        search={"trials": 2, "sampler": "random"},
    )

    desk = searched_bench(tmp_path, study, partial(faster, "workers"), case=Case(name=case))
    line = outcome_of(desk, view(tmp_path, case), ["cat", str(file)]).command
    assert line is not None
    assert subprocess.run(["/bin/sh", "-c", line], check=True, capture_output=True).stdout == b"workers: 2\n"


def test_the_line_to_copy_begins_with_the_environment_that_was_named_unless_the_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("python", "train"):
        (tmp_path / "bin" / program).write_text('#!/bin/sh\necho "here $@"\n')
        (tmp_path / "bin" / program).chmod(0o755)
    study = spec(
        trainer={
            "name": "command",
            "python": str(tmp_path / "bin/python"),
            "options": {"command": "train --workers {workers}", "cases": ["walk"]},
        },
        space={"workers": {"choices": [1, 2]}},
        objective="samples_per_s",
        search={"trials": 2, "sampler": "random"},
    )

    desk = searched_bench(tmp_path, study, partial(faster, "workers"))
    line = outcome_of(desk, view(tmp_path), ["train", "--workers", "1"]).command
    assert line is not None
    ran = subprocess.run(["/bin/sh", "-c", line], check=True, capture_output=True, text=True)
    assert ran.stdout == "here --workers 2\n"
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert outcome_of(desk, view(tmp_path), ["train", "--workers", "1"]).command == "train --workers 2"


def test_the_line_to_copy_has_the_variables_of_the_probes(tmp_path: Path) -> None:
    study = spec(
        trainer={"name": "command", "options": {"command": "train {workers}", "cases": ["walk"]}},
        space={"workers": {"choices": [1, 2]}},
        objective="samples_per_s",
        search={"trials": 2, "sampler": "random"},
        environment={"variables": {"ALGO": "${X:-a}", "DB_PASSWORD": "hunter2"}},
    )

    desk = searched_bench(tmp_path, study, partial(faster, "workers"))
    launched = {"CUDA_VISIBLE_DEVICES": "GPU-1", "OMP_NUM_THREADS": "3", "NCCL_P2P_DISABLE": "1"}
    desk = replace(desk, variables={**launched, **study.environment.variables})
    line = outcome_of(desk, view(tmp_path), ["NCCL_P2P_DISABLE=0", "train", "1"]).command
    assert line == 'OMP_NUM_THREADS=3 NCCL_P2P_DISABLE=1 ALGO="${X:-a}" train 2'


def test_more_environments_change_what_is_learnt(tmp_path: Path) -> None:
    options = {"command": "train --num_envs {num_envs}", "cases": ["walk"], "learning": ["num_envs"]}
    study = spec(
        trainer={"name": "command", "options": options},
        space={"num_envs": {"choices": [4, 16]}},
        objective="samples_per_s",
        search={"trials": 2, "sampler": "random"},
    )

    def counted(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return replace(faster("num_envs", plan, stop), training=COUNTED_TRAINING)

    desk = searched_bench(tmp_path, study, counted)
    told = outcome_of(desk, view(tmp_path), ["train", "--num_envs", "4"]).lines
    assert "  num_envs: 4 → 16; this changes what is learnt" in told
    assert any(line.startswith("  a step is the same: 32 samples") for line in told)
    assert not any("the same training" in line for line in told)


def searched(
    tmp_path: Path, facts: Mapping[int, Mapping[str, Any]], printed: Mapping[int, str] | None = None
) -> list[str]:
    """Return what is told of `train --workers 1`. `facts`: workers → what a probe with so many has measured.

    `printed`: workers → what the command has printed.
    """
    study = spec(
        trainer={
            "name": "command",
            "options": {"command": "train --workers {workers}", "cases": ["walk"], "samples_per_iteration": "32"},
        },
        space={"workers": {"choices": [1, *(count for count in facts if count != 1)]}},
        search={"trials": max(2, len(facts)), "sampler": "random", "seeds_per_variant": 1},
    )

    def probed(plan: ProbePlan, stop: Stop) -> ProbeResult:
        workers = int(plan.config["workers"])
        plan.slot.console.parent.mkdir(parents=True, exist_ok=True)
        plan.slot.console.write_text((printed or {}).get(workers, ""))
        usual = {"samples_per_s": 1100.0 * workers, "samples": 320, "iteration": 10}
        return replace(measured(plan, 20.0 * workers), **{**usual, **facts.get(workers, {})})

    desk = searched_bench(tmp_path, study, probed)
    return list(outcome_of(desk, view(tmp_path), ["train", "--workers", "1"]).lines)


PAUSE = "an epoch's end costs 1.3 s; the numbers are those without it"


@pytest.mark.parametrize(
    ("own", "best", "gained", "doubt"),
    [
        ({}, {}, "3.00 times as many", "ran once"),
        (
            {"trained_s": 9.0},
            {"trained_s": 3.0, "notes": (PAUSE,)},
            "3.00 times as many",
            "an epoch's end costs 1.3 s",
        ),
        (
            {"trained_s": 6.0, "step_share": 0.5, "notes": (PAUSE,)},
            {"trained_s": 3.0, "step_share": 0.25, "notes": (PAUSE,)},
            *("1.50 times as many over the whole training", "ran once"),
        ),
    ],
    ids=["none", "once", "often"],
)
def test_a_gain_is_that_of_the_whole_training_and_has_its_largest_doubt(
    tmp_path: Path, own: Mapping[str, Any], best: Mapping[str, Any], gained: str, doubt: str
) -> None:
    _, told, *changes, doubted = searched(tmp_path, {1: own, 3: best})
    assert gained in told
    assert changes == ["  workers: 1 → 3"]
    assert doubt in doubted


def measured_again(
    tmp_path: Path, again: Callable[[ProbePlan, ProbeResult], ProbeResult], own: float = 1100.0
) -> tuple[CaseView, str]:
    """Return a case whose command runs twice, and what is told.

    `again`: plan, usual result → the second result. `own`: the samples/s of the command; the other config makes 3,300.
    """
    study = spec(
        trainer={"name": "command", "options": {"command": "train --workers {workers}", "cases": ["walk"]}},
        space={"workers": {"choices": [1, 3]}},
        objective="samples_per_s",
        search={"trials": 4},
    )
    begun: list[int] = []

    def probed(plan: ProbePlan, stop: Stop) -> ProbeResult:
        begun.append(int(plan.config["workers"]))
        usual = replace(measured(plan, 20.0), samples_per_s=own if begun[-1] == 1 else 3300.0, samples_per_s_se=1.0)
        return again(plan, usual) if begun.count(1) > 1 else usual

    listener = Quiet()
    desk, known = searched_bench(tmp_path, study, probed, listener), view(tmp_path)
    assert begun.count(1) > 1
    bests, gained = [event.best for event in listener.of(ProbeEnded) if event.best], gain(known)
    assert bests[-1].times == (gained and gained.times)
    return known, " ".join(outcome_of(desk, view(tmp_path), ["train", "--workers", "1"]).lines)


@pytest.mark.parametrize(
    ("again", "runs", "said"),
    [
        ([300.0, 303.0], 3, "your command: 302.0 "),  # a third run tells which of two is right
        ([300.0, 80.0, 20.0], 4, "`tuner verify`"),  # and where four do not, it stays unknown
    ],
)
def test_runs_of_the_command_that_contradict_each_other_are_repeated(
    tmp_path: Path, again: list[float], runs: int, said: str
) -> None:
    left = [*again]

    def other(_: ProbePlan, usual: ProbeResult) -> ProbeResult:
        speed = left.pop(0) if len(left) > 1 else left[0]
        return replace(usual, samples_per_s=speed) if usual.config["workers"] == 1 else usual

    known, told = measured_again(tmp_path, other)
    assert len(left) == 1
    assert said in told
    assert (gain(known) is None) is (runs == 4)


def test_a_command_that_fails_when_it_runs_again_gives_no_gain(tmp_path: Path) -> None:
    known, told = measured_again(tmp_path, lambda plan, _: failed(plan, FailureKind.CRASH, "already complete"))
    assert "already complete" in told
    assert "already complete" in known.doubts[-1]
    assert "gain is unknown" in told


def test_a_slower_config_is_no_line_to_try_after_the_command_has_failed(tmp_path: Path) -> None:
    def again(plan: ProbePlan, usual: ProbeResult) -> ProbeResult:
        return failed(plan, FailureKind.CRASH, "NaN in loss") if usual.config["workers"] == 1 else usual

    _, told = measured_again(tmp_path, again, own=4400.0)
    assert "NaN in loss; no other config measured more; your command stays as it is" in told
    assert "the best" not in told


def test_the_best_is_taken_to_scatter_as_the_command_does(tmp_path: Path) -> None:
    _, told = measured_again(tmp_path, lambda _, usual: replace(usual, samples_per_s=1300.0))
    assert "2.75 ± 0.32 times as many" in told  # with what windows show alone: ± 0.23


def test_the_longest_probe_shows_how_a_training_spends_its_time(tmp_path: Path) -> None:
    probes = [(90.0, 0.08), (9.0, 0.0)]  # a short probe has seen no evaluation

    def again(plan: ProbePlan, usual: ProbeResult) -> ProbeResult:
        total_s, evaluation = probes.pop(0) if len(probes) > 1 else probes[0]
        training = replace(COUNTED_TRAINING, shares=Shares(data=0.0, evaluation=evaluation, saves=0.0))
        return replace(usual, samples_per_s=6000.0, total_s=total_s, training=training)

    _, told = measured_again(tmp_path, again, own=4400.0)
    assert "its time: 8 % evaluation" in told


def test_a_command_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    study = spec(
        trainer={"name": "command", "options": {"command": "train --workers {workers}", "cases": ["walk"]}},
        space={"workers": {"choices": [0, 2]}},
        search={"trials": 1, "sampler": "random", "seeds_per_variant": 1},
    )
    desk = bench(tmp_path, study)
    with opened(tmp_path) as database:
        job = Job(
            bench=desk,
            database=database,
            probe=lambda plan, stop: measured(plan, 50.0),
            listener=Quiet(),
            interrupted=lambda: False,
        )
        optimize(job, [CASE])
    configs = view(tmp_path).configs
    own = str(configs[0].config["workers"])
    told = outcome_of(desk, view(tmp_path), ["train", "--workers", own]).lines

    assert len(configs) == 1
    assert "no other config was measured" in " ".join(told)


@pytest.mark.parametrize(("speed", "is_unknown"), [(160.0, True), (95.0, False)])
def test_a_config_that_measured_more_within_the_errors_leaves_unknown_which_is_faster(
    tmp_path: Path, speed: float, is_unknown: bool
) -> None:
    study = spec(
        trainer={"name": "command", "options": {"command": "train --workers {workers}", "cases": ["walk"]}},
        space={"workers": {"choices": [1, 3]}},
        objective="samples_per_s",
        search={"trials": 2, "sampler": "random"},
    )

    def probed(plan: ProbePlan, stop: Stop) -> ProbeResult:
        own = plan.config["workers"] == 1
        return replace(
            measured(plan, 20.0), samples_per_s=100.0 if own else speed, samples_per_s_se=40.0 if own else 1.0
        )

    desk = searched_bench(tmp_path, study, probed)
    told = " ".join(outcome_of(desk, view(tmp_path), ["train", "--workers", "1"]).lines)
    assert ("unknown: workers=3 made 1.60 ± 0.64 times as many" in told) is is_unknown
    assert ("no other config is better" in told) is not is_unknown


def test_a_speed_that_changed_later_than_the_other_run_ended_gives_no_gain(tmp_path: Path) -> None:
    first, *others = searched(tmp_path, {1: {}, 4: {"change": Change(90, 5.0, 3.0), "iteration": 200, "samples": 6400}})
    assert all(fact in first for fact in ("gain is unknown", "iteration 90", "iteration 10"))  # before any speed
    assert not any("gain is unknown" in line for line in others)


def test_a_command_that_ended_before_a_change_of_the_others_is_not_called_the_best(tmp_path: Path) -> None:
    told = " ".join(searched(tmp_path, {0: {"change": Change(90, 5.0, 0.3), "iteration": 200, "samples": 6400}}))
    assert "unknown" in told
    assert "iteration 90" in told


@pytest.mark.parametrize("other", [0, 3])  # the command stays, or another config is better
def test_iterations_that_get_longer_may_make_a_faster_config_look_slow(tmp_path: Path, other: int) -> None:
    slowed = {workers: {"change": Change(100 + 50 * workers, 9.0, 0.8), "iteration": 400} for workers in (1, 3)}
    slowed[0] = {"change": Change(300, 9.0, 0.8), "iteration": 400}
    told = searched(tmp_path, {1: slowed[1], other: slowed[other]})
    assert any("looks slower than it is" in line for line in told)
    (tmp_path / "steady").mkdir()
    told = searched(tmp_path / "steady", {1: slowed[1], other: slowed[other], 2: {"iteration": 400}})
    assert not any("looks slower" in line for line in told)


def test_without_speeds_there_is_no_line_to_copy(tmp_path: Path) -> None:
    unknown = {"samples_per_s": None, "samples": None}
    told = searched(tmp_path, {1: unknown, 3: unknown})
    assert "speeds are unknown, so there is no line to copy; your command stays as it is" in told[-1]
    assert not any("--workers" in line or "times as many" in line for line in told)
