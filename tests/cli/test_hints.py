"""The closing messages of commands: what the best changes, what the user must fix, and what to do next."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests_loop import Quiet, bench, bounded, measured, opened, reader, spec
from tests_racing import searched
from tests_summary import BEST, GAIN, summary

from tuner.cli.hints import (
    command_for_larger,
    heading_of_command,
    largest_values,
    line_about_script,
    lines_by_case,
    notes_beside_table,
    what_to_repair,
)
from tuner.cli.options import RUNS, print_written
from tuner.cli.record import safe_rungs
from tuner.export.bound import Bound, Profile
from tuner.export.summary import CaseSummary, ConfigRow
from tuner.probe.result import Failure, FailureKind
from tuner.running.events import CaseOutcome, Ending
from tuner.running.job import Job
from tuner.running.loop import optimize
from tuner.study.cases import Case


def notes(rows: Sequence[CaseSummary]) -> list[str]:
    """Return the lines of `notes_beside_table`, each behind the name of its case."""
    return [f"{case}: {text}" for case, text in notes_beside_table(rows)]


@pytest.mark.parametrize(
    ("best", "facts"),
    [
        (BEST, ["87.0 min_avg_util", "0.21 times the default's samples/s", "update_epochs, batch_size change what"]),
        (
            replace(BEST, vs_default=None, changes_learning=("agent_variant",)),
            ["the default has not been measured", "agent_variant changes what is learnt"],
        ),
    ],
)
def test_a_best_that_changes_learning_says_so(best: ConfigRow, facts: list[str]) -> None:
    (line,) = notes([summary(best)])
    assert line.startswith("walk: ")
    assert all(fact in line for fact in facts)


@pytest.mark.parametrize("best", [replace(BEST, changes_learning=()), None])
def test_what_the_table_shows_is_not_said_again(best: ConfigRow | None) -> None:
    assert notes([replace(summary(best), status="ok" if best else "no_trials")]) == []


def test_the_default_of_another_rung_is_named_where_that_of_the_best_was_not_measured() -> None:
    best = replace(BEST, vs_default=None, changes_learning=("agent_variant",))
    own = replace(BEST, trial=0, value=80.0, config={"num_envs": 64}, times=0.5)
    gain = replace(GAIN, before=80.0, times=2.0)
    row = replace(summary(best), default=own, default_name="the default at num_envs=64", gain=gain)
    (line,) = notes([row])
    assert (
        "7.0 percentage points above the default at num_envs=64, #0; agent_variant" in line
    )  # its samples/s are those of a rung
    (line,) = notes(
        [
            replace(
                summary(replace(best, vs_default=0.33)),
                default=own,
                default_name="the default at num_envs=64",
                gain=gain,
            )
        ]
    )
    assert (
        "7.0 percentage points above the default at num_envs=64, #0, at 0.33 times the samples/s of the default of the"
        in line
    )


def test_a_config_with_far_more_samples_is_pointed_out() -> None:
    best = replace(BEST, changes_learning=())
    row = replace(summary(best), faster=replace(BEST, trial=7, value=61.04, times=4.28))
    (unknown,) = notes([replace(row, faster=replace(BEST, trial=7, times=None, samples_per_s=500.0)), summary(best)])
    assert unknown.startswith("walk: #7 makes 500")
    (line,) = notes([row, summary(best)])
    assert line.startswith("walk: #7 makes 4.3 times the best's samples/s, at 61.0 min_avg_util, with num_envs=512 ")
    assert "min_avg_util,samples_per_s" in line


def test_cases_with_the_same_limit_share_a_line() -> None:
    best = replace(BEST, changes_learning=())
    limited = replace(summary(best), bound=Bound.MEMORY, profile=Profile(dram_pct=70.0))
    stopped = replace(summary(best), case="fly", stopped="the search was stopped early")
    name, text, shared = lines_by_case(notes_beside_table([limited, replace(limited, case="run"), stopped]))
    assert (name, text.startswith("  the search was")) == ("fly:", True)
    assert shared.startswith("walk, run: memory-bound: ")


def test_notes_say_what_a_choice_gave_up_and_what_is_unconfirmed_and_replayed() -> None:
    best = replace(BEST, value=97.60, error=0.32, changes_learning=())
    top = replace(best, trial=1, value=97.63, error=0.39, times=0.53)
    given_up, unconfirmed, replayed = (
        notes([replace(summary(best), **facts)])
        for facts in ({"instead_of": top}, {"unconfirmed": best}, {"replay_of": "walk.parquet of 2026-11-22"})
    )
    assert "97.63 ± 0.39 against 97.60 ± 0.32" in given_up[0]
    assert "for 1.9 times the samples/s" in given_up[0]
    assert "in sessions, and the plain command has not measured it" in unconfirmed[0]
    assert "replay of walk.parquet of 2026-11-22" in replayed[0]


def test_a_case_measured_on_several_sets_of_cards_says_so() -> None:
    best = summary(replace(BEST, changes_learning=()))
    assert notes([replace(best, measured_on={"GPU-a, GPU-b": 9})]) == []
    (line,) = notes([replace(best, measured_on={"GPU-a, GPU-b": 9, "GPU-c, GPU-d": 2})])
    assert "measured on 2 sets of devices (measured_on in trials.tsv)" in line


def test_for_a_case_without_a_best_the_hint_says_what_to_do() -> None:
    failed = [replace(summary(None), status=status, ok=0) for status in ("gpu_oom", "interrupted", "no_trials")]
    lines = notes([*failed, replace(summary(None), status="ineligible")])
    assert [line.partition(";")[0] for line in lines] == [
        "walk: no config has run (gpu_oom)",
        "walk: no config that ran is eligible as best (ineligible)",
    ]
    assert all("`tuner recover`" in line for line in lines)


def test_for_a_case_with_a_faulty_set_up_the_hint_says_what_to_fix() -> None:
    (line,) = notes([replace(summary(None), status="missing_dependency", ok=0)])
    assert line.startswith("walk: no config has run (missing_dependency); install what is missing")
    assert "recover" not in line


def test_smaller_rungs_are_no_advice_where_no_config_is_at_fault() -> None:
    for status, advice in [
        ("no_progress", "`report()` of tuner/progress.py"),
        ("invalid_command", "correct the command in the study file"),
        ("gpu_busy", "free the cards"),
        ("hang", "read the newest console.log under probes/walk"),
    ]:
        (line,) = notes([replace(summary(None), status=status, ok=0)])
        assert advice in line
        assert "recover" not in line


@pytest.mark.parametrize(
    ("status", "first"),
    [("crash", "read the newest console.log under probes/walk"), ("too_slow", "raise `probe.max_seconds`")],
)
def test_a_failure_may_be_a_config_s_fault_or_not(status: str, first: str) -> None:
    (line,) = notes([replace(summary(None), status=status, ok=0)])
    assert first in line
    assert line.endswith("; `tuner recover` searches for a config that runs")
    (line,) = notes([replace(summary(None), status=status, ok=0, ladder=None)])
    assert "recover" not in line  # there are no smaller rungs


def test_a_trainer_that_refuses_its_files_says_itself_what_to_fix() -> None:
    failure = Failure(kind=FailureKind.MISSING_ASSET, rule="trainer", detail="a.yaml is no agent file; name another")
    outcome = CaseOutcome(case=Case(name="walk"), ending=Ending.SETUP, probed=1, failure=failure)
    assert what_to_repair(outcome) == "case walk: missing_asset: a.yaml is no agent file; name another"
    looked_for = what_to_repair(replace(outcome, failure=replace(failure, rule="file")))
    assert looked_for is not None
    assert looked_for.endswith("name another; put the file where the trainer looks for it (under `trainer.root`)")


CASES = [Case(name=name) for name in ("walk", "run", "fly")]
SMALL = "its buffer is small; buy another"


@pytest.mark.parametrize(
    ("most", "top", "is_told"), [(40, 32, True), (32, 32, False), (100, 64, True), (100, 32, False)]
)
def test_a_best_at_the_largest_rung_is_pointed_out_unless_the_trainer_can_run_no_larger_one(
    tmp_path: Path, most: int, top: int, is_told: bool
) -> None:
    desk = bounded(bench(tmp_path, spec()), most)
    rows = [summary(replace(BEST, config={"num_envs": top})), replace(summary(BEST), case="other")]
    line = f"walk: the best has the largest num_envs, {top}; larger values may be better, in a study with another name"
    assert [*largest_values(desk, CASES[:1], rows)] == ([line] if is_told else [])


def test_the_largest_value_of_any_parameter_is_pointed_out(tmp_path: Path) -> None:
    space = {
        "num_envs": {"ladder": [8, 16, 32]},
        "agent_variant": {"choices": ["default", "hiutil"]},
        "num_workers": {"range": [0, 8], "step": 4},
        "batch_size": {"choices": [4, 1, 2]},
        "prefetch_factor": {"choices": [2]},
        "tf32": {"choices": [0, 1]},
        "compile": {"choices": [False, True]},
        "layers": {"choices": [4, 8]},
    }
    template = {"command": f"train {' '.join(f'{{{name}}}' for name in space)}", "cases": ["walk"]}
    study = spec(trainer={"name": "command", "options": template}, space=space)
    numbers = {"num_workers": 8, "batch_size": 4, "prefetch_factor": 2, "tf32": 1, "layers": 8}
    config = {"num_envs": 16, "agent_variant": "hiutil", "compile": True, **numbers}
    assert [*largest_values(bench(tmp_path, study), CASES[:1], [summary(replace(BEST, config=config))])] == [
        "walk: the best has the largest num_workers, 8, and the largest batch_size, 4; "
        "larger values may be better, in a study with another name"
    ]


def test_a_typed_command_whose_best_has_the_largest_value_gets_the_command_that_goes_on(tmp_path: Path) -> None:
    space = {"workers": {"choices": [0, 2, 4]}, "batch": {"choices": [8, 16, 32]}}
    template = {"command": "train --workers {workers} -b {batch}", "cases": ["walk"]}
    desk = bench(tmp_path, spec(trainer={"name": "command", "options": template}, space=space))

    def goes_on(**config: int) -> str | None:
        row = summary(replace(BEST, config=config))
        return command_for_larger(desk, row, storage=None, runs=RUNS)

    assert goes_on(workers=2, batch=8) is None
    assert str(goes_on(workers=4, batch=8)).endswith(f"`--name {desk.spec.name}-4 --search workers=4,8,16`")
    assert f"--name {desk.spec.name}-4-32 --search workers=4,8,16 --search batch=32,64,128`" in str(
        goes_on(workers=4, batch=32)
    )
    unsure = replace(summary(replace(BEST, config={"workers": 4})), default=replace(BEST, config={"workers": 0}))
    assert command_for_larger(desk, unsure, storage=None, runs=RUNS) is None
    within_errors = replace(summary(BEST), gain=replace(GAIN, times=2.3, error=1.4))
    rows = (unsure, within_errors, summary(BEST))
    assert [heading_of_command(row).split()[4].strip(";") for row in rows] == ["try", "try", "copy:"]


def test_no_larger_value_is_named_where_a_rule_refuses_it(tmp_path: Path) -> None:
    space = {"batch": {"choices": [4, 8, 16]}}
    options = {"command": "train -b {batch} -a {steps}", "cases": ["walk"], "computed": {"steps": "16 / {batch}"}}
    desk = bench(tmp_path, spec(trainer={"name": "command", "options": options}, space=space))
    row = summary(replace(BEST, config={"batch": 16}))
    assert command_for_larger(desk, row, storage=None, runs=RUNS) is None


def test_a_single_rung_is_not_called_the_largest(tmp_path: Path) -> None:
    desk = bench(tmp_path, spec(space={"num_envs": {"ladder": [64]}}))
    assert not [*largest_values(desk, CASES[:1], [summary(replace(BEST, config={"num_envs": 64}))])]


def test_the_command_for_the_best_names_the_options_that_led_to_it() -> None:
    said = line_about_script("my study.yaml", devices=None, storage=None, runs=RUNS)
    assert "`tuner plan --study 'my study.yaml' --best`" in said
    said = line_about_script("demo", devices="cpu:2", storage="postgresql://me:secret@host/db", runs=Path("/scratch"))
    assert "--study demo --devices cpu:2 --storage 'postgresql://me:***@host/db' --runs /scratch --best`" in said


@pytest.mark.parametrize(
    ("file", "runs", "shown"),
    [
        ("runs/walk/study.yaml", "runs", "walk"),
        ("runs/reference/study.yaml", "runs", "runs/reference/study.yaml"),  # the name is that of a shipped study
        ("study.yaml", ".", "study.yaml"),
    ],
)
def test_a_kept_study_file_is_named_by_its_folder_where_that_finds_it(file: str, runs: str, shown: str) -> None:
    said = line_about_script(file, devices=None, storage=None, runs=Path(runs))
    assert f"tuner plan --study {shown} " in said


def test_a_database_that_the_environment_names_is_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STORAGE", url := "postgresql://me:secret@host/db")
    said = line_about_script("demo", devices=None, storage=url, runs=RUNS)
    assert "`tuner plan --study demo --best`" in said


def test_files_are_named_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    console = Console(file=StringIO(), width=80)
    print_written(console, [])
    print_written(console, [tmp_path / "runs/trials.tsv", Path("/elsewhere/best.tsv")])
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == "wrote runs/trials.tsv, /elsewhere/best.tsv\n"


def test_a_safe_num_envs_is_named_only_where_num_envs_is_searched(tmp_path: Path) -> None:
    assert safe_rungs(searched(tmp_path, rungs=[64, 32], variants=["default"])) == [
        "walk: num_envs 64 is known to be safe for every case"
    ]
    command = {"command": "train {batch_size} {out_dir}", "cases": ["walk"]}
    study = spec(trainer={"name": "command", "options": command}, space={"batch_size": {"choices": [32, 64]}})
    with opened(tmp_path / "flat") as database:
        job = Job(
            bench=bench(tmp_path, study),
            database=database,
            probe=lambda plan, _: measured(plan, 50.0),
            listener=Quiet(),
            interrupted=lambda: False,
        )
        optimize(job, [Case(name="walk")])
    assert safe_rungs(reader(tmp_path / "flat")) == []
