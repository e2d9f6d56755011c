"""Stable-Baselines3: PPO on CartPole with an evaluation now and then; the library prints its own tables.

python train_sb3.py --n-envs 4 --n-steps 256 --batch-size 64 --total-timesteps 60000
"""

import argparse

import truth_file
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env


class Truth(BaseCallback):
    """Writes down the environment steps at the end of each rollout."""

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        truth_file.total(self.num_timesteps)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--n-envs", type=int, default=4)
    parser.add_argument("--n-steps", type=int, default=256, help="steps per environment and rollout")
    parser.add_argument("--batch-size", type=int, default=64, help="samples per minibatch")
    parser.add_argument("--n-epochs", type=int, default=4)
    parser.add_argument("--eval-freq", type=int, default=5000, help="environment steps between two evaluations")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--total-timesteps", type=int, default=60_000)
    args = parser.parse_args()
    vec_env = make_vec_env(args.env, n_envs=args.n_envs)
    model = PPO(
        "MlpPolicy",
        vec_env,
        n_steps=args.n_steps,
        batch_size=args.batch_size,
        n_epochs=args.n_epochs,
        device=args.device,
        verbose=1,
    )
    evaluation = EvalCallback(make_vec_env(args.env, n_envs=1), eval_freq=max(1, args.eval_freq // args.n_envs))
    model.learn(total_timesteps=args.total_timesteps, callback=[evaluation, Truth()])


if __name__ == "__main__":
    main()
