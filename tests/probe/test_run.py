"""A whole probe with a scripted trainer: when the probe ends, and with which result."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from tests_probe import PATTERN, READINGS, iterations, probe
from tests_replays import FakeClock

from tuner.probe.probe_plan import Answer, Next, Stop
from tuner.probe.result import Blame, Failure, FailureKind, ProbeResult


def kind(result: ProbeResult) -> FailureKind | None:
    return result.failure.kind if result.failure else None


def test_a_probe_ends_with_its_last_iteration_and_the_trainer_with_it() -> None:
    result, trainer = probe(iterations(50))
    assert result.ok
    assert result.start_up_s == 30.0
    assert (result.iterations, result.window_s) == (7, pytest.approx(21.0))
    assert [device.util_mean_pct for device in result.devices] == [50.0, 70.0]
    assert trainer.ended_at_s == pytest.approx(30.0 + 7 * 3.0)


def test_the_result_names_the_cards_whatever_the_trainer_calls_them() -> None:
    result, _ = probe(iterations(50))
    assert result.host["devices"] == "GPU-00000000, GPU-00000001"


def test_the_trainer_hears_of_its_last_iteration_when_that_begins() -> None:
    _, trainer = probe(iterations(50))
    assert trainer.last_announced_at_s == pytest.approx(30.0 + 6 * 3.0)
    assert trainer.last_announced == 7


def test_iterations_too_short_to_be_sure_of_are_not_called_the_last() -> None:
    result, trainer = probe(iterations(50, step_s=0.5), window_seconds=5)
    assert result.window_s == pytest.approx(5.0, abs=0.1)
    assert trainer.last_announced_at_s is None


def test_an_iteration_that_may_be_short_is_not_called_the_last() -> None:
    ends_s = [10.0, 11.0, 11.2, 12.2, 13.2, 14.2, 14.8, 14.9, 16.0]
    lines = [(at_s, f"it {number}") for number, at_s in enumerate(ends_s)]
    assert any(later - earlier < 0.5 for earlier, later in pairwise(ends_s))
    result, trainer = probe(lines, window_seconds=5, iterations=4)
    assert trainer.last_announced_at_s is None
    assert result.window_s == pytest.approx(6.0, abs=0.1)


def nearly_at(iteration: int) -> Stop:
    return lambda so_far: Answer(Next.LAST_ITERATION) if so_far and so_far.iterations == iteration else Answer(Next.GO)


def test_a_probe_that_is_nearly_known_ends_with_the_iteration_that_runs() -> None:
    result, trainer = probe(iterations(50), stop=nearly_at(3))
    assert result.ok
    assert (result.iterations, result.stopped) == (4, None)
    assert trainer.last_announced_at_s == pytest.approx(30.0 + 3 * 3.0)
    assert trainer.ended_at_s == pytest.approx(30.0 + 4 * 3.0)


def test_what_is_nearly_known_may_still_lose() -> None:
    answers = {3: Answer(Next.LAST_ITERATION), 4: Answer(Next.PRUNED, "cannot win")}
    result, _ = probe(
        iterations(50),
        stop=lambda so_far: answers.get(so_far.iterations, Answer(Next.GO)) if so_far else Answer(Next.GO),
    )
    assert (result.iterations, result.stopped) == (4, "cannot win")


def test_a_trainer_that_ends_by_itself_loses_its_last_iteration() -> None:
    result, _ = probe(iterations(5), exit_at_s=50.0)
    assert result.ok
    assert result.iterations == 3


def test_silence_after_start_is_a_hang() -> None:
    result, _ = probe([(1.0, "hello")], start_up_silence_seconds=60)
    assert kind(result) is FailureKind.HANG
    assert result.total_s == pytest.approx(61.0, abs=0.2)


def test_a_long_start_up_that_keeps_printing_is_no_hang() -> None:
    result, _ = probe(
        [(t_s, f"building {t_s}") for t_s in range(0, 300, 10)] + iterations(8, 300.0), silence_seconds=60
    )
    assert result.ok


def test_a_stall_between_iterations_is_a_hang_even_while_lines_come() -> None:
    chatter = [(60.0 + second, "still here") for second in range(300)]
    result, _ = probe(iterations(5) + chatter)
    assert kind(result) is FailureKind.HANG
    assert result.total_s == pytest.approx(42.0 + 60.0, abs=0.2)


def test_what_keeps_the_tuner_waiting_is_no_hang_of_the_trainer() -> None:
    clock = FakeClock()

    def stop(so_far: ProbeResult | None) -> Answer:
        if so_far and so_far.iterations == 3:
            clock.advance(50.0)  # like a database that another program locks
        return Answer(Next.GO)

    result, _ = probe(iterations(20, step_s=0.5), stop=stop, clock=clock)
    assert result.ok
    assert result.iterations == 19


def test_too_slow_is_distinguished_from_a_hang() -> None:
    result, _ = probe([(float(t_s), "busy") for t_s in range(500)], max_start_seconds=400)
    assert kind(result) is FailureKind.TOO_SLOW
    assert result.total_s == pytest.approx(400.0, abs=1.1)


def test_the_time_limit_keeps_what_was_measured() -> None:
    result, _ = probe(iterations(8, 30.0, 50.0), max_seconds=170)
    assert result.ok
    assert result.iterations == 3


def test_a_slow_start_takes_nothing_from_the_time_to_measure() -> None:
    start = [(float(t_s), "compiling") for t_s in range(0, 800, 50)]
    result, _ = probe([*start, *iterations(8, 800.0, 50.0)], max_seconds=170)
    assert (result.ok, result.iterations, result.total_s) == (True, 3, pytest.approx(950.0, abs=1.1))


def test_no_iteration_is_begun_that_the_time_limit_would_cut_off() -> None:
    _, trainer = probe(iterations(8, 30.0, 50.0), max_seconds=170)
    assert trainer.last_announced_at_s == pytest.approx(30.0 + 2 * 50.0)
    assert trainer.ended_at_s == pytest.approx(30.0 + 3 * 50.0)


def test_a_dead_rank_before_the_time_limit_is_no_success() -> None:
    death = [(129.0, "[rank1]: Traceback (most recent call last):"), (129.0, "ValueError: it exploded")]
    talk = [(130.0, "it 2"), *((131.0 + second, "busy") for second in range(60))]
    result, _ = probe([*iterations(2, 30.0, 50.0), *death, *talk], max_seconds=170)
    assert kind(result) is FailureKind.CRASH


def test_a_dead_rank_ends_the_probe_in_seconds() -> None:
    death = [
        (
            40.0,
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
            "capacity of 23.99 GiB of which 512.00 MiB is free.",
        )
    ]
    result, _ = probe([*iterations(3), *death])
    assert result.failure is not None
    assert (kind(result), result.failure.rank, result.failure.overshoot_mib) == (FailureKind.GPU_OOM, 1, 1536.0)
    assert result.total_s == pytest.approx(45.0, abs=0.2)
    assert all(device.util_mean_pct is None for device in result.devices)


def test_memory_comes_before_the_collectives_that_it_breaks() -> None:
    lines = [(5.0, "torch.distributed.DistBackendError: NCCL error"), (6.0, "RuntimeError: CUDA error: out of memory")]
    assert kind(probe(lines, exit_at_s=7.0, exit_code=1)[0]) is FailureKind.GPU_OOM


def test_a_traceback_that_is_followed_by_progress_is_forgiven() -> None:
    caught = [(31.0, "Traceback (most recent call last):"), (31.0, "ValueError: caught and printed")]
    assert probe(sorted([*iterations(8), *caught]))[0].ok


def test_a_trainer_that_exits_is_named_by_what_it_said() -> None:
    for line, expected in [
        (
            "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes",
            FailureKind.HOST_OOM,
        ),
        ("OSError: [Errno 98] Address already in use", FailureKind.PORT_IN_USE),
        ("RuntimeError: No CUDA GPUs: Unable to determine the device handle: GPU is lost", FailureKind.GPU_LOST),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", FailureKind.GPU_BUSY),
        ("ModuleNotFoundError: No module named 'trimesh'", FailureKind.MISSING_DEPENDENCY),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x.pkl'", FailureKind.MISSING_ASSET),
        ("ValueError: Array shapes must be non-negative", FailureKind.INVALID_CONFIG),
        ("train.py: error: unrecognized arguments: --envs", FailureKind.INVALID_COMMAND),
        ("[rank0]: torch.distributed.DistBackendError: NCCL error in: x", FailureKind.NCCL),
        ("KeyError: 'actor_epochs'", FailureKind.CRASH),
    ]:
        result, _ = probe([(1.0, line)], exit_at_s=2.0, exit_code=1)
        assert kind(result) is expected
        assert result.failure is not None
        assert result.failure.detail.endswith(line)


def test_ranks_that_share_a_card_are_named_although_nccl_first_tells_of_invalid_usage() -> None:
    usage = "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3780, invalid usage"
    shared = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5000"
    assert kind(probe([(1.0, usage)], exit_at_s=2.0, exit_code=1)[0]) is FailureKind.INVALID_CONFIG
    result, _ = probe([(1.0, usage), (1.0, shared)], exit_at_s=2.0, exit_code=1)
    assert result.failure is not None
    assert (kind(result), result.failure.detail) == (FailureKind.INVALID_COMMAND, shared)


def test_exit_0_without_iterations_is_a_crash() -> None:
    assert kind(probe([(1.0, "done")], exit_at_s=2.0)[0]) is FailureKind.CRASH


def test_the_pruner_s_reason_is_kept_and_is_no_failure() -> None:
    def stop(so_far: ProbeResult | None) -> Answer:
        return Answer(Next.PRUNED, "cannot win") if so_far and so_far.iterations >= 2 else Answer(Next.GO)

    result, trainer = probe(iterations(8), stop=stop)
    assert (result.stopped, result.failure, result.ok) == ("cannot win", None, False)
    assert trainer.ended_at_s == pytest.approx(36.0)


def test_the_user_s_stop_is_an_interruption() -> None:
    result, trainer = probe(iterations(8), stop=lambda _: Answer(Next.INTERRUPTED))
    assert kind(result) is FailureKind.INTERRUPTED
    assert trainer.ended_at_s is not None


def test_a_lost_device_ends_the_probe_and_is_its_failure() -> None:
    result, trainer = probe(iterations(8), lost_at_s=40.0)
    assert result.failure == Failure(kind=FailureKind.GPU_LOST, rule="unreadable", detail="cuda:1 is lost")
    assert (result.iterations, result.window_s) == (4, None)
    assert trainer.ended_at_s == pytest.approx(40.0, abs=0.1)


def test_a_lost_device_explains_a_trainer_that_dies_of_it() -> None:
    died = [*iterations(3), (40.0, "RuntimeError: CUDA error: unspecified launch failure")]
    assert kind(probe(died, exit_at_s=40.0, exit_code=1)[0]) is FailureKind.CRASH
    assert kind(probe(died, exit_at_s=40.0, exit_code=1, lost_at_s=40.0)[0]) is FailureKind.GPU_LOST


def test_short_iterations_go_on_until_the_window_is_long_enough() -> None:
    result, _ = probe(iterations(500, 10.0, 0.25), window_seconds=6)
    assert result.ok
    assert result.window_s == pytest.approx(6.0)


def test_very_short_iterations_go_on_until_the_window_is_long_enough() -> None:
    result, _ = probe(iterations(500, 10.0, 0.02), window_seconds=2)
    assert result.ok
    assert result.window_s == pytest.approx(2.0, abs=0.1)


def test_iterations_are_counted_by_marks_whatever_numbers_the_trainer_prints() -> None:
    hundreds = [(10.0 + 2.0 * number, f"it {100 * number}") for number in range(50)]
    result, _ = probe(hundreds)
    assert (result.iterations, result.window_s) == (7, pytest.approx(14.0))


def test_a_value_known_well_enough_ends_the_probe_as_a_result() -> None:
    result, trainer = probe(
        iterations(8), stop=lambda so_far: Answer(Next.ENOUGH) if so_far and so_far.iterations == 4 else Answer(Next.GO)
    )
    assert result.ok
    assert result.iterations == 4
    assert trainer.ended_at_s == pytest.approx(30.0 + 4 * 3.0)


def reported(*, busy: Callable[[int, int], bool]) -> ProbeResult:
    reports = [
        (
            3.0 * iteration + 3,
            {"iteration": iteration, "rank": rank} | ({"busy_s": 1.5 * iteration} if busy(iteration, rank) else {}),
        )
        for iteration in range(8)
        for rank in range(2)
    ]
    return probe([(t_s, json.dumps(report)) for t_s, report in reports], on_cpu=True)[0]


def test_on_the_cpu_a_rank_s_own_busy_share_stands_for_utilisation() -> None:
    result = reported(busy=lambda iteration, rank: True)
    assert [(device.source, device.util_mean_pct) for device in result.devices] == [("busy_share", 50.0)] * 2
    assert result.busy_spread_pct == 0.0


def test_without_busy_times_the_process_s_share_is_read() -> None:
    result = reported(busy=lambda iteration, rank: False)
    assert [(device.source, device.util_mean_pct) for device in result.devices] == [("nvml", 50.0), ("nvml", 70.0)]


def test_two_kinds_of_utilisation_are_never_mixed() -> None:
    result = reported(busy=lambda iteration, rank: iteration < 7)
    assert [(device.source, device.util_mean_pct) for device in result.devices] == [("busy_share", None)] * 2


def test_a_trainer_that_counts_no_samples_makes_so_many_in_each_iteration() -> None:
    result, _ = probe(iterations(50), patterns=replace(PATTERN, samples_per_iteration=1536.0))
    assert (result.samples, result.samples_per_s) == (7 * 1536, pytest.approx(512.0))
    assert result.samples_per_s_se is not None
    assert probe(iterations(50))[0].samples_per_s is None


def test_a_device_that_did_nothing_while_iterations_advanced_is_a_failure_with_its_name() -> None:
    idle = tuple(replace(one, util_pct=0.0) if one.device == 1 else one for one in READINGS)
    result, _ = probe(iterations(50), readings=idle)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.kind.blame) == (FailureKind.IDLE_DEVICE, Blame.SETUP)
    assert result.failure.detail == "cuda:1 did nothing while iterations advanced"


def test_a_gpu_that_works_a_little_is_not_idle() -> None:
    starved = tuple(replace(one, util_pct=0.3) for one in READINGS)
    assert probe(iterations(50), readings=starved)[0].ok


def test_in_a_very_short_window_no_device_counts_as_idle() -> None:
    idle = tuple(replace(one, util_pct=0.0) if one.device == 1 else one for one in READINGS)
    result, _ = probe(iterations(50, step_s=0.1), readings=idle, window_seconds=0.5)
    assert result.ok
    assert result.window_s is not None
    assert result.window_s < 1.0


def steps(count: int, every_s: float = 1.0) -> list[tuple[float, str]]:
    return [(10.0 + every_s * number, f"step {number} loss 0.{number}") for number in range(count)]


def test_a_pattern_that_matches_nothing_is_the_set_up_s_fault_and_found_early() -> None:
    result, trainer = probe(steps(600), start_up_silence_seconds=60)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.kind.blame) == (FailureKind.NO_PROGRESS, Blame.SETUP)
    assert result.failure.detail.endswith("step 48 loss 0.48 | step 49 loss 0.49 | step 50 loss 0.50")
    assert trainer.ended_at_s is not None
    assert trainer.ended_at_s < 80.0


@pytest.mark.parametrize("bar", ["step {} loss 0.1", "Tokenizing: {}%|##   | {}0/3000 [00:01<01:00, 10.3it/s]"])
def test_what_a_start_prints_is_given_the_time_of_a_start(bar: str) -> None:
    printed = [(5.0 + number, bar.format(number, number)) for number in range(200)]
    assert probe([*printed, *iterations(20, start_s=210.0)])[0].ok


def test_the_bars_of_tqdm_are_progress_that_nothing_matches() -> None:
    bars = [
        (number / 30, f"{number // 10:3d}%|{'█' * (number // 90)}| {number}/1000 [00:01<00:30, 30.1it/s]")
        for number in range(900)
    ]
    assert kind(probe(bars, start_up_silence_seconds=20)[0]) is FailureKind.NO_PROGRESS


def test_a_trainer_that_ends_without_a_match_has_no_progress() -> None:
    assert kind(probe(steps(10), exit_at_s=30.0)[0]) is FailureKind.NO_PROGRESS


def test_lines_of_a_start_are_no_progress() -> None:
    building = [(1.0 + number, f"Building {number}/1024 environments") for number in range(300)]
    assert probe([*building, *iterations(20, start_s=310.0)])[0].ok


def test_memory_that_an_ending_trainer_gives_back_says_nothing_about_its_growth() -> None:
    readings = tuple(
        replace(one, mem_used_mib=500.0 + one.t_s if one.t_s <= 42.0 else 4.0, mem_total_mib=1000.0) for one in READINGS
    )
    result, _ = probe(iterations(5), exit_at_s=60.0, readings=readings)
    for device in result.devices:
        assert len(device.mem_floors) == 12
        assert list(device.mem_floors) == sorted(device.mem_floors)
        assert device.mem_floors[0] > 500.0
