"""The training of a rank, a process with one device: rollouts, the loop, and one run of it.

A clip is a stretch of recorded motion, which the robot of an environment imitates.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import torch
import torch._dynamo  # any optimizer loads it: once here, before ranks are forked
from torch import Tensor

from tuner.progress import report
from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, RunConfig, TeamSettings
from tuner.trainers.reference.methods import ActorCritic, Discriminator, Networks, Samples
from tuner.trainers.reference.team_ranks import BusyMeter, TeamRank, prepare, process_group, start
from tuner.trainers.reference.world import ClipStream, MotionClips, TrackingEnv, frames_needed

DISCOUNT = 0.9
"""Looks about ten control steps ahead, the time in which a joint reaches its target."""

TD_LAMBDA = 0.95


@torch.no_grad()
def collect(env: TrackingEnv, policy: ActorCritic, discriminator: Discriminator | None, clips: Tensor) -> Samples:
    """Let the policy imitate `clips` in all environments (a rollout), and return the samples for an update.

    There are STEPS_PER_ITERATION · num_envs samples. Their columns are `observation target log_likelihood value reward
    tracking alive return advantage`, and with a discriminator also `fake` and `real`, its examples.
    """
    env.follow(clips)
    steps = [_act(env, policy, discriminator) for _ in range(STEPS_PER_ITERATION)]
    last_value = policy.value(env.observe())
    columns = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
    columns["return"] = lambda_returns(columns["reward"], columns["value"], columns["alive"], last_value)
    advantage = columns["return"] - columns["value"]
    columns["advantage"] = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
    return {name: column.flatten(0, 1) for name, column in columns.items()}


def _act(env: TrackingEnv, policy: ActorCritic, discriminator: Discriminator | None) -> Samples:
    """Act as the policy does, advance all environments by a control step, and return one sample of each."""
    observation = env.observe()
    target, log_likelihood = policy.act(observation)
    step = env.step(target)
    samples = {
        "observation": observation,
        "target": target,
        "log_likelihood": log_likelihood,
        "value": policy.value(observation),
        "reward": step.tracking_reward,
        "tracking": step.tracking_reward,
        "alive": (~step.failed).float(),
    }
    if discriminator is None:
        return samples
    fake, real = discriminator.examples(step)
    return {**samples, "reward": discriminator.reward(fake), "fake": fake, "real": real}


def lambda_returns(reward: Tensor, value: Tensor, alive: Tensor, last_value: Tensor) -> Tensor:
    """Return the TD(λ) return of each step, [steps, num_envs]. Minus the value, it is the GAE advantage.

    `alive` is 0 where a step ended the episode, `last_value` the value after the last step, [num_envs].
    Source: Sutton and Barto, Reinforcement Learning, second edition, section 12.1; Schulman et al. 2016.
    """
    returns = torch.empty_like(reward)
    next_return = next_value = last_value
    for step in reversed(range(len(reward))):
        future = torch.lerp(next_value, next_return, TD_LAMBDA)  # λ of the next step's return, 1 - λ of its value
        returns[step] = next_return = reward[step] + DISCOUNT * alive[step] * future
        next_value = value[step]
    return returns


@contextmanager
def fresh_clips(rank: TeamRank[TeamSettings], config: RunConfig) -> Iterator[ClipStream]:
    """Seed the random numbers of a run, and yield its stream of clips, whose workers end with the context."""
    torch.manual_seed(rank.team.seed + rank.number)  # each rank draws other actions
    stream = ClipStream(
        MotionClips(frames=frames_needed(STEPS_PER_ITERATION), seed=rank.team.seed),
        num_envs=rank.team.num_envs,
        rank=rank.number,
        ranks=rank.team.ranks,
        device=rank.device,
        num_workers=config.num_workers,
        prefetch_factor=config.ahead,
    )
    with closing(stream) as clips:
        yield clips


def networks_of(rank: TeamRank[TeamSettings], config: RunConfig) -> Networks:
    """Return new networks on the device of a rank."""
    return Networks(rank.team.method, [rank.team.hidden_units] * config.hidden_layers).to(rank.device)


def iterations(
    rank: TeamRank[TeamSettings], networks: Networks, clips: ClipStream, config: RunConfig, most: int
) -> Iterator[str]:
    """Train the networks for `most` iterations; report each iteration to the tuner, then yield a line for the log."""
    meter, on_gpu = BusyMeter(rank.device), rank.device.type == "cuda"
    env = TrackingEnv(rank.device, rank.team.num_envs * rank.team.env_mib)
    minibatch = config.samples_of_minibatch(rank.team.num_envs)
    learners = networks.learners(update_epochs=config.epochs, minibatch=minibatch)
    for iteration in range(most):
        start_s = time.monotonic()
        fresh = clips.take()
        with meter.working():
            samples = collect(env, networks.policy, networks.discriminator, fresh)
            losses = [learner.update(samples) for learner in learners]
        busy_s = meter.settle()
        took_s = time.monotonic() - start_s
        samples_so_far = (iteration + 1) * rank.team.num_envs * STEPS_PER_ITERATION
        tracking_reward = samples["tracking"].mean().item()
        report(
            iteration=iteration,
            samples=samples_so_far,
            rank=rank.number,
            busy_s=busy_s,
            alloc_retries=torch.cuda.memory_stats(rank.device)["num_alloc_retries"] if on_gpu else None,
            score=tracking_reward,
        )
        yield (
            f"iteration {iteration}  samples {samples_so_far * rank.team.ranks}  "
            f"tracking reward {tracking_reward:.3f}  policy loss {losses[0].item():.3f}  {took_s:.2f} s\n"
        )


def run(team: TeamSettings, config: RunConfig, most: int, out_dir: Path) -> None:
    """Train for `most` iterations on all ranks, and write the log and the model to `out_dir`.

    Raises the error of the first rank that fails.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    show("the ranks start\n")  # on a busy machine this takes a while, and the trainer is not called silent
    start(_train, team, config, most, out_dir)


def _train(number: int, team: TeamSettings, config: RunConfig, most: int, out_dir: Path) -> None:
    """Train as one rank; the leading rank writes the log and the model."""
    rank = prepare(number, team)
    with fresh_clips(rank, config) as clips, process_group(rank):
        networks = networks_of(rank, config)
        for iteration, line in enumerate(iterations(rank, networks, clips, config, most)):
            if rank.leads:
                mode = "a" if iteration else "w"  # the first iteration replaces an earlier log
                with (out_dir / "log.txt").open(mode, encoding="utf-8") as log:
                    log.write(line)
                show(line)
        if rank.leads:
            torch.save(networks.state_dict(), out_dir / "model.pt")


def show(line: str) -> None:
    """Print a line and flush it, so that the tuner reads it at once."""
    sys.stdout.write(line)
    sys.stdout.flush()
