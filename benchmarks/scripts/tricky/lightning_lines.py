"""Bars as Lightning draws them, with validation in between."""
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
N = 30
e = 0
while True:
    t = time.time()
    for b in range(1, N + 1):
        wait(50 / w)
        burn(4)
        step(B)
        d = time.time() - t
        sys.stdout.write(
            f"\rEpoch {e}: {100 * b // N:3d}%|{'█' * (10 * b // N):10s}| {b}/{N} [00:{int(d):02d}<00:{int(d / b * (N - b)):02d}, {b / d:5.2f}it/s, v_num=0, train_loss=0.{b:03d}]"
        )
        sys.stdout.flush()
    for b in range(1, 21):
        wait(60)
        sys.stdout.write(f"\rValidation DataLoader 0: {5 * b:3d}%|{'█' * (b // 2):10s}| {b}/20 [00:01<00:00, 16.2it/s]")
        sys.stdout.flush()
    e += 1
    sys.stdout.write("\n")
