"""No flag has an effect, and steps differ by a factor of thirty."""
# own: --batch-size 32 --num-workers 0

import argparse
import random

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
r = random.Random()
i = 0  # --num-workers has no effect at all; shared storage stalls now and then
while True:
    wait(10 * r.lognormvariate(0, 1.4))
    burn(4)
    i += 1
    step(a.batch_size)
    if i % 5 == 0:
        print(f"iter {i} samples {i * a.batch_size}", flush=True)
