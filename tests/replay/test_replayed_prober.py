"""Probes of a table: their results, their simulated time, and when they stop."""

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests_loop import CASE
from tests_replays import never
from tests_table import COMMAND_S, FITS, READY_S, readings

from tuner.probe.metrics import error, value
from tuner.probe.probe_plan import Answer, Next, ProbePlan, Slot, Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.replay import ReplayedProber, TableTrainer
from tuner.study.space import Config
from tuner.study.spec import ProbeSpec

if TYPE_CHECKING:
    from conftest import Made

UTIL = "min_avg_util"
LIMITS = ProbeSpec(iterations=8)
RUN_S = 0.5 + 2.0 * 6
"""The seconds of a whole probe: the first iteration, five iterations that count, and the end."""


def config(num_envs: int, *, workers: int = 0) -> Config:
    return {"num_envs": num_envs, "agent_variant": "default", "num_workers": workers}


class Replay:
    """A prober and the plans for it."""

    def __init__(self, made: "Made", objective: str = UTIL) -> None:
        self.prober = ReplayedProber(made.table, objective)
        self._trainer = TableTrainer(made.table)
        self._devices = made.table.header.devices

    def plan(self, chosen: Config, *, cold: bool = False, limits: ProbeSpec = LIMITS) -> ProbePlan:
        slot = Slot(devices=self._devices, out_dir=Path("/out"), port=1, limits=limits)
        warm = None if cold else self._trainer.warm_plan(CASE, chosen, slot)
        return warm or self._trainer.plan(CASE, chosen, slot)

    def probe(
        self,
        chosen: Config,
        stop: Stop = never,
        *,
        cold: bool = False,
        limits: ProbeSpec = LIMITS,
    ) -> ProbeResult:
        return self.prober(self.plan(chosen, cold=cold, limits=limits), stop)


@pytest.fixture
def replay(made: "Made") -> Replay:
    return Replay(made)


def at(iteration: int, answer: Answer) -> Stop:
    return lambda so_far: answer if so_far and so_far.iterations == iteration else Answer(Next.GO)


def test_a_probe_replayed_as_it_was_recorded_has_the_same_result(made: "Made") -> None:
    replay = Replay(made)
    for result in made.results:
        again = replay.probe(result.config)
        plan = replay.plan(result.config)
        assert again == replace(result, plan_digest=plan.digest, host={})
    assert replay.prober.spent_s == pytest.approx(sum(result.total_s for result in made.results))


def test_only_the_first_probe_of_a_session_pays_for_its_start(replay: Replay) -> None:
    first, second = replay.probe(config(16, workers=1)), replay.probe(config(16))
    assert (first.ready_s, second.ready_s) == (READY_S, 0.0)
    assert (first.total_s, second.total_s) == (READY_S + RUN_S, RUN_S)
    assert (first.start_up_s, second.start_up_s) == (READY_S + 2.0, 2.0)
    other = replay.probe(config(64))
    assert other.ready_s == READY_S
    assert replay.prober.spent_s == 2 * READY_S + 3 * RUN_S
    assert replay.prober.open_session == "command/walk/num_envs=64"


def test_a_cold_probe_pays_for_its_start_and_ends_the_session(replay: Replay) -> None:
    replay.probe(config(16))
    cold = replay.probe(config(16), cold=True)
    assert (cold.warm, cold.ready_s, cold.total_s) == (False, None, READY_S + RUN_S)
    assert replay.prober.open_session is None
    assert replay.probe(config(16)).ready_s == READY_S


def test_a_session_can_be_closed(replay: Replay) -> None:
    replay.probe(config(16))
    replay.prober.close()
    assert replay.probe(config(16)).ready_s == READY_S


def test_a_probe_without_a_session_takes_what_its_command_took(made: "Made") -> None:
    row = made.table.find(config(16))
    assert row is not None
    alone = replace(
        row, session_key=None, result=replace(row.result, warm=False, ready_s=None, total_s=COMMAND_S + RUN_S)
    )
    table = type(made.table)(made.table.header, [alone])
    replay = Replay(replace(made, table=table))
    assert replay.plan(config(16)).request is None
    assert replay.probe(config(16)).total_s == COMMAND_S + RUN_S


