"""A line comes every two seconds, numbered by lines."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse
import time
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
last = time.time()
h = 0
i = 0
while True:  # a line each two seconds, numbered by lines
    wait(40 / w)
    burn(4)
    i += 1
    step(B)
    if time.time() - last > 2:
        h += 1
        last = time.time()
        print(f"[heartbeat {h}] train loss {2 / (1 + i / 500):.4f}", flush=True)
