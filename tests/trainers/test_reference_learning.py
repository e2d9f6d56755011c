"""The parts of the reference trainer, in this process: motions, environment, returns, losses, learning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests_later import Later

from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, Method

if TYPE_CHECKING:
    import torch

    from tuner.trainers.reference import learning, team_ranks, world
else:
    torch = Later("torch")
    room = "tuner.trainers.reference"
    team_ranks = Later(f"{room}.team_ranks")
    learning, world = Later(f"{room}.learning"), Later(f"{room}.world")

pytestmark = pytest.mark.early

SMALL = (64, 64)
"""The units of each hidden layer."""


def cpu() -> torch.device:
    return torch.device("cpu")


def frames() -> int:
    return world.frames_needed(STEPS_PER_ITERATION)


@pytest.fixture(autouse=True)
def _one_seeded_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def stream(num_envs: int, rank: int = 0, num_workers: int = 0) -> world.ClipStream:
    return world.ClipStream(
        world.MotionClips(frames=frames()),
        num_envs=num_envs,
        rank=rank,
        ranks=2,
        device=cpu(),
        num_workers=num_workers,
        prefetch_factor=2 if num_workers else None,
    )


def alone(loss: learning.NetworkLoss) -> torch.nn.Module:
    return loss


def test_robot_is_that_of_pi_plus() -> None:
    assert world.JOINTS == 22
    assert torch.linalg.eigvalsh(world.inertia()).min() > 0


def test_a_clip_is_the_same_whenever_asked_for() -> None:
    clips = world.MotionClips(frames=frames())
    assert torch.equal(clips[7], world.MotionClips(frames=frames())[7])
    assert not torch.equal(clips[7], clips[8])


def test_velocities_are_those_of_the_angles() -> None:
    angles, velocities = world.MotionClips(frames=frames())[3].split(world.JOINTS, dim=-1)
    torch.testing.assert_close(velocities[1:-1], (angles[2:] - angles[:-2]) * world.CONTROL_HZ / 2, rtol=0, atol=1e-4)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_iteration_and_every_rank_gets_fresh_clips(num_workers: int) -> None:
    taken = []
    for rank in (0, 1):
        clips = stream(300, rank, num_workers)
        taken += [clips.take(), clips.take()]
        clips.close()
    assert all(batch.shape == (300, frames(), 2 * world.JOINTS) for batch in taken)
    assert len(torch.unique(torch.cat(taken).flatten(1), dim=0)) == 4 * 300


def test_perfect_tracking_earns_1_and_less_the_further_away() -> None:
    errors = torch.tensor([0.0, 0.1, 1.0])[:, None].expand(3, world.JOINTS)
    reward = world.tracking_reward(errors, errors)
    assert reward[0] == 1
    assert reward[0] > reward[1] > reward[2] > 0


def test_joints_go_where_they_are_driven() -> None:
    env = world.TrackingEnv(cpu())
    env.follow(torch.zeros(5, frames(), 2 * world.JOINTS))
    target = torch.full((5, world.JOINTS), 0.3)
    for _ in range(STEPS_PER_ITERATION):
        env.step(target)
    angles = env.observe()[:, : world.JOINTS].asin()
    torch.testing.assert_close(angles, target, rtol=0, atol=0.03)


def test_an_environment_that_lost_its_pose_is_put_back() -> None:
    env = world.TrackingEnv(cpu())
    env.follow(stream(6).take())
    target = torch.zeros(6, world.JOINTS)
    target[0] = 100.0
    steps = [env.step(target) for _ in range(8)]
    first = next(index for index, step in enumerate(steps) if step.failed[0])
    assert not torch.equal(steps[first].after[0], steps[first].reference_after[0])
    assert torch.equal(steps[first + 1].before[0], steps[first + 1].reference_before[0])


def test_observations_hold_the_pose_and_the_frames_ahead() -> None:
    env = world.TrackingEnv(cpu())
    clips = stream(4).take()
    env.follow(clips)
    described = world.features(*clips[:, :4].split(world.JOINTS, dim=-1))
    assert world.OBSERVATION == 4 * world.FEATURES
    torch.testing.assert_close(env.observe(), described.flatten(1))


def test_returns_add_up_rewards_until_an_episode_ends() -> None:
    ones, zeros = torch.ones(3, 2), torch.zeros(3, 2)
    alive = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    outcome = learning.lambda_returns(ones, zeros, alive, torch.zeros(2))
    step = learning.DISCOUNT * learning.TD_LAMBDA
    torch.testing.assert_close(outcome[0], torch.tensor([1 + step + step**2, 1 + step]))


def test_returns_of_right_values_are_those_values() -> None:
    value = torch.full((5, 3), 1 / (1 - learning.DISCOUNT))
    outcome = learning.lambda_returns(torch.ones(5, 3), value, torch.ones(5, 3), value[0])
    torch.testing.assert_close(outcome, value)


def test_the_clipped_loss_gains_nothing_beyond_the_clip() -> None:
    advantage = torch.tensor([1.0])
    large, clipped = torch.tensor([5.0]), torch.tensor([1.2])
    assert learning.clipped_loss(large, advantage) == learning.clipped_loss(clipped, advantage)
    assert learning.clipped_loss(large, -advantage) > learning.clipped_loss(clipped, -advantage)


@pytest.mark.parametrize("name", ["Discriminator", "DifferenceDiscriminator"])
def test_a_discriminator_learns_to_distinguish_two_kinds(name: str) -> None:
    kind: type[learning.Discriminator] = getattr(learning, name)
    discriminator = kind(SMALL)
    fake = torch.randn(128, kind.inputs)
    real = torch.randn(128, kind.inputs) + 0.5
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        discriminator({"fake": fake, "real": real}).backward()
        optimizer.step()
    assert discriminator.reward(real).mean() > discriminator.reward(fake).mean() + 0.2


def test_the_difference_is_nothing_where_tracking_is_perfect() -> None:
    env = world.TrackingEnv(cpu())
    env.follow(torch.zeros(3, frames(), 2 * world.JOINTS))
    fake, real = learning.DifferenceDiscriminator(SMALL).examples(env.step(torch.zeros(3, world.JOINTS)))
    assert torch.equal(fake, real)


@pytest.mark.parametrize("method", ["add", "amp", "deepmimic"])
def test_one_iteration_of_every_method(method: Method) -> None:
    networks = learning.Networks(method, SMALL)
    env = world.TrackingEnv(cpu())
    samples = learning.collect(env, networks.policy, networks.discriminator, stream(8).take())
    assert {len(column) for column in samples.values()} == {8 * STEPS_PER_ITERATION}
    assert {column.dtype for column in samples.values()} == {torch.float32}
    losses: list[learning.NetworkLoss] = [learning.PolicyLoss(networks.policy)]
    if networks.discriminator is not None:
        losses.append(networks.discriminator)
    assert len(losses) == (1 if method == "deepmimic" else 2)
    before = torch.nn.utils.parameters_to_vector(networks.parameters())
    for loss in losses:
        assert learning.Learner(loss, epochs=1, minibatch=100, wrap=alone).update(samples).isfinite()
    after = torch.nn.utils.parameters_to_vector(networks.parameters())
    assert (before != after).float().mean() > 0.5


@pytest.mark.minutes
def test_the_policy_learns_to_track() -> None:
    networks = learning.Networks("deepmimic", SMALL)
    learner = learning.Learner(learning.PolicyLoss(networks.policy), epochs=3, minibatch=128, wrap=alone)
    env, clips = world.TrackingEnv(cpu()), stream(64)

    def iteration() -> torch.Tensor:
        samples = learning.collect(env, networks.policy, None, clips.take())
        learner.update(samples)
        return samples["tracking"].mean()

    rewards = torch.stack([iteration() for _ in range(20)])
    assert rewards[-4:].mean() > rewards[:4].mean() + 0.01


def test_only_work_inside_sections_is_busy() -> None:
    cpu_s = itertools.count(start=10.0, step=1.5)
    meter = team_ranks.BusyMeter(cpu(), lambda: next(cpu_s))
    assert meter.settle() == 0
    for _ in range(3):
        with meter.working():
            pass
        next(cpu_s)
    assert meter.settle() == 3 * 1.5


def test_tensor_work_on_the_cpu_is_busy() -> None:
    meter = team_ranks.BusyMeter(cpu())
    with meter.working():
        torch.randn(400, 400).matrix_power(20)
    assert (meter.settle() or 0.0) > 0
