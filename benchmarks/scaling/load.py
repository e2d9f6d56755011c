"""A second load on one device: matrix products without a pause, until the time is over.

python -m benchmarks.scaling.load --device cuda:0 --seconds 120
"""

import argparse
import sys
import time

import torch

GPU_SIDE, CPU_SIDE = 4096, 512
BETWEEN_LOOKS = 20
"""The products between two looks at the clock: a tenth of a second of work on an H200."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling.load")
    parser.add_argument("--device", type=torch.device, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    on_gpu = given.device.type == "cuda"
    torch.set_num_threads(1)
    side = GPU_SIDE if on_gpu else CPU_SIDE
    left, right, product = (torch.randn(side, side, device=given.device) for _ in range(3))
    end_s, products = time.monotonic() + given.seconds, 0
    sys.stdout.write("working\n")
    sys.stdout.flush()
    while time.monotonic() < end_s:
        for _ in range(BETWEEN_LOOKS):
            torch.mm(left, right, out=product)
        if on_gpu:
            torch.cuda.synchronize(given.device)
        products += BETWEEN_LOOKS
    print(f"{products} products of {side} x {side} in {given.seconds:g} s")


if __name__ == "__main__":
    main()
