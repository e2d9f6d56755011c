"""Accelerate: a loop of one's own with a bar of optimiser steps, as in the example `run_clm_no_trainer.py`.

accelerate launch --cpu train_accelerate.py --per_device_train_batch_size 8 --gradient_accumulation_steps 2
"""

import argparse
import math

import torch
import truth_file
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler

logger = get_logger(__name__)
TEXTS = 3000


class Texts(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tokens = torch.randint(1024, (64,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main():
    parser = argparse.ArgumentParser(description="Finetune a transformers model on a causal language modeling task")
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--per_device_eval_batch_size", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--lr_scheduler_type", default="linear")
    parser.add_argument("--output_dir", default=None)
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_positions=64, n_embd=128, n_layer=2, n_head=4))
    train = DataLoader(Texts(TEXTS), shuffle=True, batch_size=args.per_device_train_batch_size)
    evaluation = DataLoader(Texts(400), batch_size=args.per_device_eval_batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    model, optimizer, train, evaluation = accelerator.prepare(model, optimizer, train, evaluation)
    updates = math.ceil(len(train) / args.gradient_accumulation_steps)
    steps = args.num_train_epochs * updates
    scheduler = accelerator.prepare(get_scheduler(args.lr_scheduler_type, optimizer, 0, steps))
    total = args.per_device_train_batch_size * accelerator.num_processes * args.gradient_accumulation_steps
    if accelerator.is_local_main_process:
        print("***** Running training *****")
        print(f"  Num examples = {TEXTS}")
        print(f"  Num Epochs = {args.num_train_epochs}")
        print(f"  Instantaneous batch size per device = {args.per_device_train_batch_size}")
        print(f"  Total train batch size (w. parallel, distributed & accumulation) = {total}")
        print(f"  Gradient Accumulation steps = {args.gradient_accumulation_steps}")
        print(f"  Total optimization steps = {steps}")
    progress_bar, rows = tqdm(range(steps), disable=not accelerator.is_local_main_process), 0
    for epoch in range(args.num_train_epochs):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            rows += len(batch["input_ids"])
            if accelerator.sync_gradients:
                truth_file.step(rows)
                rows = 0
                progress_bar.update(1)
        model.eval()
        losses = []
        with truth_file.phase("evaluation"), torch.no_grad():
            losses = [accelerator.gather_for_metrics(model(**batch).loss) for batch in evaluation]
        perplexity = math.exp(torch.stack(losses).mean())
        if accelerator.is_local_main_process:
            print(f"epoch {epoch}: perplexity: {perplexity}")


if __name__ == "__main__":
    main()
