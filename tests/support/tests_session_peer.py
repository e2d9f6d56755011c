"""A trainer for tests that serves sessions, trains nothing and fails on request.

`python tests_session_peer.py [FAULT]`: a fault on the command line happens before the session is ready. A fault
that a request names as `config.fault` happens in the middle of that run.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tuner.progress import PROGRESS, failed, report, requests, stopped

PEER = Path(__file__)

MIDDLE = 3
"""The iteration at which a fault happens."""
DEAF, FAILS_AT_STOP = "deaf", "fails_at_stop"
"""The faults that happen when the tuner asks the run to stop."""
LATE, LATE_S = "late", 0.3
"""The fault of asking late whether to stop, and the delay in seconds. By then the tuner has evaluated the report."""
ENDLESS = "endless"
"""The fault of an iteration that runs until the tuner asks the run to stop."""
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.99 GiB "
    "of which 512.00 MiB is free."
)


def main() -> None:
    """Serve runs until the tuner has no more."""
    FAULTS[sys.argv[1] if len(sys.argv) > 1 else "none"]()
    for request in requests():
        fault = request["config"]["fault"]
        for iteration in range(request["iterations"]):
            time.sleep(request["iteration_s"])
            if iteration == MIDDLE:
                FAULTS[fault]()
                if fault == ENDLESS:
                    break
            report(iteration=iteration, samples=64 * (iteration + 1))
            if fault == LATE:
                time.sleep(LATE_S)
            if fault != DEAF and stopped():
                if fault == FAILS_AT_STOP:
                    _miss_a_builder()
                break


def _nothing() -> None: ...


def _be_silent() -> None:
    while True:
        signal.pause()


def _train_on() -> None:
    while not stopped(midway=True):
        time.sleep(0.01)


def _kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _lose_a_rank() -> None:
    if os.fork() == 0:
        _kill_itself()
    _be_silent()


def _run_out_of_memory() -> None:
    sys.stderr.write(f"{OUT_OF_MEMORY}\n")
    sys.stderr.flush()
    _be_silent()


def _garble() -> None:
    with Path(os.environ[PROGRESS]).open("a", encoding="utf-8") as progress:
        progress.write("\\o/\n")


def _garble_once() -> None:
    _garble()
    _be_silent()


def _train_unasked() -> None:
    for iteration in range(1000):
        report(iteration=iteration)
        time.sleep(0.02)


def _babble() -> None:
    while True:
        _garble()
        time.sleep(0.02)


def _miss_a_builder() -> None:
    failed("MimicKit has no agent_builder.build_agent: it has changed", kind="missing_dependency")
    _be_silent()


def _give_up() -> None:
    failed("the simulation has exploded", rank=1)
    sys.exit(0)


FAULTS: dict[str, Callable[[], None]] = {
    "none": _nothing,
    DEAF: _nothing,
    LATE: _nothing,
    FAILS_AT_STOP: _nothing,
    ENDLESS: _train_on,
    "silent": _be_silent,
    "killed": _kill_itself,
    "killed_rank": _lose_a_rank,
    "leaves": sys.exit,
    "out_of_memory": _run_out_of_memory,
    "glitch": _garble,
    "garbage_once": _garble_once,
    "garbage": _babble,
    "plain": _train_unasked,
    "missing_builder": _miss_a_builder,
    "gives_up": _give_up,
}

if __name__ == "__main__":
    main()