def test_a_plain_command_takes_the_time_that_a_thin_probe_left_out(made: "Made") -> None:
    row = made.table.find(config(16))
    assert row is not None
    thin = replace(row, result=replace(row.result, trained_s=4 * (row.result.window_s or 0.0)))
    replay = Replay(replace(made, table=type(made.table)(made.table.header, [thin])))
    cold = replay.probe(config(16), cold=True)
    assert (cold.window_s, cold.total_s) == (
        40.0,
        READY_S + RUN_S + 30.0 + 6.0,
    )  # five iterations, and one warm-up iteration
    assert cold.start_up_s == READY_S + 2.0 + 6.0
    warm = replay.probe(config(16))
    assert (warm.window_s, warm.trained_s, warm.total_s) == (10.0, 40.0, READY_S + RUN_S)


def test_stop_is_asked_after_each_iteration_as_it_was(replay: Replay) -> None:
    seen: list[ProbeResult] = []

    def look(so_far: ProbeResult | None) -> Answer:
        if so_far is not None:
            seen.append(so_far)
        return Answer(Next.GO)

    replay.probe(config(64), look)
    means = [total / count for count, total in enumerate(accumulate(readings(config(64))), start=1)]
    assert [value(so_far, UTIL) for so_far in seen] == pytest.approx(means)
    assert [so_far.iterations for so_far in seen] == [1, 2, 3, 4, 5]
    assert [so_far.total_s for so_far in seen] == [READY_S + 2.5 + 2.0 * count for count in range(1, 6)]
    assert all((error(so_far, UTIL) or 0.0) > 0.0 for so_far in seen)


@pytest.mark.parametrize(
    ("answer", "stopped"), [(Answer(Next.PRUNED, "cannot win"), "cannot win"), (Answer(Next.ENOUGH), None)]
)
def test_a_probe_ends_where_stop_says_so(replay: Replay, answer: Answer, stopped: str | None) -> None:
    result = replay.probe(config(64), at(3, answer))
    assert (result.stopped, result.failure, result.iterations) == (stopped, None, 3)
    assert replay.prober.spent_s == result.total_s == READY_S + 2.5 + 6.0
    assert replay.prober.open_session is not None


def test_a_probe_ends_at_the_study_s_own_limits(replay: Replay) -> None:
    assert replay.probe(config(64), limits=ProbeSpec(iterations=4)).iterations == 3
    assert replay.probe(config(64), limits=ProbeSpec(iterations=4, window_seconds=9.0)).iterations == 5
    assert replay.probe(config(64), limits=ProbeSpec(iterations=99)).iterations == 5


def test_the_user_can_interrupt_before_and_in_a_probe(replay: Replay) -> None:
    before = replay.probe(config(64), lambda so_far: Answer(Next.INTERRUPTED))
    assert (before.failure and before.failure.kind, before.launched) == (FailureKind.INTERRUPTED, False)
    inside = replay.probe(config(64), at(2, Answer(Next.INTERRUPTED)))
    assert (inside.failure and inside.failure.kind, inside.window_s) == (FailureKind.INTERRUPTED, None)
    assert replay.prober.open_session is None


def test_out_of_memory_takes_its_time_and_the_session(replay: Replay) -> None:
    replay.probe(config(FITS))
    before_s = replay.prober.spent_s
    result = replay.probe(config(4 * FITS))
    assert result.failure is not None
    assert (result.config, result.failure.kind) == (config(4 * FITS), FailureKind.GPU_OOM)
    assert replay.prober.spent_s == before_s + READY_S + 0.5
    assert replay.prober.open_session is None


def test_a_config_that_was_not_recorded_takes_nothing(replay: Replay) -> None:
    replay.probe(config(16))
    spent_s = replay.prober.spent_s
    result = replay.probe(config(48))
    assert result.failure is not None
    assert (result.failure.kind, result.failure.rule) == (FailureKind.INVALID_CONFIG, "not recorded")
    assert (replay.prober.spent_s, replay.prober.open_session) == (spent_s, "command/walk/num_envs=16")


def test_a_config_that_was_refused_is_refused_again(made: "Made", replay: Replay) -> None:
    row = made.table.find(config(4 * FITS))
    assert row is not None
    refused = replace(row, result=replace(row.result, config=config(16), total_s=0.0, devices=()))
    replay = Replay(replace(made, table=type(made.table)(made.table.header, [refused])))
    assert replay.probe(config(16)).failure == refused.result.failure
    assert replay.prober.spent_s == 0.0


def test_another_objective_has_no_series_but_its_value(made: "Made") -> None:
    seen: list[ProbeResult | None] = []

    def look(so_far: ProbeResult | None) -> Answer:
        seen.append(so_far)
        return Answer(Next.GO)

    result = Replay(made, "samples_per_s").probe(config(64), look)
    assert [so_far and so_far.iterations for so_far in seen] == [None, 5]
    assert result.samples_per_s == 500.0
