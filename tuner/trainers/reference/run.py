"""One training run: a process per device, each with its own environments and clips, teaching one agent together."""

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo  # DistributedDataParallel would import it in every rank; this way it comes before the fork
from torch import distributed
from torch.multiprocessing.spawn import start_processes

from tuner.progress import report
from tuner.trainers.reference.agent import AgentSettings, Method
from tuner.trainers.reference.busy import busy_meter
from tuner.trainers.reference.env import TrackingEnv, frames_needed
from tuner.trainers.reference.methods import Networks
from tuner.trainers.reference.motions import ClipStream, MotionClips
from tuner.trainers.reference.rollout import STEPS_PER_ITERATION, collect


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """What one run needs to know."""

    method: Method
    agent: AgentSettings
    devices: tuple[str, ...]
    """One rank each, `cuda:0` or `cpu`."""
    master_port: int
    num_envs: int
    """Per device."""
    num_workers: int
    """Processes that prepare clips, per device; 0: the rank prepares them itself."""
    prefetch_factor: int | None
    """Batches that each of them prepares ahead; None where there are none."""
    iterations: int
    out_dir: Path
    seed: int


def run(settings: RunSettings) -> None:
    """Train to the end, leaving `model.pt` and `log.txt`; the first rank that fails ends the others and is raised.

    Ranks on a CPU are forked, which spares each the import of torch; those on GPUs cannot share a parent that may have
    touched CUDA, and are spawned.
    """
    settings.out_dir.mkdir(parents=True, exist_ok=True)
    start_processes(
        _train,
        args=(settings,),
        nprocs=len(settings.devices),
        start_method="fork" if settings.devices[0] == "cpu" else "spawn",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The end of one iteration on one rank."""

    iteration: int
    samples: int
    """So far."""
    busy_s: float
    """So far."""
    took_s: float
    tracking_reward: float
    policy_loss: float


def _train(rank: int, settings: RunSettings) -> None:
    device = _prepare(rank, settings)
    with closing(_clips(rank, device, settings)) as clips, _process_group(rank, device, settings):
        networks = Networks(settings.method, settings.agent).to(device)
        for mark in _iterations(networks, clips, device, settings):
            retries = torch.cuda.memory_stats(device)["num_alloc_retries"] if device.type == "cuda" else None
            report(
                iteration=mark.iteration,
                samples=mark.samples,
                rank=rank,
                busy_s=mark.busy_s,
                alloc_retries=retries,
            )
            if rank == 0:
                _log(mark, settings)
        if rank == 0:
            torch.save(networks.state_dict(), settings.out_dir / "model.pt")


def _iterations(networks: Networks, clips: ClipStream, device: torch.device, settings: RunSettings) -> Iterator[Mark]:
    env, meter = TrackingEnv(device), busy_meter(device)
    learners = networks.learners(
        update_epochs=settings.agent.update_epochs, minibatch=settings.agent.batch_size * settings.num_envs
    )
    for iteration in range(settings.iterations):
        start_s = time.monotonic()
        fresh = clips.take()
        with meter.working():
            samples = collect(env, networks.policy, networks.discriminator, fresh)
            losses = [learner.update(samples) for learner in learners]
        busy_s = meter.settle()
        yield Mark(
            iteration=iteration,
            samples=(iteration + 1) * settings.num_envs * STEPS_PER_ITERATION,
            busy_s=busy_s,
            took_s=time.monotonic() - start_s,
            tracking_reward=samples["tracking"].mean().item(),
            policy_loss=losses[0].item(),
        )


def _prepare(rank: int, settings: RunSettings) -> torch.device:
    device = torch.device(settings.devices[rank])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)  # several threads would wait for each other longer than layers of this size take
    torch.manual_seed(settings.seed + rank)
    # A discriminator's last layer has gradients of shape [1, n], whose memory order is the same however it is written.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    return device


def _clips(rank: int, device: torch.device, settings: RunSettings) -> ClipStream:
    return ClipStream(
        MotionClips(frames=frames_needed(STEPS_PER_ITERATION), seed=settings.seed),
        num_envs=settings.num_envs,
        rank=rank,
        ranks=len(settings.devices),
        device=device,
        num_workers=settings.num_workers,
        prefetch_factor=settings.prefetch_factor,
    )


@contextmanager
def _process_group(rank: int, device: torch.device, settings: RunSettings) -> Iterator[None]:
    on_gpu = device.type == "cuda"
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"tcp://127.0.0.1:{settings.master_port}",
        rank=rank,
        world_size=len(settings.devices),
        device_id=device if on_gpu else None,
    )
    yield
    distributed.destroy_process_group()


def _log(mark: Mark, settings: RunSettings) -> None:
    line = (
        f"iteration {mark.iteration}  samples {mark.samples * len(settings.devices)}  "
        f"tracking reward {mark.tracking_reward:.3f}  policy loss {mark.policy_loss:.3f}  {mark.took_s:.2f} s\n"
    )
    with (settings.out_dir / "log.txt").open("a" if mark.iteration else "w", encoding="utf-8") as log:
        log.write(line)
    sys.stdout.write(line)
    sys.stdout.flush()
