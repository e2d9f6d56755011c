"""A second load on one card: matrix products without a pause, until the time is over.

python -m benchmarks.scaling.load --card 0 --seconds 120
"""

import argparse
import sys
import time

import torch

SIDE = 4096
BETWEEN_LOOKS = 20
"""The products between two looks at the clock: a tenth of a second of work on an H200."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling.load")
    parser.add_argument("--card", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    device = torch.device("cuda", given.card)
    left, right, product = (torch.randn(SIDE, SIDE, device=device) for _ in range(3))
    end_s, products = time.monotonic() + given.seconds, 0
    sys.stdout.write("working\n")
    sys.stdout.flush()
    while time.monotonic() < end_s:
        for _ in range(BETWEEN_LOOKS):
            torch.mm(left, right, out=product)
        torch.cuda.synchronize(device)
        products += BETWEEN_LOOKS
    print(f"{products} products of {SIDE} x {SIDE} in {given.seconds:g} s")


if __name__ == "__main__":
    main()
