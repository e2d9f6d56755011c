"""tianshou: a deep Q-network on CartPole, as in its first example; the library prints its own bar.

python train_tianshou.py --training-num 10 --batch-size 64 --epoch 8 --epoch-num-steps 5000
"""

import argparse

import gymnasium as gym
import torch
import truth_file
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", type=str, default="CartPole-v1")
    parser.add_argument("--buffer-size", type=int, default=20000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epoch", type=int, default=8)
    parser.add_argument("--epoch-num-steps", type=int, default=5000)
    parser.add_argument("--collection-step-num-env-steps", type=int, default=10)
    parser.add_argument("--update-per-step", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--training-num", type=int, default=10, help="environments to train in")
    parser.add_argument("--test-num", type=int, default=10, help="environments to test in")
    parser.add_argument("--device", type=str, default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    env = gym.make(args.task)
    training_envs = DummyVectorEnv([lambda: gym.make(args.task) for _ in range(args.training_num)])
    test_envs = DummyVectorEnv([lambda: gym.make(args.task) for _ in range(args.test_num)])
    net = Net(
        state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_sizes=[128, 128, 128]
    ).to(args.device)
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.1)
    algorithm = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=args.lr), n_step_return_horizon=3, target_update_freq=320
    )
    training_collector = Collector[any](
        algorithm, training_envs, VectorReplayBuffer(args.buffer_size, args.training_num), exploration_noise=True
    )
    test_collector = Collector[any](algorithm, test_envs)
    with truth_file.phase("preparation"):
        training_collector.reset()
        training_collector.collect(n_step=args.batch_size * args.training_num)
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=training_collector,
            test_collector=test_collector,
            max_epochs=args.epoch,
            epoch_num_steps=args.epoch_num_steps,
            collection_step_num_env_steps=args.collection_step_num_env_steps,
            test_step_num_episodes=args.test_num,
            batch_size=args.batch_size,
            update_step_num_gradient_steps_per_sample=args.update_per_step,
            training_fn=lambda epoch, env_step: truth_file.total(env_step),
        )
    )
    print(result)


if __name__ == "__main__":
    main()
