"""skrl: PPO on CartPole in many environments; its bar counts timesteps, each of which steps every environment.

python train_skrl.py --num_envs 16 --rollouts 32 --timesteps 20000
"""

import argparse

import gymnasium
import torch
import truth_file
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg
from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model


class Counted(gymnasium.vector.VectorWrapper):
    """Counts the steps of all environments."""

    def step(self, actions):
        answer = self.env.step(actions)
        truth_file.step(self.num_envs)
        return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num_envs", type=int, default=16)
    parser.add_argument("--rollouts", type=int, default=32, help="timesteps between two updates")
    parser.add_argument("--mini_batches", type=int, default=4)
    parser.add_argument("--timesteps", type=int, default=20_000)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    env = wrap_env(Counted(gymnasium.make_vec(args.env, args.num_envs, vectorization_mode="sync")))
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
    memory = RandomMemory(memory_size=args.rollouts, num_envs=env.num_envs, device=device)
    agent = PPO(models=models, memory=memory, cfg=cfg, **spaces)
    SequentialTrainer(cfg=SequentialTrainerCfg(timesteps=args.timesteps, headless=True), env=env, agents=agent).train()


if __name__ == "__main__":
    main()
