"""skrl: PPO on CartPole, in one process; its bar counts timesteps, each of which steps every environment.

python examples/skrl_ppo.py --num_envs 16 --rollouts 128
"""

import argparse

import gymnasium
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg
from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model


def main() -> None:
    """Train; skrl prints its own progress bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num_envs", type=int, default=16)
    parser.add_argument("--rollouts", type=int, default=128, help="timesteps between two updates")
    parser.add_argument("--mini_batches", type=int, default=4)
    parser.add_argument("--timesteps", type=int, default=10_000_000)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    env = wrap_env(gymnasium.make_vec(args.env, args.num_envs, vectorization_mode="sync"))
    layers = [{"name": "net", "input": "OBSERVATIONS", "layers": [64, 64], "activations": "elu"}]
    spaces = {
        "observation_space": env.observation_space,
        "state_space": env.state_space,
        "action_space": env.action_space,
        "device": device,
    }
    models = {
        "policy": categorical_model(**spaces, network=layers, output="ACTIONS"),
        "value": deterministic_model(**spaces, network=layers, output="ONE"),
    }
    cfg = PPO_CFG(rollouts=args.rollouts, learning_epochs=4, mini_batches=args.mini_batches)
    cfg.experiment.write_interval = cfg.experiment.checkpoint_interval = 0
    agent = PPO(
        models=models,
        memory=RandomMemory(memory_size=args.rollouts, num_envs=env.num_envs, device=device),
        cfg=cfg,
        observation_space=env.observation_space,
        state_space=env.state_space,
        action_space=env.action_space,
        device=device,
    )
    SequentialTrainer(cfg=SequentialTrainerCfg(timesteps=args.timesteps, headless=True), env=env, agents=agent).train()


if __name__ == "__main__":
    main()
