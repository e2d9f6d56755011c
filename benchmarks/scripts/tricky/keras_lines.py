"""Bars as Keras draws them."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse
import sys
import time
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
N = 1920
for e in range(1, 1000):
    print(f"Epoch {e}/1000")
    n = N // B
    t = time.time()
    for b in range(1, n + 1):
        wait(40 / w)
        burn(3)
        step(B)
        f = int(30 * b / n)
        d = time.time() - t
        bar = f"{b}/{n} [" + "=" * max(0, f - 1) + ">" + "." * (30 - f) + "]"
        sys.stdout.write(
            "\b" * 100
            + "\r"
            + f"{bar} - ETA: {int(d / b * (n - b))}s - loss: {1 / (1 + e):.4f} - accuracy: 0.5{b % 10}"
        )
        sys.stdout.flush()
    wait(900)
    sys.stdout.write(
        "\b" * 100
        + "\r"
        + f"{n}/{n} [{'=' * 30}] - {int(time.time() - t)}s {1000 * (time.time() - t) / n:.0f}ms/step - loss: 0.3 - val_loss: 0.4\n"
    )
