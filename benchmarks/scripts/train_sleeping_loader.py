"""A loop in plain PyTorch with a bar of tqdm, whose samples come from a slow store: each one is waited for.

python train_sleeping_loader.py --batch-size 32 --workers 2 --epochs 3
"""

import argparse
import time

import torch
import truth_file
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm


class Store(Dataset):
    """Records of a store that answers after some milliseconds, now and then much later."""

    def __init__(self, count, answer_ms):
        self.count, self.answer_ms = count, answer_ms

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.answer_ms * (6 if index % 97 == 0 else 1) / 1000)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(256, generator=generator), index % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2, help="processes that ask the store")
    parser.add_argument("--prefetch-factor", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--records", type=int, default=4000, help="records of an epoch")
    parser.add_argument("--answer-ms", type=float, default=4.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        Store(args.records, args.answer_ms),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        prefetch_factor=args.prefetch_factor if args.workers else None,
    )
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        running, bar = 0.0, tqdm(loader, desc=f"Epoch {epoch + 1}/{args.epochs}")
        for step, (inputs, labels) in enumerate(bar, start=1):
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            truth_file.step(len(inputs))
            running += loss.item()
            bar.set_postfix(loss=f"{running / step:.4f}")


if __name__ == "__main__":
    main()
