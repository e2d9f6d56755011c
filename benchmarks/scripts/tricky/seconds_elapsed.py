"""Lines begin with the seconds since the start."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse
import random
import time
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
t = time.time()
last = 0
i = 0
while True:  # whole seconds since the start, then the loss
    wait(40 / w)
    burn(4)
    i += 1
    step(B)
    n = int(time.time() - t)
    if n > last:
        last = n
        print(f"{n:6d}  {2 / (1 + i / 500):.4f}  {random.random():.3f}", flush=True)
