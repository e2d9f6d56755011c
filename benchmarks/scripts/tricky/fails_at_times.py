"""One number of workers fails, and one hangs."""
# own: --batch-size 32 --num-workers 1

import argparse
import sys
import time

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=1)
a = p.parse_args()
if a.num_workers == 8:
    print("iter 1")
    sys.exit(1)
i = 0
while True:
    if a.num_workers == 4 and i == 60:
        time.sleep(100000)
    wait(40 / max(1, min(a.num_workers, 2)))
    burn(4)
    i += 1
    step(a.batch_size)
    if i % 10 == 0:
        sys.stdout.write(f"\riter {i} seen {i * a.batch_size} samples loss {1 / (1 + i / 500):.4f}")
        sys.stdout.flush()
