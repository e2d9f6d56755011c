"""Data are slow in the first epoch, and in memory from then on."""
# own: --batch-size 32 --num-workers 0

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
N = 3200
n = 0
for e in range(1, 1000):
    for b in range(N // a.batch_size):
        if e == 1:
            wait(130 / max(1, a.num_workers))
        wait(10)
        burn(4)
        n += a.batch_size
        step(a.batch_size)
        if b % 5 == 4:
            print(f"epoch {e} batch {b + 1}/{N // a.batch_size} samples {n} loss {1 / (1 + n / 1e4):.4f}", flush=True)
