"""RLlib: PPO on CartPole, with `algo.train()` and its result printed, as in the first steps of its documentation.

python train_rllib.py --num-env-runners 1 --num-envs-per-env-runner 4 --train-batch-size 1000 --iterations 20
"""

import argparse
from pprint import pprint

import truth_file
from ray.rllib.algorithms.ppo import PPOConfig


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-env-runners", type=int, default=1)
    parser.add_argument("--num-envs-per-env-runner", type=int, default=4)
    parser.add_argument("--train-batch-size", type=int, default=1000)
    parser.add_argument("--minibatch-size", type=int, default=128)
    parser.add_argument("--num-epochs", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=20)
    args = parser.parse_args()
    config = (
        PPOConfig()
        .environment(args.env)
        .env_runners(num_env_runners=args.num_env_runners, num_envs_per_env_runner=args.num_envs_per_env_runner)
        .training(
            train_batch_size_per_learner=args.train_batch_size,
            minibatch_size=args.minibatch_size,
            num_epochs=args.num_epochs,
            lr=0.0003,
        )
    )
    algo = config.build_algo()
    for _ in range(args.iterations):
        result = algo.train()
        truth_file.total(result["env_runners"]["num_env_steps_sampled_lifetime"])
        result.pop("config")
        pprint(result)
    algo.stop()


if __name__ == "__main__":
    main()
