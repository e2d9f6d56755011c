"""Runs a workload on its ranks, once or for a session that serves runs of any workload."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import distributed

from tuner.progress import report
from tuner.scaling.workloads.catalogue import WorkloadRun, run_settings
from tuner.scaling.workloads.programs import AllReduce, Build, Fusion, Meeting, Voxelize, Workload, pipeline
from tuner.trainers.reference.launch_settings import RankTeam
from tuner.trainers.reference.team_ranks import Orders, TeamRank, busy_meter, prepare, process_group, start

BUILDS: Mapping[str, Build] = {"fusion": Fusion, "voxelize": Voxelize, "pipeline": pipeline, "allreduce": AllReduce}

FIRST_STEPS, TIMED_STEPS = 3, 3
"""The steps before any is timed, in which libraries choose kernels and connect; and the steps that are timed."""
ITERATION_S = 0.2
"""An iteration has enough steps to take this long, so that its report costs nothing beside its work."""
MOST_STEPS = 20_000


def run(rank: TeamRank[RankTeam], settings: WorkloadRun, stopped: Callable[[], bool] = lambda: False) -> None:
    """Run a workload until its iterations are over or it is `stopped`, then free its memory."""
    for _ in _iterations(rank, settings):
        if stopped():
            break
    gc.collect()
    if rank.device.type == "cuda":
        torch.cuda.empty_cache()


def _iterations(rank: TeamRank[RankTeam], settings: WorkloadRun) -> Iterator[int]:
    """Run the workload and yield the number of each iteration that has been reported."""
    torch.set_float32_matmul_precision("high")
    workload = BUILDS[settings.workload](rank, settings.size, settings.exchange)
    step = _with_meeting(workload, rank, settings)
    steps = _agreed_steps(rank, step)
    meter = busy_meter(rank.device)
    for iteration in range(settings.iterations):
        with meter.working():
            for _ in range(steps):
                step()
        busy_s = meter.settle()
        report(iteration=iteration, samples=(iteration + 1) * steps * workload.samples, rank=rank.number, busy_s=busy_s)
        yield iteration


def _with_meeting(workload: Workload, rank: TeamRank[RankTeam], settings: WorkloadRun) -> Callable[[], None]:
    """Return the step to repeat. Ranks that exchange nothing still wait for each other after each step."""
    if settings.exchange or len(rank.team.devices) == 1:
        return workload.step
    meeting = Meeting(rank)

    def step() -> None:
        workload.step()
        meeting.wait()

    return step


def _agreed_steps(rank: TeamRank[RankTeam], step: Callable[[], None]) -> int:
    """Return the steps of an iteration, the same on every rank: as many as the slowest rank needs."""
    for _ in range(FIRST_STEPS):
        step()
    _finish(rank)
    start_s = time.monotonic()
    for _ in range(TIMED_STEPS):
        step()
    _finish(rank)
    step_s = torch.tensor((time.monotonic() - start_s) / TIMED_STEPS, device=rank.device)
    distributed.all_reduce(step_s, distributed.ReduceOp.MAX)
    return min(MOST_STEPS, math.ceil(ITERATION_S / step_s.item()))


def _finish(rank: TeamRank[RankTeam]) -> None:
    if rank.device.type == "cuda":
        torch.cuda.synchronize(rank.device)


def begin(team: RankTeam, settings: WorkloadRun | None) -> None:
    """Run what `settings` say; without settings, serve runs until the tuner requests no more.

    Raises the error of the first rank that fails, which also ends the other ranks.
    """
    start(_work, team, settings)


def _work(number: int, team: RankTeam, settings: WorkloadRun | None) -> None:
    rank = prepare(number, team)
    with process_group(rank):
        if settings is not None:
            run(rank, settings)
            return
        orders = Orders(leads=rank.leads)
        for request in orders.runs():
            settings = run_settings(request["workload"], request["config"], iterations=request["iterations"])
            run(rank, settings, orders.stopped)
