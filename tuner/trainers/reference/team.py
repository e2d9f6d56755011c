"""Starts and connects the processes that train together, one per device."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
import torch._dynamo  # DistributedDataParallel would import it in every rank; this way it comes before the fork
from torch import distributed
from torch.multiprocessing.spawn import start_processes

from tuner.trainers.reference.settings import Team

AnyTeam = TypeVar("AnyTeam", bound=Team)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank(Generic[AnyTeam]):
    """One of the processes, with its device."""

    number: int
    device: torch.device
    team: AnyTeam

    @property
    def leads(self) -> bool:
        """Whether this rank writes files and reads requests for all ranks."""
        return self.number == 0


def start(task: Callable[..., None], team: Team, *rest: object) -> None:
    """Run `task(number, team, *rest)` on every rank. If a rank fails, the others end and its error is raised.

    Ranks on a CPU are forked, so that they need not import torch. Ranks on GPUs are spawned, because CUDA does not
    survive a fork.
    """
    start_processes(
        task,
        args=(team, *rest),
        nprocs=len(team.devices),
        start_method="fork" if team.devices[0] == "cpu" else "spawn",
    )


def prepare(number: int, team: AnyTeam) -> Rank[AnyTeam]:
    """Prepare this process as a rank."""
    device = torch.device(team.devices[number])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)  # for layers of this size, threads would wait for each other longer than they compute
    # A discriminator's last layer has gradients of shape [1, n], whose memory order is the same however it is written.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    return Rank(number=number, device=device, team=team)


@contextmanager
def process_group(rank: Rank[AnyTeam]) -> Iterator[None]:
    """Wait for the other ranks. Collectives work inside this context."""
    on_gpu = rank.device.type == "cuda"
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"tcp://127.0.0.1:{rank.team.master_port}",
        rank=rank.number,
        world_size=len(rank.team.devices),
        device_id=rank.device if on_gpu else None,
    )
    yield
    distributed.destroy_process_group()
