"""The training of a rank, a process with one device: the networks, PPO, AMP and ADD; rollouts, the loop, and one run.

A clip is a stretch of recorded motion, which the robot of an environment imitates.
"""

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # any optimizer loads it: once here, before ranks are forked
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tuner.progress import report
from tuner.trainers.reference import world
from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, Method, RunConfig, TeamSettings
from tuner.trainers.reference.team_ranks import BusyMeter, TeamRank, prepare, process_group, start

Samples = dict[str, Tensor]
"""Columns of equal length, one sample per row."""


class NetworkLoss(nn.Module):
    """A network together with what it minimises: `forward(samples)` returns the loss of a minibatch, a scalar."""

    columns: tuple[str, ...]
    """The columns of the samples that it reads."""


class Learner:
    """Trains one network by minimising its loss, together with the copies of the network on other ranks."""

    def __init__(
        self,
        loss: NetworkLoss,
        *,
        epochs: int,
        minibatch: int,
        wrap: Callable[[NetworkLoss], nn.Module],
    ) -> None:
        """Train one network, together with its copies on other ranks.

        Args:
            loss: the network with its loss.
            epochs: how often an update uses each sample.
            minibatch: the samples of a step on this rank.
            wrap: joins the network with its copies on other ranks, as DistributedDataParallel does.
        """
        self._columns = loss.columns
        self._loss = wrap(loss)
        self._optimizer = torch.optim.Adam(loss.parameters(), lr=5e-4, fused=True)
        self._epochs = epochs
        self._minibatch = minibatch

    def update(self, samples: Samples) -> Tensor:
        """Train on the samples for all epochs, in minibatches drawn anew in each epoch, and return the last loss."""
        columns = {name: samples[name] for name in self._columns}
        any_column = columns[self._columns[0]]
        loss = torch.zeros(())
        for _ in range(self._epochs):
            for rows in torch.randperm(len(any_column), device=any_column.device).split(self._minibatch):
                batch = {name: column.index_select(0, rows) for name, column in columns.items()}
                loss = self._loss(batch)
                self._optimizer.zero_grad()
                loss.backward()
                self._optimizer.step()
        return loss.detach()


def mlp(inputs: int, outputs: int, hidden_sizes: Sequence[int]) -> nn.Sequential:
    """Return layers with hidden ones of these sizes, [batch, inputs] → [batch, outputs]."""
    sizes = (inputs, *hidden_sizes)
    hidden: list[nn.Module] = []
    for size, next_size in itertools.pairwise(sizes):
        hidden += [nn.Linear(size, next_size), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], outputs))


