"""The processes that train together, one per device: how they start, prepare and meet."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch._dynamo  # DistributedDataParallel would import it in every rank; this way it comes before the fork
from torch import distributed
from torch.multiprocessing.spawn import start_processes

from tuner.trainers.reference.settings import TeamSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """One of these processes, with its device."""

    number: int
    device: torch.device
    team: TeamSettings

    @property
    def leads(self) -> bool:
        """Whether this one writes and listens for all."""
        return self.number == 0


def start(task: Callable[..., None], team: TeamSettings, *rest: object) -> None:
    """Run `task(number, team, *rest)` on every rank; the first one that fails ends the others and is raised.

    Ranks on a CPU are forked, which spares each the import of torch; those on GPUs cannot share a parent that may have
    touched CUDA, and are spawned.
    """
    start_processes(
        task,
        args=(team, *rest),
        nprocs=len(team.devices),
        start_method="fork" if team.devices[0] == "cpu" else "spawn",
    )


def prepare(number: int, team: TeamSettings) -> Rank:
    """Set up this process as a rank."""
    device = torch.device(team.devices[number])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)  # several threads would wait for each other longer than layers of this size take
    # A discriminator's last layer has gradients of shape [1, n], whose memory order is the same however it is written.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    return Rank(number=number, device=device, team=team)


@contextmanager
def process_group(rank: Rank) -> Iterator[None]:
    """Wait for the other ranks; collectives work inside."""
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
