"""Serves runs of all-reduces, which show how fast links are: `python -m tuner.trainers.reference.all_reduce --help`."""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from tuner.progress import report
from tuner.trainers.reference.launch_settings import RankTeam, device_name, read_whole
from tuner.trainers.reference.team_ranks import BusyMeter, TeamRank, serve


def run(rank: TeamRank[RankTeam], request: dict[str, Any], stopped: Callable[[], bool]) -> None:
    """Sum a buffer over all ranks (an all-reduce) again and again, and report each iteration to the tuner.

    The request gives the buffer's `bytes` and the number of iterations; the run ends earlier where it is `stopped`.
    Each all-reduce counts as one sample.
    """
    buffer = torch.zeros(max(1, request["config"]["bytes"] // 4), device=rank.device)
    steps = _agreed_steps(rank, buffer)
    meter = BusyMeter(rank.device)
    for iteration in range(request["iterations"]):
        with meter.working():
            for _ in range(steps):
                distributed.all_reduce(buffer)
        report(iteration=iteration, samples=(iteration + 1) * steps, rank=rank.number, busy_s=meter.settle())
        if stopped():
            break


def _agreed_steps(rank: TeamRank[RankTeam], buffer: torch.Tensor) -> int:
    """Return the all-reduces of an iteration on each rank: as many as the slowest rank makes in 0.2 s.

    So the report of an iteration costs nothing beside its work. In the first three all-reduces, libraries choose
    kernels and connect. The next three are timed.
    """
    start_s = 0.0
    for _ in ("connect", "time"):  # only the second start counts
        start_s = time.monotonic()
        for _ in range(3):
            distributed.all_reduce(buffer)
        if rank.device.type == "cuda":
            torch.cuda.synchronize(rank.device)
    step_s = torch.tensor((time.monotonic() - start_s) / 3, device=rank.device)
    distributed.all_reduce(step_s, distributed.ReduceOp.MAX)
    return min(20_000, math.ceil(0.2 / step_s.item()))  # should a step take almost no time


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tuner.trainers.reference.all_reduce")
    parser.add_argument("--devices", type=device_name, nargs="+", required=True, help="cuda:N or cpu, one rank each")
    parser.add_argument("--master-port", type=read_whole, required=True, help="where the ranks meet")
    given = parser.parse_args()
    serve(RankTeam(devices=tuple(given.devices), master_port=given.master_port), run)
