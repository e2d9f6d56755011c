"""The faults of what a trainer writes: texts, numbers and files that no reader may believe; attacks on the guard."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.tests_faulty.rank import SAMPLES, Rank, say

HUGE = 2**63
"""More than the whole numbers of any database."""
OLD_LINES = 45
"""The iterations of an earlier run that a trainer reports at once when it starts."""
SLOW_ITERATIONS, SLOWER = 3, 20
"""The first iterations take so many times as long, as they do while code is compiled."""


def leave_grandchild(_: Rank) -> None:
    """Start a process in a session of its own, which lives on."""
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"], start_new_session=True)


def kill_guard(rank: Rank) -> None:
    """Kill the guard, and leave a process in a session of its own."""
    leave_grandchild(rank)
    os.kill(os.getppid(), signal.SIGKILL)


def stop_guard(_: Rank) -> None:
    """Stop the guard, so that it can end nothing."""
    os.kill(os.getppid(), signal.SIGSTOP)


def stop_itself(_: Rank) -> None:
    """Stop this rank, as a debugger does."""
    os.kill(os.getpid(), signal.SIGSTOP)


def fail_with_odd_text(rank: Rank) -> None:
    """Report a failure whose text no database can store, and exit."""
    record = {"type": "failed", "rank": rank.number, "detail": "die Gr\udcf6\udcdfe\0 passt nicht\ud800"}
    _append(json.dumps(record))
    raise SystemExit(1)


def fail_with_odd_size(rank: Rank) -> None:
    """Print sizes and ranks that are no numbers, and exit."""
    say(f"[rank²]: GPU {'9' * 5_000} has a total capacity of which 1.2.3 GiB is free")
    raise RuntimeError(f"CUDA out of memory. Tried to allocate ..1.2.3 GiB. GPU {rank.number}² is full")


def report_old_iterations(rank: Rank) -> None:
    """Report the iterations of an earlier run at once, and go on after them."""
    for iteration in range(OLD_LINES):
        rank.report_truly(iteration)
    rank.report = lambda iteration: rank.report_truly(OLD_LINES + iteration)


def begin_slowly(rank: Rank) -> None:
    """Take long for the first iterations."""
    rank.report = _reporting(
        rank, lambda iteration: time.sleep(SLOWER * rank.iteration_s * (iteration < SLOW_ITERATIONS))
    )


def report_own_counts(rank: Rank) -> None:
    """Report the samples of each iteration in place of their total; they grow slowly."""
    rank.report = lambda iteration: rank.report_raw(iteration=iteration, samples=100 * SAMPLES + iteration)


def report_too_busy(rank: Rank) -> None:
    """Report three times the seconds that have passed as busy."""
    begun_s = time.monotonic()
    rank.report = lambda iteration: rank.report_raw(
        iteration=iteration, samples=(iteration + 1) * SAMPLES, busy_s=3 * (time.monotonic() - begun_s)
    )


def report_huge_counts(rank: Rank) -> None:
    """Report more samples and retries than a database stores."""
    rank.report = lambda iteration: rank.report_raw(
        iteration=iteration, samples=HUGE + iteration, alloc_retries=10**400, busy_s=10**400
    )


def report_huge_iterations(rank: Rank) -> None:
    """Report iterations that no database stores."""
    rank.report = lambda iteration: rank.report_raw(iteration=HUGE + iteration)


def report_timesteps(rank: Rank) -> None:
    """Report the timestep, in millions, as the iteration."""
    rank.report = lambda iteration: rank.report_raw(iteration=1_000_000 * iteration, samples=(iteration + 1) * SAMPLES)


def report_odd_ranks(rank: Rank) -> None:
    """Report each iteration also for ranks that do not exist."""

    def odd(iteration: int) -> None:
        for name in ("first", "²", -3, 10**30, [0], {"rank": 0}, True):
            _append(json.dumps({"type": "iteration", "iteration": iteration, "rank": name}))
            say(f"Process SpawnProcess-{name}: [rank{name}]: step {iteration}")

    rank.report = _reporting(rank, odd)


def put_folder_there(rank: Rank) -> None:
    """Replace the progress file by a folder."""
    while not _progress().is_dir():  # the other rank may make the file anew meanwhile
        _progress().unlink(missing_ok=True)
        with suppress(FileExistsError):
            _progress().mkdir()
    rank.report = _print


def put_pipe_there(rank: Rank) -> None:
    """Make a named pipe in place of the progress file, and write nothing into it."""
    if rank.number == 0:
        os.mkfifo(_progress())
    rank.report = _print


def put_file_in_place_of_out_dir(rank: Rank) -> None:
    """Replace the out dir by a file."""
    while rank.out_dir.is_dir():  # the other rank may write a file meanwhile
        shutil.rmtree(rank.out_dir, ignore_errors=True)
    rank.out_dir.write_text("a file", encoding="ascii")


def _reporting(rank: Rank, first: Callable[[int], None]) -> Callable[[int], None]:
    """Return a report that does something first."""

    def report(iteration: int) -> None:
        first(iteration)
        rank.report_truly(iteration)

    return report


def _print(iteration: int) -> None:
    say(f"|  Iteration | {iteration} |")


def _append(record: str) -> None:
    with _progress().open("a", encoding="utf-8") as file:
        file.write(f"{record}\n")


def _progress() -> Path:
    return Path(os.environ["TUNER_PROGRESS"])
