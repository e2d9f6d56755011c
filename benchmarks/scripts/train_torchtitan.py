"""A small Llama-like model, trained with torchtitan's flags and lines, on random tokens.

torchrun --nproc_per_node=2 --tee 3 --local-ranks-filter 0 --role rank train_torchtitan.py --training.steps 250

The real library trains on GPUs alone; here the loop is written so that it prints as torchtitan does. Where
`--training.global_batch_size` is larger than the batches of all ranks, gradients are accumulated.
"""

import argparse
import logging
import os
import time

import torch
import truth_file
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

VOCAB, HEADS = 2048, 4
CYAN, RED, GREEN, RESET = "\033[36m", "\033[31m", "\033[32m", "\033[39m"
YELLOW, BLUE, MAGENTA = "\033[33m", "\033[34m", "\033[35m"


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.w1, self.w3 = (nn.Linear(dim, 3 * dim, bias=False) for _ in range(2))
        self.w2 = nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x):
        batch, length, dim = x.shape
        parts = self.wqkv(self.attention_norm(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, HEADS, dim // HEADS).transpose(1, 2) for part in parts)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(found.transpose(1, 2).reshape(batch, length, dim))
        seen = self.ffn_norm(x)
        return x + self.w2(functional.silu(self.w1(seen)) * self.w3(seen))


class Transformer(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, dim)
        self.layers = nn.Sequential(*(Block(dim) for _ in range(layers)), nn.RMSNorm(dim))
        self.output = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, tokens):
        return self.output(self.layers(self.tok_embeddings(tokens)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model.dim", type=int, default=128)
    parser.add_argument("--model.n_layers", type=int, default=2)
    parser.add_argument("--training.local_batch_size", type=int, default=8)
    parser.add_argument("--training.global_batch_size", type=int, default=-1)
    parser.add_argument("--training.seq_len", type=int, default=128)
    parser.add_argument("--training.steps", type=int, default=250)
    parser.add_argument("--optimizer.lr", type=float, default=8e-4)
    parser.add_argument("--metrics.log_freq", type=int, default=10)
    parser.add_argument("--compile.enable", action="store_true")
    args = vars(parser.parse_args())
    logging.basicConfig(level=logging.INFO, format="[titan] %(asctime)s - %(name)s - %(levelname)s - %(message)s")
    logger = logging.getLogger()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    ranks = distributed.get_world_size()
    batch, length = args["training.local_batch_size"], args["training.seq_len"]
    total = args["training.global_batch_size"]
    total = batch * ranks if total < 0 else total
    if total % (batch * ranks):
        raise ValueError(f"global batch size must be a multiple of {batch * ranks}")
    accumulated = total // (batch * ranks)
    logger.info("Starting job: Llama 3 debug training")
    model = Transformer(args["model.dim"], args["model.n_layers"]).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    logger.info(f"{BLUE}Model llama3 debugmodel {RED}size: {parameters:,} total parameters{RESET}")
    if args["compile.enable"]:
        model = torch.compile(model)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args["optimizer.lr"])
    draw = torch.Generator().manual_seed(distributed.get_rank())
    logger.info(
        f"Trainer is initialized with local batch size {batch}, global batch size {total}, "
        f"gradient accumulation steps {accumulated}, sequence length {length}, "
        f"total steps {args['training.steps']} (warmup 2)"
    )
    logger.info("Training starts at step 1")
    began, tokens = time.perf_counter(), 0
    for step in range(1, args["training.steps"] + 1):
        optimizer.zero_grad()
        for part in range(accumulated):
            text = torch.randint(VOCAB, (batch, length + 1), generator=draw).to(device)
            model.require_backward_grad_sync = part == accumulated - 1
            loss = functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()) / accumulated
            loss.backward()
            tokens += batch * length
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if on_gpu:
            loss.item()
        truth_file.step(accumulated * batch)
        if step == 1 or step % args["metrics.log_freq"] == 0:
            tps = tokens / (time.perf_counter() - began)
            flops = 6 * parameters * tps
            logger.info(
                f"{RED}step: {step:2}  {GREEN}loss: {loss.item() * accumulated:7.4f}  "
                f"{YELLOW}grad_norm: {norm.item():7.4f}  {BLUE}memory:  0.00GiB(0.00%)  {CYAN}tps: {round(tps):,}  "
                f"{MAGENTA}tflops: {flops / 1e12:,.2f}  mfu: {100 * flops / 312e12:.2f}%{RESET}"
            )
            began, tokens = time.perf_counter(), 0
    logger.info("Training completed")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
