"""The training loop of a rank, and one run of it."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from tuner.progress import report
from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, TeamSettings, TrainingSettings
from tuner.trainers.reference.methods import (
    CardMemory,
    Networks,
    Transfer,
    brought,
    card_memory,
    numerics,
    prepare_process,
)
from tuner.trainers.reference.rollout import player, rollout_device
from tuner.trainers.reference.team_ranks import TeamRank, busy_meter, prepare, process_group, start
from tuner.trainers.reference.world import ClipStream, MotionClips, frames_needed


@dataclass(frozen=True, kw_only=True, slots=True)
class IterationEnd:
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
def fresh_clips(rank: TeamRank[TeamSettings], settings: TrainingSettings) -> Iterator[ClipStream]:
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
    rank: TeamRank[TeamSettings], networks: Networks, clips: ClipStream, settings: TrainingSettings
) -> Iterator[IterationEnd]:
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
        mark = IterationEnd(
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


def run(team: TeamSettings, settings: TrainingSettings, out_dir: Path) -> None:
    """Train to the end and leave both files in `out_dir`. Raises the error of the first rank that fails."""
    out_dir.mkdir(parents=True, exist_ok=True)
    start(_train, team, settings, out_dir)


def _train(number: int, team: TeamSettings, settings: TrainingSettings, out_dir: Path) -> None:
    rank = prepare(number, team)
    with fresh_clips(rank, settings) as clips, process_group(rank):
        networks = Networks(team.method, settings.agent).to(rank.device)
        for mark in iterations(rank, networks, clips, settings):
            if rank.leads:
                _log(mark, len(team.devices), out_dir / "log.txt")
        if rank.leads:
            torch.save(networks.state_dict(), out_dir / "model.pt")


def _log(mark: IterationEnd, ranks: int, path: Path) -> None:
    line = mark.line(ranks)
    with path.open("a" if mark.iteration else "w", encoding="utf-8") as log:
        log.write(line)
    sys.stdout.write(line)
    sys.stdout.flush()
