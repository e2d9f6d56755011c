"""What a search prints at its end."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests_loop import bench, spec
from tests_summary import BEST, GAIN, summary

from tuner.cli.hints import lines_at_end
from tuner.cli.report import whereabouts
from tuner.export import gain_text, result_finding
from tuner.export.bound import Bound, Profile
from tuner.export.summary import CaseSummary
from tuner.study.cases import Case

CASES = [Case(name="walk"), Case(name="run")]


def compared(objective: str = "min_avg_util", **facts: object) -> CaseSummary:
    """Return a case whose best has 87 beside a default of 58."""
    default = replace(BEST, value=60.0, config={"num_envs": 512, "agent_variant": "default"}, measured="warm")
    return replace(summary(BEST), **{"objective": objective, "default": default, "gain": GAIN, **facts})  # pyright: ignore[reportArgumentType]


def test_a_gain_is_a_factor_of_speeds_and_points_of_anything_else() -> None:
    assert gain_text(compared()) == "+29.0 percentage points from 58.0, 1.5 times as fast"
    hidden = compared(gain=replace(GAIN, before_error=15.0, after_error=20.0))
    assert gain_text(hidden) == "+29.0 ± 25.0 percentage points from 58.0, 1.5 times as fast"
    assert "29.0 ± 25.0 percentage points above" in str(result_finding(hidden))
    assert gain_text(compared("samples_per_s")) == "1.5 times, from 58"
    assert gain_text(summary(BEST)) == ""
    assert gain_text(summary(None)) == ""
    own = compared()
    smaller = replace(BEST, config={"num_envs": 64})  # any config makes fewer samples/s at this rung
    assert gain_text(compared(default=smaller)) == (
        "+29.0 percentage points from 58.0, 0.21 times as fast as the default of its rung"
    )
    assert (
        gain_text(compared(default=smaller, best=replace(BEST, vs_default=None))) == "+29.0 percentage points from 58.0"
    )
    assert gain_text(replace(own, best=own.default, ok=9)) == "none, the default is best"
    assert gain_text(replace(own, best=own.default, ok=1, pruned=0)) == "no other was measured"
    assert replace(own, best=own.default, gain=None).times_default is None
    assert gain_text(replace(own, gain=None)) == "unknown"
    overall = replace(GAIN, overall=True)
    assert gain_text(compared("samples_per_s", gain=overall)) == "1.5 times over the whole training, from 58"


def test_beside_a_gain_of_sessions_the_best_has_the_plain_commands_value_and_a_line_has_theirs(tmp_path: Path) -> None:
    row = compared("samples_per_s", gain=replace(GAIN, after=93.0, in_sessions=True))
    lines = list(lines_at_end(bench(tmp_path, spec()), CASES[:1], [row]))
    assert any("sessions" in line and "58.0" in line and "93.0" in line for line in lines)
    unknown = replace(row, gain=None)
    assert any("unknown" in line for line in lines_at_end(bench(tmp_path, spec()), CASES[:1], [unknown]))


def test_one_doubt_follows_what_the_best_is_and_what_limits_it(tmp_path: Path) -> None:
    rows = [
        compared(
            bound=Bound.MEMORY,
            profile=Profile(dram_pct=70.0),
            doubts=("the machine was busy",),
            faster=replace(BEST, trial=7, times=4.0),
        )
    ]
    limit, doubt = lines_at_end(bench(tmp_path, spec()), CASES[:1], rows)
    assert "memory" in limit
    assert doubt == "walk: the machine was busy"
    *_, last = lines_at_end(bench(tmp_path, spec(space={"num_envs": {"ladder": [512, 64]}})), CASES[:1], [compared()])
    assert last.startswith("walk: the best has the largest num_envs, 512")
    assert not [
        line for line in lines_at_end(bench(tmp_path, spec()), CASES, [*rows, summary(None)]) if "memory-bound" in line
    ]


def test_a_case_without_a_best_says_what_to_do(tmp_path: Path) -> None:
    failed = replace(summary(None), case="run", status="gpu_oom", ok=0)
    lines = list(lines_at_end(bench(tmp_path, spec()), CASES, [summary(BEST), failed]))
    assert any(line.startswith("run: ") and "`tuner recover`" in line for line in lines)


def test_the_report_is_named_or_else_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = [tmp_path / "runs/best.tsv", tmp_path / "runs/trials.tsv"]
    both = whereabouts(tmp_path / "runs/report.html", tables)
    assert both.startswith("report: runs/report.html; ")
    assert "best.tsv" in both
    assert whereabouts(None, tables).startswith("runs: best.tsv")
