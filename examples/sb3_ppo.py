"""Stable-Baselines3: PPO on CartPole, in one process.

python examples/sb3_ppo.py --n-envs 8 --n-steps 256 --batch-size 256
"""

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv


def main() -> None:
    """Train; the library prints its own table after each rollout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--n-envs", type=int, default=8)
    parser.add_argument("--n-steps", type=int, default=256, help="steps per environment and rollout")
    parser.add_argument("--batch-size", type=int, default=256, help="samples per minibatch")
    parser.add_argument("--n-epochs", type=int, default=4)
    parser.add_argument("--subprocesses", action="store_true", help="one process per environment")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--total-timesteps", type=int, default=100_000_000)
    args = parser.parse_args()
    envs = make_vec_env(args.env, args.n_envs, vec_env_cls=SubprocVecEnv if args.subprocesses else DummyVecEnv)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=args.n_steps,
        batch_size=args.batch_size,
        n_epochs=args.n_epochs,
        device=args.device,
        verbose=1,
    )
    model.learn(args.total_timesteps)


if __name__ == "__main__":
    main()
