"""What a person reads: what is left out, and at the end what the best changes and what lies beyond it."""

import sys
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.console import Console
from tests_loop import bench, bounded, spec

from tuner.cli.options import RUNS
from tuner.cli.show import (
    at_the_top,
    complaint,
    introduction,
    learning_changed,
    open_console,
    script_of_best,
    without_success,
    written,
)
from tuner.cli.tables import print_tables, summary_table
from tuner.export.summary import Best, CaseSummary
from tuner.job import CaseOutcome, Ending
from tuner.probe.result import Failure, FailureKind
from tuner.study.cases import Case

BEST = Best(
    trial=3,
    value=87.0,
    error=None,
    readings=1,
    config={"num_envs": 512, "agent_variant": "hiutil", "update_epochs": 20},
    samples_per_s=9000.0,
    vs_default=0.2143,
    changes_learning=("update_epochs", "batch_size"),
)


def summary(best: Best | None) -> CaseSummary:
    return CaseSummary(
        case="walk",
        status="ok",
        objective="min_avg_util",
        best=best,
        ok=1,
        pruned=0,
        failed=0,
        interrupted=0,
        running=0,
    )


@pytest.mark.parametrize(
    ("best", "lines"),
    [
        (BEST, ["walk: the best makes 0.21 of default's samples/s; update_epochs, batch_size change what is learnt"]),
        (
            replace(BEST, vs_default=None, changes_learning=("agent_variant",)),
            ["walk: the best has no default measured at its rung beside it; agent_variant changes what is learnt"],
        ),
        (replace(BEST, changes_learning=()), []),
        (None, []),
    ],
)
def test_a_best_that_changes_learning_says_so(best: Best | None, lines: list[str]) -> None:
    assert learning_changed([summary(best)]) == lines


def test_a_case_without_a_best_is_told_what_to_do() -> None:
    failed = [replace(summary(None), status=status, ok=0) for status in ("gpu_oom", "interrupted", "no_trials")]
    assert without_success([summary(BEST), *failed, replace(summary(None), status="ineligible")]) == [
        "walk: no config has run (gpu_oom); `tuner recover` looks for one",
        "walk: no config that ran may be the best (ineligible); `tuner recover` looks for one",
    ]


def test_a_case_whose_set_up_is_at_fault_is_told_what_to_mend() -> None:
    (line,) = without_success([replace(summary(None), status="missing_dependency", ok=0)])
    assert line.startswith("walk: no config has run (missing_dependency); install it into the trainer's environment")
    assert "recover" not in line


def test_a_trainer_that_refuses_its_files_has_said_itself_what_to_mend() -> None:
    failure = Failure(kind=FailureKind.MISSING_ASSET, rule="trainer", detail="a.yaml is no agent file; name another")
    outcome = CaseOutcome(case=Case(name="walk"), ending=Ending.SETUP, probed=1, failure=failure)
    assert complaint(outcome) == "case walk: missing_asset: a.yaml is no agent file; name another"
    looked_for = complaint(replace(outcome, failure=replace(failure, rule="file")))
    assert looked_for is not None
    assert looked_for.endswith("name another; put the file where the trainer looks for it (under `trainer.root`)")


def test_a_best_read_several_times_says_so() -> None:
    rows = [summary(BEST), summary(replace(BEST, readings=3)), summary(replace(BEST, error=0.34)), summary(None)]
    table = summary_table(rows)
    assert table.columns[2].header == "best min_avg_util"
    assert list(table.columns[2].cells) == ["87.0", "87.0 (mean of 3)", "87.0 ± 0.3", ""]


def test_the_whole_config_of_the_best_is_shown() -> None:
    table = summary_table([summary(BEST)])
    assert table.columns[3].header == "config"
    assert list(table.columns[3].cells) == ["num_envs=512 agent_variant=hiutil update_epochs=20"]


def printed(width: int, *rows: CaseSummary) -> list[str]:
    console = Console(file=StringIO(), width=width, soft_wrap=True)
    with console.capture() as shown:
        print_tables(console, summary_table(rows))
    return shown.get().splitlines()


ROWS = [replace(summary(replace(BEST, error=0.4)), case="deepmimic_pi_plus_ppo", pruned=2), summary(None)]


def test_a_terminal_of_80_columns_shows_each_config_whole_below_the_table() -> None:
    *table, config = printed(80, *ROWS)
    assert config == "deepmimic_pi_plus_ppo: num_envs=512 agent_variant=hiutil update_epochs=20"
    assert max(map(len, table)) <= 80
    shown = "\n".join(table)
    for whole in ("│ deepmimic_pi_plus_ppo │ ok     │ 87.0 ± 0.4", "min_avg_util ", "pruned │"):
        assert whole in shown


