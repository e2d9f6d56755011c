"""Lines come in blocks of 8 KiB."""
# own: --batch-size 32 --num-workers 0

import argparse
import sys
import time

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
sys.stdout = open(1, "w", buffering=8192, closefd=False)
i = 0
while True:
    wait(20 / w)
    burn(4)
    i += 1
    step(a.batch_size)
    print(
        f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] iter: {i}  lr: 1.00e-04  loss: {1 / (1 + i / 500):.4f}  samples: {i * a.batch_size}"
    )
