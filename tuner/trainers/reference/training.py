"""Training on one rank: it has its own environments and clips, and trains one agent together with the other ranks."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from tuner.progress import report
from tuner.trainers.reference.agent import STEPS_PER_ITERATION
from tuner.trainers.reference.busy import busy_meter
from tuner.trainers.reference.env import frames_needed
from tuner.trainers.reference.memory import CardMemory, card_memory
from tuner.trainers.reference.methods import Networks
from tuner.trainers.reference.motions import ClipStream, MotionClips
from tuner.trainers.reference.numerics import numerics, prepare_process
from tuner.trainers.reference.players import player, rollout_device
from tuner.trainers.reference.settings import RunSettings, TeamSettings
from tuner.trainers.reference.team import Rank
from tuner.trainers.reference.transfer import Transfer, brought


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The end of one iteration on one rank."""

    iteration: int
    samples: int
    """The samples so far in this run. `busy_s` also counts from the beginning of the run."""
    busy_s: float
    took_s: float
    tracking_reward: float
    policy_loss: float
    memory: CardMemory | None = None
    """The memory of the rank's GPU; None on a CPU."""
    transfer: Transfer | None = None
    """The weights and samples that the iteration copied; None where the rollout runs on the rank's device."""

    def line(self, ranks: int) -> str:
        """Return the mark as a line of text, with the samples of all ranks."""
        known = "".join(f"  {one}" for one in (self.transfer, self.memory) if one)
        return (
            f"iteration {self.iteration}  samples {self.samples * ranks}  "
            f"tracking reward {self.tracking_reward:.3f}  policy loss {self.policy_loss:.3f}  {self.took_s:.2f} s"
            f"{known}\n"
        )


@contextmanager
def fresh_clips(rank: Rank[TeamSettings], settings: RunSettings) -> Iterator[ClipStream]:
    """Begin a run: set the seed, and yield clips, whose workers start at once and end with the run.

    The clips come to the device of the rollout.
    """
    torch.manual_seed(rank.team.seed + rank.number)
    stream = ClipStream(
        MotionClips(frames=frames_needed(STEPS_PER_ITERATION), seed=rank.team.seed),
        num_envs=rank.team.num_envs,
        rank=rank.number,
        ranks=len(rank.team.devices),
        device=rollout_device(settings.kernels, rank.device),
        num_workers=settings.num_workers,
        prefetch_factor=settings.prefetch_factor,
    )
    with closing(stream) as clips:
        yield clips


def iterations(
    rank: Rank[TeamSettings], networks: Networks, clips: ClipStream, settings: RunSettings
) -> Iterator[Mark]:
    """Train the networks one iteration after the other, and report each iteration to the tuner.

    An iteration includes the way of weights and samples between CPU and GPU if the rollout runs on the CPU.
    Raises ConfigRefusedError for a number format that the rank's device does not have.
    """
    asked, meter = settings.kernels, busy_meter(rank.device)
    prepare_process(asked, rank.device, len(rank.team.devices))
    playing = player(asked, networks, rank.device)
    learners = networks.learners(
        update_epochs=settings.agent.update_epochs,
        minibatch=settings.agent.minibatch_of(rank.team.num_envs),
        formats=numerics(asked.precision, rank.device),
        compiled=asked.compile,
    )
    for iteration in range(settings.iterations):
        start_s = time.monotonic()
        fresh = clips.take()
        with meter.working() if playing.device == rank.device else nullcontext():
            samples = playing.play(fresh)
        with meter.working():
            transfer = playing.transfer
            if transfer is not None:
                samples, copied = brought(samples, rank.device)
                transfer += copied
            losses = [learner.update(samples) for learner in learners]
        busy_s = meter.settle()
        mark = Mark(
            iteration=iteration,
            samples=(iteration + 1) * rank.team.num_envs * STEPS_PER_ITERATION,
            busy_s=busy_s,
            took_s=time.monotonic() - start_s,
            tracking_reward=samples["tracking"].mean().item(),
            policy_loss=losses[0].item(),
            memory=card_memory(rank.device),
            transfer=transfer,
        )
        report(
            iteration=iteration,
            samples=mark.samples,
            rank=rank.number,
            busy_s=busy_s,
            alloc_retries=_alloc_retries(rank.device),
            score=mark.tracking_reward,
        )
        yield mark


def _alloc_retries(device: torch.device) -> int | None:
    return torch.cuda.memory_stats(device)["num_alloc_retries"] if device.type == "cuda" else None