def test_a_wide_terminal_shows_each_config_in_the_table() -> None:
    *table, bottom = printed(140, *ROWS)
    assert any("│ num_envs=512 agent_variant=hiutil update_epochs=20 │" in line for line in table)
    assert bottom.startswith("└")


def test_a_narrow_terminal_cuts_nothing_off() -> None:
    *lines, config = printed(50, *ROWS)
    cells = zip(*(line.split("│") for line in lines if "│" in line), strict=True)
    assert "deepmimic_pi_plus_ppowalk" in {"".join(map(str.strip, column)) for column in cells}
    assert config.endswith("update_epochs=20")
    assert max(map(len, lines)) <= 50
    assert not any("…" in line for line in lines)


def test_an_output_that_cannot_spell_a_letter_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii", write_through=True))
    open_console().print("61.2 ± 0.3")
    assert written.getvalue() == b"61.2 ? 0.3\n"


def test_trials_are_counted_by_what_became_of_them() -> None:
    table = summary_table(
        [summary(None), replace(summary(None), ok=0), replace(summary(None), failed=3, interrupted=2)]
    )
    assert list(table.columns[-1].cells) == ["1 ok", "", "1 ok, 3 failed, 2 interrupted"]


CASES = [Case(name=name) for name in ("walk", "run", "fly")]
SMALL = "its buffer is small; buy another"


def introduced(folder: Path, most: int, *only: str) -> list[str]:
    console = Console(file=StringIO(), width=200)
    with console.capture() as shown:
        introduction(console, bounded(bench(folder, spec()), most, *only), CASES, "sqlite://")
    return shown.get().splitlines()


def test_rungs_that_are_left_out_are_said_once_for_all_cases_with_the_same_reason(tmp_path: Path) -> None:
    assert introduced(tmp_path, 40, "walk", "fly")[-1] == f"walk, fly: num_envs up to 40: {SMALL}"
    assert not [line for line in introduced(tmp_path, 64) if SMALL in line]


@pytest.mark.parametrize(
    ("most", "top", "hint"),
    [
        (40, 32, f"a longer ladder (in a study of another name) may do better, up to 40: {SMALL}"),
        (32, 32, f"command can run no larger one: {SMALL}"),
        (64, 64, f"command can run no larger one: {SMALL}"),
        (100, 64, f"a longer ladder (in a study of another name) may do better, up to 100: {SMALL}"),
        (100, 32, None),
    ],
)
def test_a_best_at_the_top_is_told_what_lies_beyond(tmp_path: Path, most: int, top: int, hint: str | None) -> None:
    desk = bounded(bench(tmp_path, spec()), most)
    lines = at_the_top(
        desk, CASES[:1], [summary(replace(BEST, config={"num_envs": top})), replace(summary(BEST), case="other")]
    )
    assert lines == ([] if hint is None else [f"walk: the best is the largest rung, {top}; {hint}"])


def test_at_the_end_of_an_auto_ladder_a_larger_max_is_the_hint(tmp_path: Path) -> None:
    auto = spec(space={"num_envs": {"ladder": "auto", "min": 8, "max": 64}})
    (line,) = at_the_top(bench(tmp_path, auto), CASES[:1], [summary(replace(BEST, config={"num_envs": 64}))])
    assert line == "walk: the best is the largest rung, 64; a larger `max` (in a study of another name) may do better"


def test_without_an_end_a_longer_ladder_is_the_hint(tmp_path: Path) -> None:
    rows = [summary(replace(BEST, config={"num_envs": 64})), replace(summary(None), case="run")]
    (line,) = at_the_top(bench(tmp_path, spec()), CASES, rows)
    assert line == "walk: the best is the largest rung, 64; a longer ladder (in a study of another name) may do better"


def test_the_command_for_the_best_names_the_options_that_led_to_it() -> None:
    said = script_of_best("my study.yaml", devices=None, storage=None, runs=RUNS)
    assert said == "`tuner plan --study 'my study.yaml' --best` prints the best as a script to train with"
    said = script_of_best("demo", devices="cpu:2", storage="postgresql://me:secret@host/db", runs=Path("/scratch"))
    assert "--study demo --devices cpu:2 --storage 'postgresql://me:***@host/db' --runs /scratch --best`" in said


def test_files_are_named_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    console = Console(file=StringIO(), width=80)
    written(console, [])
    written(console, [tmp_path / "runs/trials.tsv", Path("/elsewhere/best.tsv")])
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == "wrote runs/trials.tsv, /elsewhere/best.tsv\n"
