"""The processes that train together: how they start, agree on orders, and measure how busy they are.

Each is a rank, with a device of its own. In a session, they start once and then make one run after another.
"""

import gc
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

import torch
from torch import distributed
from torch.multiprocessing.spawn import start_processes

from tuner.progress import requests, stopped
from tuner.trainers.reference.launch_settings import RankTeam


class BusyMeter:
    """Counts the CPU seconds of the calling thread, which stand still while it waits in an all-reduce or for a core.

    With torch limited to one thread, that thread does all of the rank's tensor work, backward passes included;
    collectives wait in gloo's own threads. On a GPU, nothing is counted: its driver says how busy it is.
    """

    def __init__(self, device: torch.device, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._device = device
        self._cpu_s = cpu_s
        self._busy_s = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the work inside the context as busy."""
        start_s = self._cpu_s()
        yield
        self._busy_s += self._cpu_s() - start_s

    def settle(self) -> float | None:
        """Return the busy seconds so far; wait for a GPU, and return None."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return None
        return self._busy_s


class Orders:
    """Gives every rank the same requests and answers of the tuner, by collectives that all ranks enter together.

    The answers go through CPU memory in a separate process group: a rank may wait long for the next run, and must not
    keep its GPU busy meanwhile.
    """

    def __init__(self, *, leads: bool) -> None:
        """Create the orders on all ranks together; only the rank that `leads` reads what the tuner sends.

        A rank that waits for more than a day for the next run fails.
        """
        self._leads = leads
        group = distributed.new_group(backend="gloo", timeout=timedelta(days=1))
        self._group = cast("distributed.ProcessGroup", group)  # every rank belongs to the group

    def runs(self) -> Iterator[dict[str, Any]]:
        """Yield the same requests on every rank; the next comes once every rank has ended the run before."""
        own_requests = requests() if self._leads else itertools.repeat(None)  # other ranks wait for the leading rank
        while True:
            box = [next(own_requests, None)]
            distributed.broadcast_object_list(box, src=0, group=self._group)  # every rank gets that of the leading one
            if box[0] is None:
                return
            yield box[0]
            distributed.barrier(self._group)

    def stopped(self) -> bool:
        """Return whether the current run should end here. The answer is the same on all ranks: they leave together."""
        answer = torch.tensor(self._leads and stopped())
        distributed.broadcast(answer, src=0, group=self._group)
        return bool(answer)


AnyTeam = TypeVar("AnyTeam", bound=RankTeam)


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamRank(Generic[AnyTeam]):
    """One of the processes, with its device."""

    number: int
    device: torch.device
    team: AnyTeam

    @property
    def leads(self) -> bool:
        """Whether this rank writes files and reads requests for all ranks."""
        return self.number == 0


def start(task: Callable[..., None], team: RankTeam, *arguments: object) -> None:
    """Run `task(number, team, *arguments)` on every rank. If a rank fails, the others end and its error is raised.

    Ranks on a CPU are forked, so that they need not import torch. Ranks on GPUs are spawned, because CUDA does not
    survive a fork.
    """
    start_processes(
        task,
        args=(team, *arguments),
        nprocs=len(team.devices),
        start_method="fork" if team.devices[0] == "cpu" else "spawn",
    )


def prepare(number: int, team: AnyTeam) -> TeamRank[AnyTeam]:
    """Return the rank that this process is, the process `number` of its node, after setting its device and threads."""
    device = torch.device(team.devices[number])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)  # for layers of this size, threads would wait for each other longer than they compute
    # a discriminator's last layer has gradients of shape [1, n]: their strides differ, but not their order in memory
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    ranks_before = team.node_rank * len(team.devices)  # on earlier nodes
    return TeamRank(number=ranks_before + number, device=device, team=team)


@contextmanager
def process_group(rank: TeamRank[AnyTeam]) -> Iterator[None]:
    """Join the other ranks, after waiting for them. Collectives work inside this context."""
    on_gpu = rank.device.type == "cuda"
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"tcp://{rank.team.head}:{rank.team.master_port}",
        rank=rank.number,
        world_size=rank.team.ranks,
        device_id=rank.device if on_gpu else None,
    )
    yield
    distributed.destroy_process_group()


RunFunction = Callable[[TeamRank[AnyTeam], dict[str, Any], Callable[[], bool]], None]
"""Makes one run of a session on a rank, as the request says, and ends it early where the last argument returns True."""


def serve(team: AnyTeam, run: RunFunction[AnyTeam]) -> None:
    """Serve runs on every rank until the tuner requests no more.

    Raises the error of the first rank that fails, which also ends the other ranks.
    """
    start(_serve, team, run)


def _serve(number: int, team: AnyTeam, run: RunFunction[AnyTeam]) -> None:
    """Be the rank `number` of a started trainer: make each run that the tuner requests, with the function `run`."""
    rank = prepare(number, team)
    with process_group(rank):
        orders = Orders(leads=rank.leads)
        gc.freeze()  # what torch has loaded lives to the end; to search it after each run takes a quarter of a second
        for request in orders.runs():
            run(rank, request, orders.stopped)
            _free(rank.device)


def _free(device: torch.device) -> None:
    """Free the memory of the run that has ended, and reset the count of allocator retries."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_accumulated_memory_stats(device)
