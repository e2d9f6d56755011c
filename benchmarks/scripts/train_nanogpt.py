"""A small GPT, trained as nanoGPT does it: settings are globals, and `--name=value` overrides one. The text is random.

python train_nanogpt.py --device=cpu --compile=False --eval_iters=20 --log_interval=1 --block_size=64 --batch_size=8

An iteration has `gradient_accumulation_steps` batches, as in nanoGPT. Like nanoGPT, the script has no `--help`.
"""

import math
import os
import sys
import time
from ast import literal_eval
from contextlib import nullcontext

import numpy as np
import torch
import truth_file
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

# I/O
out_dir = "out"
eval_interval = 250
log_interval = 1
eval_iters = 20
# data
gradient_accumulation_steps = 4  # used to simulate larger batch sizes
batch_size = 8  # if gradient_accumulation_steps > 1, this is the micro-batch size
block_size = 64
# model
n_layer = 4
n_head = 4
n_embd = 128
dropout = 0.0
# adamw optimizer
learning_rate = 1e-3
max_iters = 700
weight_decay = 1e-1
grad_clip = 1.0
# system
seed = 1337  # a number in nanoGPT
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = "float32"
tf32 = False
compile = False  # noqa: A001 - its name in nanoGPT
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, int | float | bool | str)]
for arg in sys.argv[1:]:
    key, _, val = arg.removeprefix("--").partition("=")
    if not arg.startswith("--") or key not in config_keys:
        raise ValueError(f"Unknown config key: {key}")
    try:
        attempt = literal_eval(val)
    except (SyntaxError, ValueError):
        attempt = val
    print(f"Overriding: {key} = {attempt}")
    globals()[key] = attempt

VOCAB = 65


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, n_head, width // n_head).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.Sequential(*(Block() for _ in range(n_layer)), nn.LayerNorm(n_embd))
        self.lm_head = nn.Linear(n_embd, VOCAB, bias=False)
        print(f"number of parameters: {sum(p.numel() for p in self.parameters()) / 1e6:.2f}M")

    def forward(self, idx, targets):
        logits = self.lm_head(self.h(self.wte(idx) + self.wpe.weight[: idx.shape[1]]))
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


ddp = int(os.environ.get("RANK", "-1")) != -1
if ddp:
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    if gradient_accumulation_steps % world_size:
        raise ValueError("gradient_accumulation_steps must be a multiple of the ranks")
    gradient_accumulation_steps //= world_size
else:
    rank, world_size = 0, 1
master_process = rank == 0
tokens_per_iter = gradient_accumulation_steps * world_size * batch_size * block_size
print(f"tokens per iteration will be: {tokens_per_iter:,}")
if master_process:
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(seed + rank)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
device_type = "cuda" if "cuda" in device else "cpu"
ctx = nullcontext() if dtype == "float32" else torch.autocast(device_type, getattr(torch, dtype))
draw = np.random.default_rng(0)
letters = draw.integers(0, VOCAB, 1_000_000).astype(np.uint16)
data = {"train": letters[:900_000], "val": letters[900_000:]}


def get_batch(split):
    text = data[split]
    ix = torch.randint(len(text) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(text[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(text[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x, y


model = raw_model = GPT().to(device)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=device_type == "cuda"
)
if compile:
    print("compiling the model... (takes a ~minute)")
    model = torch.compile(model)
if ddp:
    model = DistributedDataParallel(model)


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {}
    for split in ("train", "val"):
        losses = []
        for _ in range(eval_iters):
            x, y = get_batch(split)
            with ctx:
                losses.append(model(x, y)[1].item())
        out[split] = sum(losses) / len(losses)
    model.train()
    return out


def get_lr(it):
    if it < 100:
        return learning_rate * (it + 1) / 101
    return learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, it / max_iters))))


X, Y = get_batch("train")
t0 = time.time()
iter_num = local_iter_num = 0
running_mfu, best_val_loss = -1.0, 1e9
while True:
    for param_group in optimizer.param_groups:
        param_group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0 and master_process:
        with truth_file.phase("evaluation"):
            losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss:
            best_val_loss = losses["val"]
            if iter_num > 0:
                print(f"saving checkpoint to {out_dir}")
                with truth_file.phase("checkpoint"):
                    torch.save({"model": raw_model.state_dict(), "iter_num": iter_num}, f"{out_dir}/ckpt.pt")
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    if grad_clip != 0.0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if device_type == "cuda":
        loss.item()
    truth_file.step(gradient_accumulation_steps * batch_size)
    t1 = time.time()
    dt, t0 = t1 - t0, t1
    if iter_num % log_interval == 0 and master_process:
        lossf = loss.item() * gradient_accumulation_steps
        if local_iter_num >= 5:
            flops = 6 * sum(p.numel() for p in raw_model.parameters()) * tokens_per_iter / world_size
            mfu = flops / dt / 312e12
            running_mfu = mfu if running_mfu == -1.0 else 0.9 * running_mfu + 0.1 * mfu
        print(f"iter {iter_num}: loss {lossf:.4f}, time {dt * 1000:.2f}ms, mfu {running_mfu * 100:.2f}%")
    iter_num += 1
    local_iter_num += 1
    if iter_num > max_iters:
        break
if ddp:
    torch.distributed.destroy_process_group()
