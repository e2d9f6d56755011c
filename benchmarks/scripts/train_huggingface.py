"""Hugging Face Trainer: a causal language model made from its configuration, as in the example `run_clm.py`.

torchrun --nproc_per_node 2 train_huggingface.py --use_cpu --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 2 --num_train_epochs 2 --eval_strategy epoch --logging_steps 10 --output_dir out-clm

Every option of `TrainingArguments` is an option of this program, and so are the sizes of the model.
"""

from dataclasses import dataclass

import torch
import truth_file
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


@dataclass
class ModelArguments:
    """Sizes of the model and of the data."""

    hidden_size: int = 128
    num_layers: int = 2
    block_size: int = 64
    train_texts: int = 4000


class Texts(Dataset):
    def __init__(self, count, length):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tokens = torch.randint(1024, (self.length,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Truth(TrainerCallback):
    """Counts the rows that the model is given in training."""

    def __init__(self, model):
        self.rows = 0
        model.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, model, args, kwargs):
        if model.training:
            self.rows += len(kwargs["input_ids"])

    def on_step_end(self, args, state, control, **kwargs):
        truth_file.step(self.rows)
        self.rows = 0


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    parser.set_defaults(
        output_dir="out-clm", num_train_epochs=2, gradient_accumulation_steps=2, eval_strategy="epoch",
        logging_steps=10, report_to="none",
    )  # fmt: skip
    model_args, training_args = parser.parse_args_into_dataclasses()
    config = GPT2Config(
        vocab_size=1024, n_positions=model_args.block_size, n_embd=model_args.hidden_size,
        n_layer=model_args.num_layers, n_head=max(4, model_args.hidden_size // 64), bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Texts(model_args.train_texts, model_args.block_size),
        eval_dataset=Texts(model_args.train_texts // 10, model_args.block_size),
        callbacks=[Truth(model)],
    )
    result = trainer.train()
    trainer.log_metrics("train", result.metrics)


if __name__ == "__main__":
    main()
