from dataclasses import replace
from pathlib import Path

from benchmarks.probes.agreement import COLUMNS, PLAIN, THIN, Task, append, differences, recorded, row, tasks
from tuner.probe.result import DeviceSummary, Failure, FailureKind, ProbeResult

RESULT = ProbeResult(
    config={"num_envs": 64},
    plan_digest="",
    started_at="",
    total_s=30.0,
    window_s=20.0,
    trained_s=80.0,
    iterations=4,
    devices=(DeviceSummary(device="cuda:0", source="nvml", util_mean_pct=90.0, util_se_pct=1.0),),
)


def at(util_pct: float) -> ProbeResult:
    return replace(RESULT, devices=tuple(replace(one, util_mean_pct=util_pct) for one in RESULT.devices))


def test_each_config_has_its_thin_probes_and_its_plain_one_in_each_round_and_the_ways_take_turns() -> None:
    walk, run = ("walk", "num_envs=64,batch_size=2"), ("run", "")
    assert [task.key for task in tasks(["walk:num_envs=64,batch_size=2", "run"], 1, 2)] == [
        *((*walk, THIN, "0"), (*walk, PLAIN, "0"), (*run, THIN, "0"), (*run, PLAIN, "0")),
        *((*walk, PLAIN, "1"), (*walk, THIN, "1"), (*run, PLAIN, "1"), (*run, THIN, "1")),
    ]


def test_rows_are_read_as_they_were_written_and_show_how_far_the_ways_are_apart(tmp_path: Path) -> None:
    out = tmp_path / "rows.tsv"
    for task, util_pct in zip(tasks(["walk:"], 2, 1), (89.0, 90.0, 92.0), strict=True):
        append(out, row(task, at(util_pct)), COLUMNS)
    rows = recorded(out)
    assert [one["way"] for one in rows] == [THIN, THIN, PLAIN]
    assert set(rows[0]) == set(COLUMNS)
    walk, mean = differences(rows, "min_avg_util")
    assert (walk[2], walk[4], walk[5]) == ("89.50 ± 0.71 (2)", "92.00 ± 1.00 (1)", "-2.50")
    assert mean[5] == "-2.50"
    assert list(differences(rows, "min_avg_sm")) == []


def test_a_failure_is_a_row_that_counts_for_nothing(tmp_path: Path) -> None:
    failure = Failure(kind=FailureKind.CRASH, rule="exit", detail="no\tgood")
    failed = row(Task("walk", "", PLAIN, 0), replace(RESULT, failure=failure, devices=()))
    append(tmp_path / "rows.tsv", failed, COLUMNS)
    assert recorded(tmp_path / "rows.tsv")[0]["outcome"] == "crash: no good"
    assert list(differences([row(Task("walk", "", THIN, 0), at(90.0)), failed], "min_avg_util")) == []
