"""A small GPT on random tokens, as people write it: a plain PyTorch script with a batch size and four switches.

    python benchmarks/search/gpt.py --batch-size 32 --dtype bf16 --tf32 --compile blocks --fused

`gpt.yaml` beside this file is the study that records and searches it. `--compile model` compiles the whole model, and
`--compile blocks` one block for all layers, which takes a fraction of the time.
"""

import argparse
import contextlib
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Block(nn.Module):
    """One layer: attention over all earlier tokens, then a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens after this layer; both have the shape (batch, length, width)."""
        batch, length, width = tokens.shape
        split = self.queries_keys_values(self.before_attention(tokens)).split(width, dim=2)
        queries, keys, values = (
            one.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for one in split
        )
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        tokens = tokens + self.mixed(attended.transpose(1, 2).reshape(batch, length, width))
        return tokens + self.perceptron(self.before_perceptron(tokens))


class Gpt(nn.Module):
    """A language model; its loss is that of the next token."""

    def __init__(self, *, vocabulary: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch of token numbers, each of the shape (batch, length)."""
        tokens = self.words(inputs) + self.places.weight[: inputs.shape[1]]
        for block in self.blocks:
            tokens = block(tokens)
        logits = self.head(self.last(tokens))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--dtype", choices=("fp32", *DTYPES), default="fp32")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--compile", choices=("off", "blocks", "model"), default="off")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--steps", type=int, default=100_000)
    for name, default in (("layers", 8), ("width", 768), ("heads", 12), ("length", 256), ("vocabulary", 50_304)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def main() -> None:
    """Train, and print a line per step as nanoGPT does."""
    chosen = options()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    if chosen.tf32:
        torch.set_float32_matmul_precision("high")
    with torch.device(device):
        model = Gpt(
            vocabulary=chosen.vocabulary,
            length=chosen.length,
            width=chosen.width,
            layers=chosen.layers,
            heads=chosen.heads,
        )
        data = torch.randint(chosen.vocabulary, (1 << 20,))
    if chosen.compile == "blocks":
        for block in model.blocks:
            block.compile()
    elif chosen.compile == "model":
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=chosen.fused)
    scaler = torch.amp.GradScaler(device, enabled=chosen.dtype == "fp16")
    casts = torch.autocast(device, dtype=DTYPES[chosen.dtype]) if chosen.dtype in DTYPES else contextlib.nullcontext()
    around = torch.arange(chosen.length + 1, device=device)
    for step in range(chosen.steps):
        began_s = time.perf_counter()
        starts = torch.randint(len(data) - chosen.length - 1, (chosen.batch_size, 1), device=device)
        batch = data[starts + around]
        with casts:
            loss = model(batch[:, :-1], batch[:, 1:])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        shown = loss.item()
        print(f"iter {step}: loss {shown:.4f}, time {1e3 * (time.perf_counter() - began_s):.2f}ms", flush=True)


if __name__ == "__main__":
    main()
