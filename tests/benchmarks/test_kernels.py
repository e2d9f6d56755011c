"""The benchmark of precision and kernels: its bounds, and its page of results."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests_later import Later

from benchmarks.probes.kept_rows import append, recorded
from benchmarks.probes.kernels_page import page
from benchmarks.probes.kernels_rows import COLUMNS, best_config, row, rows
from tuner.probe.kinds import FailureKind
from tuner.probe.result import Failure, ProbeResult
from tuner.study.space import Value
from tuner.trainers.reference.launch_settings import AgentSettings, run_config

if TYPE_CHECKING:
    from benchmarks.probes import bounds
else:
    bounds = Later("benchmarks.probes.bounds")

AGENT = AgentSettings(hidden_layers=2, hidden_units=1024, update_epochs=5, batch_size=4)
RESULT = ProbeResult(
    config={"num_envs": 1024}, plan_digest="", started_at="", total_s=30.0, samples_per_s=1000.0, samples_per_s_se=10.0
)


def worked(agent: AgentSettings = AGENT, **config: Value) -> "bounds.Work":
    """Return the work of an iteration of 1024 environments."""
    return bounds.work(agent, 1024, bounds.Launches(rollout=3000, update=100), config=config)


def test_a_graph_is_one_launch_and_more_workers_share_the_clips() -> None:
    plain = worked()
    graphed = worked(cuda_graphs=True, num_workers=4)
    assert (plain.launches, graphed.launches) == (3000 + 40 * 100, 1 + 40 * 100)
    assert (plain.samples, plain.clips, graphed.clips) == (1024 * 32, 1024, 256)


def test_a_smaller_format_moves_fewer_bytes_and_a_larger_minibatch_makes_fewer_updates() -> None:
    plain, small = (worked(precision=name) for name in ("fp32", "bf16"))
    assert 0.5 * plain.bytes < small.bytes < plain.bytes
    whole = worked(replace(AGENT, minibatch=1 << 20))
    assert whole.launches == 3000 + 5 * 100


def test_each_bound_is_what_one_limit_alone_allows() -> None:
    made = worked()
    card = bounds.Card(bytes_per_s=made.bytes, flops={"fp32": made.flops / 2, "tf32": made.flops})
    asked = {"launch_s": 1.0 / made.launches, "clip_s": 1.0 / made.clips}
    whole = bounds.bounds(made, card, config={}, **asked)
    assert whole == pytest.approx({"launches": 32768, "clips": 32768, "memory": 32768, "arithmetic": 16384})
    assert bounds.bounds(made, card, config={"tf32": True}, **asked)["arithmetic"] == pytest.approx(32768)
    assert set(bounds.bounds(made, None, config={}, **asked)) == {"launches", "clips"}
    assert bounds.CARDS["H200"].bytes_per_s == 4.8e12


def test_a_rollout_launches_many_more_operations_than_a_minibatch() -> None:
    counted = bounds.count_launches(run_config({}).agent(hidden_units=8))
    assert 32 * 50 < counted.rollout < 32 * 200
    assert 50 < counted.update < 200


def test_the_page_compares_each_row_with_the_default(tmp_path: Path) -> None:
    out = tmp_path / "rows.tsv"
    fast = replace(RESULT, config={"num_envs": 1024, "minibatch": 1 << 20}, samples_per_s=3500.0)
    failure = Failure(kind=FailureKind.CRASH, rule="exit", detail="no\tgood")
    broken = replace(RESULT, samples_per_s=None, samples_per_s_se=None, failure=failure)
    for name, result in (("default", RESULT), ("fast", fast), ("broken", broken)):
        append(out, row(name, result, {"clips": 9.0}, {"a launch": "5 µs", "auto": 64}, "NVIDIA H200"), COLUMNS)
    shown = page(recorded(out))
    assert "**fast** makes 3.5 times the samples/s of the trainer's own defaults: 3,500 against 1,000." in shown
    assert "| fast | 1,024 | 32,768 | 3,500 | 10 | 3.50 |" in shown
    assert "| broken | 1,024 | 4,096 | crash |" in shown
    assert "- a launch: 5 µs" in shown


def test_every_row_is_a_config_that_the_trainer_can_plan(tmp_path: Path) -> None:
    for gpu in (True, False):
        named = dict(rows(gpu=gpu, workers=3, minibatch=64))
        assert len(named) == len(list(rows(gpu=gpu, workers=3, minibatch=64)))
        for config in named.values():
            run_config(config).agent(hidden_units=8)


def test_the_best_of_a_search_is_read_from_its_table(tmp_path: Path) -> None:
    table = tmp_path / "best_by_case.tsv"
    table.write_text("case\tnum_envs\tprecision\ttf32\tupdate_epochs\ndeepmimic_pi_plus_ppo\t64\tbf16\tFalse\t\n")
    assert best_config(table) == {"num_envs": 64, "precision": "bf16", "tf32": False}
