"""The faults: the rank and the iteration at which each strikes, and what it does there."""

import importlib
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.tests_faulty import outputs
from tests.support.tests_faulty.rank import BUILD, SAMPLES, Rank, say

MIDDLE = 4
"""The iteration at which a fault strikes in mid-training."""
START_UP_S = 3.0
FLOOD_BYTES = "FLOOD_BYTES"
"""The environment variable that says how long a flood is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """Where and how a fault strikes."""

    does: Callable[[Rank], None]
    ranks: tuple[int, ...] = (1,)
    at: int = MIDDLE


class OutOfMemoryError(RuntimeError):
    """Stands for torch's own error of this name."""

    __module__ = "torch"


def _torch_out_of_memory(rank: Rank) -> None:
    raise OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate 2.00 GiB. GPU {rank.number} has a total capacity of 23.99 GiB of which "
        "512.00 MiB is free."
    )


def _warp_out_of_memory(rank: Rank) -> None:
    say("Warp CUDA error 2: out of memory (in function wp_alloc_device_async, warp/native/warp.cu:755)")
    size_in_bytes = 355_123_200
    raise RuntimeError(f"Failed to allocate {size_in_bytes} bytes on device 'cuda:{rank.number}'")


def _host_out_of_memory(_: Rank) -> None:
    raise MemoryError


def _wait_elsewhere(_: Rank) -> None:
    threading.Event().wait()


def _spin(_: Rank) -> None:
    while True:
        pass


def _chatter(_: Rank) -> None:
    while True:
        say("polling the device")
        time.sleep(0.01)


