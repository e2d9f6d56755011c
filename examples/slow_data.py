"""A training that waits for its data: each record takes some milliseconds to arrive, as from a network disk.

python examples/slow_data.py --batch-size 32 --workers 0
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SlowRecords(Dataset):
    """Records that arrive `answer_ms` after they are asked for."""

    def __init__(self, answer_ms):
        self.answer_s = answer_ms / 1000.0

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        """Return a record and its label."""
        time.sleep(self.answer_s)
        return torch.full((64,), float(index % 7)), index % 2


def main():
    """Train until all epochs are over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch-factor", type=int, default=2)
    parser.add_argument("--answer-ms", type=float, default=5.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(
        SlowRecords(args.answer_ms),
        batch_size=args.batch_size,
        num_workers=args.workers,
        prefetch_factor=args.prefetch_factor if args.workers else None,
    )
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(network.parameters())
    for step, (records, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(network(records), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
