"""The printed speed leaves out the wait for data."""
# own: --batch-size 64 --num-workers 0

import argparse
import time

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=64)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
t = 0
i = 0
while True:
    wait(60 / max(1, min(a.num_workers, 4)))
    s = time.time()
    burn(10)
    t += time.time() - s
    i += 1
    step(a.batch_size)
    if i % 20 == 0:
        print(f"Train: loss {1 / (1 + i / 500):.4f}  throughput {20 * a.batch_size / t:.1f} images/sec", flush=True)
        t = 0
