"""Lightning with DDP: a language model whose text is made and tokenised while it trains.

With the default of no worker processes, a GPU waits most of the time for its data. Without `--devices`, Lightning takes
all GPUs that it finds. It starts its ranks itself, also as a single task of SLURM: without `LightningEnvironment`, it
would take the task for its only rank.

python examples/lightning_ddp.py --devices 2 --batch-size 8 --num-workers 0
"""

import argparse
import random
import string
from itertools import pairwise

import lightning
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, WORD_LETTERS = 4096, 64
SIZES = {"cpu": (64, 2, 128), "cuda": (768, 8, 1024)}
"""The width, the layers and the length in tokens that suit a CPU rank and a GPU: 0.6 and 63 million parameters."""


def make_merges() -> dict[tuple[str, str], int]:
    """Return the pairs of pieces that are joined → their token; a pair with a smaller token is joined first."""
    draw = random.Random(0)
    letters = string.ascii_lowercase
    pairs = [(one, other) for one in letters for other in letters]
    draw.shuffle(pairs)
    known = [one + other for one, other in pairs]
    while len(pairs) < VOCABULARY - len(letters):
        pairs.append((draw.choice(known), draw.choice(known)))
    return {pair: token for token, pair in enumerate(dict.fromkeys(pairs), start=len(letters))}


class Tokenised(Dataset):
    """Texts that are made and tokenised by byte-pair encoding when they are asked for.

    That takes a CPU some milliseconds for each text of 1,024 tokens.
    """

    def __init__(self, length: int, tokens: int) -> None:
        self.length, self.tokens = length, tokens
        self.merges = make_merges()
        joined = {one + other: token for (one, other), token in self.merges.items()}
        self.vocabulary = joined | {letter: token for token, letter in enumerate(string.ascii_lowercase)}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        """Make the text of this index and return its tokens."""
        draw = random.Random(index)
        found: list[int] = []
        while len(found) <= self.tokens:
            word = draw.choices(string.ascii_lowercase, k=WORD_LETTERS)
            found += [self.vocabulary[piece] for piece in self.pieces(word)]
        return torch.tensor(found[: self.tokens + 1])

    def pieces(self, word: list[str]) -> list[str]:
        """Join the pair of neighbours that comes first among the merges, until no pair is left."""
        while True:
            ranks = [self.merges.get(pair, VOCABULARY) for pair in pairwise(word)]
            first = min(ranks, default=VOCABULARY)
            if first == VOCABULARY:
                return word
            place = ranks.index(first)
            word = [*word[:place], word[place] + word[place + 1], *word[place + 2 :]]


class LanguageModel(lightning.LightningModule):
    """A transformer that predicts the next token."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 32, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        """Return the loss of a batch of texts."""
        seen, wanted = batch[:, :-1], batch[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(seen.shape[1], device=seen.device)
        found = self.body(self.tokens(seen) + self.places, mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(found).flatten(0, 1), wanted.flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=3e-4)


def main() -> None:
    """Train; Lightning prints its own progress bar."""
    size = SIZES["cuda" if torch.cuda.is_available() else "cpu"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--devices", type=int, help="ranks, each on a GPU of its own where there are GPUs; default: all GPUs"
    )
    parser.add_argument("--batch-size", type=int, default=8, help="texts per rank and step")
    parser.add_argument("--num-workers", type=int, default=0, help="processes per rank that tokenise")
    parser.add_argument("--prefetch-factor", type=int, help="batches that each worker prepares ahead")
    parser.add_argument("--persistent-workers", "--persistent_workers", action="store_true")
    parser.add_argument("--width", type=int, default=size[0])
    parser.add_argument("--layers", type=int, default=size[1])
    parser.add_argument("--length", type=int, default=size[2], help="tokens per text")
    parser.add_argument("--samples", type=int, default=1_000_000, help="texts of an epoch")
    args = parser.parse_args()
    ranks = args.devices or torch.cuda.device_count() or 1
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(
        Tokenised(args.samples, args.length),
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        prefetch_factor=args.prefetch_factor if args.num_workers else None,
        persistent_workers=args.persistent_workers and args.num_workers > 0,
        pin_memory=torch.cuda.is_available(),
    )
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=args.devices or "auto",
        strategy="ddp" if ranks > 1 else "auto",
        plugins=[LightningEnvironment()],
        precision="bf16-mixed" if torch.cuda.is_available() else "32-true",
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(LanguageModel(args.width, args.layers, args.length), loader)


if __name__ == "__main__":
    main()