class ActorCritic(nn.Module):
    """A Gaussian policy of fixed standard deviation over joint targets, and a value of observations."""

    std_rad = 0.2
    """The standard deviation of a joint target."""

    def __init__(self, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.actor = mlp(world.OBSERVATION, world.JOINTS, hidden_sizes)
        self.critic = mlp(world.OBSERVATION, 1, hidden_sizes)

    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Draw joint targets in rad, [num_envs, JOINTS], and return them with their log-likelihood, [num_envs]."""
        mean = self.actor(observation)
        target = mean + self.std_rad * torch.randn_like(mean)
        return target, self._log_likelihood(target, mean)

    def log_likelihood(self, observation: Tensor, target: Tensor) -> Tensor:
        """Return the log-likelihood that the policy chooses `target`, up to a constant, [batch]."""
        return self._log_likelihood(target, self.actor(observation))

    def value(self, observation: Tensor) -> Tensor:
        """Return the estimated return from each observation, [batch]."""
        return self.critic(observation).squeeze(-1)

    def _log_likelihood(self, target: Tensor, mean: Tensor) -> Tensor:
        """Return the log-likelihood of a target, without the normalisation, which cancels in a ratio of policies."""
        return -0.5 * ((target - mean) / self.std_rad).square().sum(dim=-1)


class PolicyLoss(NetworkLoss):
    """The clipped surrogate of the actor and the squared error of the critic."""

    columns = ("observation", "target", "log_likelihood", "advantage", "return")

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, samples: Samples) -> Tensor:
        """Return the loss of a minibatch, a scalar."""
        log_likelihood = self.policy.log_likelihood(samples["observation"], samples["target"])
        ratio = torch.exp(log_likelihood - samples["log_likelihood"])  # of the policy now to that of the rollout
        value_error = self.policy.value(samples["observation"]) - samples["return"]
        return clipped_loss(ratio, samples["advantage"]) + value_error.square().mean()


def clipped_loss(ratio: Tensor, advantage: Tensor) -> Tensor:
    """Return the clipped surrogate loss with an epsilon of 0.2, a scalar (Schulman et al. 2017, equation 7)."""
    clipped = ratio.clamp(0.8, 1.2)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


class Discriminator(NetworkLoss):
    """Distinguishes transitions of the policy from those of the clips, as amp does (Peng et al. 2021)."""

    inputs = 2 * world.FEATURES
    columns = ("fake", "real")
    gradient_penalty = 5.0
    reward_scale = 2.0
    most_reward = -math.log(1e-4)
    """At this value the discriminator is almost certain that it sees a clip."""

    def __init__(self, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.net = mlp(self.inputs, 1, hidden_sizes)

    def examples(self, step: world.ControlStep) -> tuple[Tensor, Tensor]:
        """Return the fake and the real examples: the policy's transitions, and the clips'; two [num_envs, inputs]."""
        fake = torch.cat((step.before, step.after), dim=-1)
        return fake, torch.cat((step.reference_before, step.reference_after), dim=-1)

    def reward(self, fake: Tensor) -> Tensor:
        """Return the reward -log(1 - D), [num_envs]: more for what looks like a clip.

        The logit of D is the network's output, and -log(1 - sigmoid(x)) is softplus(x).
        """
        return self.reward_scale * functional.softplus(self.net(fake).squeeze(-1)).clamp(max=self.most_reward)

    def forward(self, samples: Samples) -> Tensor:
        """Return the cross-entropy of the classification, with a penalty on steep gradients."""
        examples = torch.cat((samples["fake"], samples["real"])).requires_grad_()
        logits = self.net(examples).squeeze(-1)
        labels = torch.zeros_like(logits)
        labels[len(samples["fake"]) :] = 1  # real
        (slope,) = torch.autograd.grad(logits.sum(), examples, create_graph=True)
        penalty = self.gradient_penalty * slope.square().sum(dim=-1).mean()
        return functional.binary_cross_entropy_with_logits(logits, labels) + penalty


class DifferenceDiscriminator(Discriminator):
    """Distinguishes the policy's tracking error from an error of zero, as add does (Zhang et al. 2025)."""

    inputs = world.FEATURES

    def examples(self, step: world.ControlStep) -> tuple[Tensor, Tensor]:
        """Return the fake and the real examples: the policy's tracking error, and zero; two [num_envs, inputs]."""
        error = step.after - step.reference_after
        return error, torch.zeros_like(error)


class Networks(nn.Module):
    """All networks of a method; deepmimic has no discriminator."""

    def __init__(self, method: Method, hidden_sizes: Sequence[int]) -> None:
        """Make the networks of a method, with hidden layers of these sizes."""
        super().__init__()
        self.policy = ActorCritic(hidden_sizes)
        self.discriminator = None
        if method == "add":
            self.discriminator = DifferenceDiscriminator(hidden_sizes)
        elif method == "amp":
            self.discriminator = Discriminator(hidden_sizes)

    def learners(self, *, update_epochs: int, minibatch: int) -> list[Learner]:
        """Return the learners of the policy and of the discriminator, each joined with its copies on other ranks.

        The discriminator has two epochs in an update, whatever those of the policy are, as in MimicKit's agents.
        """
        learner = partial(Learner, minibatch=minibatch, wrap=DistributedDataParallel)
        learners = [learner(PolicyLoss(self.policy), epochs=update_epochs)]
        if self.discriminator is not None:
            learners.append(learner(self.discriminator, epochs=2))
        return learners


DISCOUNT = 0.9
"""Looks about ten control steps ahead, the time in which a joint reaches its target."""

TD_LAMBDA = 0.95


@torch.no_grad()
def collect(env: world.TrackingEnv, policy: ActorCritic, discriminator: Discriminator | None, clips: Tensor) -> Samples:
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


def _act(env: world.TrackingEnv, policy: ActorCritic, discriminator: Discriminator | None) -> Samples:
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
def fresh_clips(rank: TeamRank[TeamSettings], config: RunConfig) -> Iterator[world.ClipStream]:
    """Seed the random numbers of a run, and yield its stream of clips, whose workers end with the context."""
    torch.manual_seed(rank.team.seed + rank.number)  # each rank draws other actions
    stream = world.ClipStream(
        world.MotionClips(frames=world.frames_needed(STEPS_PER_ITERATION), seed=rank.team.seed),
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
    rank: TeamRank[TeamSettings], networks: Networks, clips: world.ClipStream, config: RunConfig, most: int
) -> Iterator[str]:
    """Train the networks for `most` iterations; report each iteration to the tuner, then yield a line for the log."""
    meter, on_gpu = BusyMeter(rank.device), rank.device.type == "cuda"
    env = world.TrackingEnv(rank.device, rank.team.num_envs * rank.team.env_mib)
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
