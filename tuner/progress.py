"""Report progress from a trainer to the tuner: copy this one file into a trainer, it needs nothing else.

    from progress import report
    report(iteration=3, samples=98304, rank=0, busy_s=4.2)

Each call appends one JSON line to the file named in the environment variable TUNER_PROGRESS and does nothing where
that is not set. Fields: `iteration` (just completed, counted from 0), `samples` (so far, by this rank), `rank`,
`busy_s` (seconds so far that this rank's device did tensor work), `alloc_retries` (so far, of this rank's allocator:
`torch.cuda.memory_stats()["num_alloc_retries"]`), `t_s` (the system's monotonic clock).
"""

import json
import os
import time


def report(
    *,
    iteration: int,
    samples: int | None = None,
    rank: int | None = None,
    busy_s: float | None = None,
    alloc_retries: int | None = None,
) -> None:
    """Tell the tuner that `iteration` is complete on `rank` (None: on all ranks)."""
    path = os.environ.get("TUNER_PROGRESS")
    if not path:
        return
    record = {
        "iteration": iteration,
        "samples": samples,
        "rank": rank,
        "busy_s": busy_s,
        "alloc_retries": alloc_retries,
        "t_s": time.monotonic(),
    }
    line = json.dumps({key: value for key, value in record.items() if value is not None}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())  # one write below PIPE_BUF, so that ranks do not mix their lines
    finally:
        os.close(descriptor)
