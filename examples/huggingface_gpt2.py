"""Hugging Face Trainer: a small GPT-2, made from its configuration, on random tokens.

torchrun --nproc-per-node 2 examples/huggingface_gpt2.py --per_device_train_batch_size 8
accelerate launch --num_processes 2 examples/huggingface_gpt2.py --per_device_train_batch_size 8

Every option of `TrainingArguments` is an option of this program. Without GPUs, `accelerate launch` starts one process.
"""

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments

LENGTH = 128
MODEL = GPT2Config(vocab_size=4096, n_positions=LENGTH, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
DEFAULTS = ["--max_steps", "100000", "--logging_steps", "10", "--save_strategy", "no", "--report_to", "none"]


class Texts(Dataset):
    """Random tokens; the same index always has the same tokens."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return the tokens, which are also what the model has to predict."""
        tokens = torch.randint(MODEL.vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train; the library prints its progress bar and its logs."""
    parser = HfArgumentParser(TrainingArguments)
    with tempfile.TemporaryDirectory() as folder:
        where = [] if torch.cuda.is_available() else ["--use_cpu"]
        (options,) = parser.parse_args_into_dataclasses(["--output_dir", folder, *where, *DEFAULTS, *sys.argv[1:]])
        Trainer(GPT2LMHeadModel(MODEL), options, train_dataset=Texts()).train()


if __name__ == "__main__":
    main()
