"""A training whose step is made slower by a known factor: it sleeps, computes, or multiplies on a card.

`--workers` is what a search varies: the same work takes less time with more of them.
"""

import argparse
import time

FACTOR = 1.0
"""How many times as long a step takes as before; the benchmark plants another one."""
STEP_S = 0.05
"""The length of a step that sleeps."""
LOOPS = 2_000_000
"""The loops of a step that computes."""
PRODUCTS = 100
"""The products of two matrices in a step on a card."""


def sleeping(workers: int) -> None:
    """Sleep so that each step ends at its own time, whatever the steps before it took."""
    due_s = time.monotonic()
    for step in range(10**9):
        due_s += FACTOR * STEP_S / workers
        time.sleep(max(0.0, due_s - time.monotonic()))
        print(f"step {step} samples {8 * (step + 1)}", flush=True)


def computing(workers: int) -> None:
    """Count in Python."""
    for step in range(10**9):
        total = 0
        for number in range(round(FACTOR * LOOPS / workers)):
            total += number
        print(f"step {step} samples {8 * (step + 1)}", flush=True)


def multiplying(workers: int) -> None:
    """Train a small model on a card, and multiply two matrices beside it, part by part."""
    import torch  # noqa: PLC0415 - only this kind of step needs it

    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    left, right = torch.randn(2, 2048, 2048, device="cuda")
    for step in range(10**9):
        batch = torch.randn(64, 512, device="cuda")
        with torch.no_grad():
            for _ in range(round(FACTOR * PRODUCTS)):
                for part in left.chunk(4 // workers**2):
                    _ = part @ right
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["sleeping", "computing", "multiplying"])
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    {"sleeping": sleeping, "computing": computing, "multiplying": multiplying}[args.kind](args.workers)