def _time_out_in_collective(rank: Rank) -> None:
    say(
        f"[rank{rank.number}]:[E1121 01:20:44 ProcessGroupNCCL.cpp:629] [Rank {rank.number}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    )
    os.abort()


def _run_on_alone(rank: Rank) -> None:
    for iteration in range(MIDDLE, 1_000_000):
        rank.report(iteration)
        time.sleep(rank.iteration_s)


def _be_slow(rank: Rank) -> None:
    rank.iteration_s *= 3


def _kill_itself(_: Rank) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _crash(_: Rank) -> None:
    raise KeyError("actor_epochs")


def _ignore_term(_: Rank) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _bind_taken_port(_: Rank) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        socket.create_server(taken.getsockname())


def _open_missing_file(_: Rank) -> None:
    Path("data/motions/walk.pkl").read_bytes()


def _import_missing_package(_: Rank) -> None:
    importlib.import_module("no_such_simulator")


def _leave_no_model(rank: Rank) -> None:
    rank.leaves_model = False


def _report_nan(rank: Rank) -> None:
    rank.report = lambda iteration: rank.report_raw(iteration=math.nan, samples=math.nan)


def _report_negative(rank: Rank) -> None:
    rank.report = lambda iteration: rank.report_raw(iteration=-iteration, samples=-SAMPLES)


def _report_backwards(rank: Rank) -> None:
    rank.report = lambda iteration: rank.report_raw(iteration=2 * MIDDLE - iteration, samples=SAMPLES)


def _report_broken_counts(rank: Rank) -> None:
    rank.report = lambda iteration: rank.report_raw(iteration=iteration, samples=math.nan, busy_s=-1.0)


def _step_clock(rank: Rank) -> None:
    hour_s = 3600.0
    rank.report = lambda iteration: rank.report_raw(
        iteration=iteration, samples=(iteration + 1) * SAMPLES, t_s=time.monotonic() + (-1) ** iteration * hour_s
    )


def _flood(_: Rank) -> None:
    chunk = b"x" * 65_536
    for _chunk in range(int(os.environ[FLOOD_BYTES]) // len(chunk)):
        sys.stdout.buffer.write(chunk)
    sys.stdout.flush()


def _print_bytes(rank: Rank) -> None:
    sys.stdout.buffer.write(b"\xff\xfe loading \xc3\x28\n\x80\x00")
    with Path(os.environ["TUNER_PROGRESS"]).open("ab") as progress:
        progress.write(b"\xff\xfe{\n" + b"[" * 100_000 + b"\n")


def _delete_logs(rank: Rank) -> None:
    for name in ("console.log", "progress.jsonl"):
        (rank.out_dir / name).unlink()


def _start_slowly(rank: Rank) -> None:
    for number in range(10):
        say(f"Building {number + 1}/10 envs")
        time.sleep(START_UP_S / 10)


def _hiccup(rank: Rank) -> None:
    time.sleep(9 * rank.iteration_s)


def _nothing(_: Rank) -> None: ...


STRIKES: dict[str, Strike] = {
    "none": Strike(does=_nothing),
    "oom_at_build": Strike(does=_warp_out_of_memory, at=BUILD),
    "oom_at_training": Strike(does=_torch_out_of_memory, ranks=(0,), at=1),
    "oom_after_ten_iterations": Strike(does=_torch_out_of_memory, at=10),
    "host_oom": Strike(does=_host_out_of_memory),
    "skipped_collective": Strike(does=_wait_elsewhere),
    "collective_timeout": Strike(does=_time_out_in_collective),
    "busy_loop": Strike(does=_spin),
    "busy_loop_that_prints": Strike(does=_chatter),
    "rank_runs_on_alone": Strike(does=_run_on_alone),
    "slow_rank": Strike(does=_be_slow, at=BUILD),
    "killed_rank": Strike(does=_kill_itself),
    "crashed_rank": Strike(does=_crash),
    "rank_ignores_term": Strike(does=_ignore_term, at=BUILD),
    "grandchild_in_own_session": Strike(does=outputs.leave_grandchild, at=BUILD),
    "port_in_use": Strike(does=_bind_taken_port, ranks=(0,), at=BUILD),
    "missing_file": Strike(does=_open_missing_file, ranks=(0,), at=BUILD),
    "missing_package": Strike(does=_import_missing_package, ranks=(0,), at=BUILD),
    "exit_without_files": Strike(does=_leave_no_model, ranks=(0, 1), at=BUILD),
    "nan_progress": Strike(does=_report_nan),
    "negative_progress": Strike(does=_report_negative),
    "progress_backwards": Strike(does=_report_backwards),
    "broken_counts": Strike(does=_report_broken_counts),
    "stepped_clock": Strike(does=_step_clock),
    "flood_without_newline": Strike(does=_flood),
    "not_utf8": Strike(does=_print_bytes),
    "deleted_logs": Strike(does=_delete_logs, ranks=(0,)),
    "full_disk": Strike(does=_nothing),
    "slow_start": Strike(does=_start_slowly, ranks=(0, 1), at=BUILD),
    "slow_iteration": Strike(does=_hiccup, ranks=(0, 1), at=MIDDLE),
    "killed_guard": Strike(does=outputs.kill_guard, ranks=(0,)),
    "stopped_guard": Strike(does=outputs.stop_guard, ranks=(0,)),
    "stopped_rank": Strike(does=outputs.stop_itself),
    "odd_text": Strike(does=outputs.fail_with_odd_text),
    "odd_sizes": Strike(does=outputs.fail_with_odd_size),
    "old_lines": Strike(does=outputs.report_old_iterations, ranks=(0, 1), at=BUILD),
    "slow_first_iterations": Strike(does=outputs.begin_slowly, ranks=(0, 1), at=BUILD),
    "own_counts": Strike(does=outputs.report_own_counts, ranks=(0, 1), at=BUILD),
    "busy_beyond_elapsed": Strike(does=outputs.report_too_busy, ranks=(0, 1), at=BUILD),
    "huge_counts": Strike(does=outputs.report_huge_counts, ranks=(0, 1), at=BUILD),
    "huge_iterations": Strike(does=outputs.report_huge_iterations),
    "timesteps_as_iterations": Strike(does=outputs.report_timesteps, ranks=(0, 1), at=BUILD),
    "odd_ranks": Strike(does=outputs.report_odd_ranks, ranks=(0, 1), at=BUILD),
    "progress_is_a_folder": Strike(does=outputs.put_folder_there, ranks=(0,)),
    "progress_is_a_pipe": Strike(does=outputs.put_pipe_there, ranks=(0, 1), at=BUILD),
    "out_dir_is_a_file": Strike(does=outputs.put_file_in_place_of_out_dir),
}
