"""Trainings by libraries whose memory `series.py` records: transformers' Trainer, agents of stable-baselines3.

python others.py gpt --steps 400 --batch-size 8 --seed 1
"""

import argparse
import random
import tempfile

import torch

LONGEST = 256
"""The tokens of the longest text."""


class Texts(torch.utils.data.Dataset):
    """Texts of random tokens. Their lengths are lognormal, as those of messages and articles are."""

    def __init__(self, count: int, seed: int) -> None:
        draw = random.Random(seed)
        lengths = [min(LONGEST, max(4, round(draw.lognormvariate(3.7, 0.7)))) for _ in range(count)]
        self.tokens = [[draw.randrange(1, 1000) for _ in range(length)] for length in lengths]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, place: int) -> dict[str, list[int]]:
        return {"tokens": self.tokens[place]}


def padded(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Return a batch: each text is padded to the longest one."""
    most = max(len(row["tokens"]) for row in rows)
    ids = torch.tensor([row["tokens"] + [0] * (most - len(row["tokens"])) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids}


def gpt(asked: argparse.Namespace) -> None:
    """Train a small GPT by transformers' Trainer; every 50 steps it is evaluated, and every 100 it is saved."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Says(TrainerCallback):
        def on_step_end(self, args: object, state: object, control: object, **_: object) -> None:
            print(f"step {state.global_step}", flush=True)

    model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=LONGEST, n_embd=128, n_layer=3, n_head=4))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=asked.steps,
        per_device_train_batch_size=asked.batch_size,
        per_device_eval_batch_size=asked.batch_size,
        eval_strategy="steps",
        eval_steps=50,
        save_steps=100,
        seed=asked.seed,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    data, other = Texts(asked.steps * asked.batch_size, asked.seed), Texts(8 * asked.batch_size, 7)
    Trainer(model, arguments, train_dataset=data, eval_dataset=other, data_collator=padded, callbacks=[Says()]).train()


def agent(asked: argparse.Namespace) -> None:
    """Train an agent of stable-baselines3: a step is 256 or 2,048 steps of the environment."""
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback

    class Says(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % each == 0:
                print(f"step {self.n_calls // each}", flush=True)
            return True

    each = 2048 if asked.what == "ppo" else 256
    kind = getattr(stable_baselines3, asked.what.upper())
    task = "Pendulum-v1" if asked.what == "sac" else "CartPole-v1"
    options = (
        {"batch_size": asked.batch_size}
        if asked.what == "ppo"
        else {"batch_size": asked.batch_size, "learning_starts": 256}
    )
    kind("MlpPolicy", task, seed=asked.seed, device="cpu", **options).learn(asked.steps * each, callback=Says())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["gpt", "ppo", "dqn", "sac"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    (gpt if asked.what == "gpt" else agent)(asked)


if __name__ == "__main__":
    main()
