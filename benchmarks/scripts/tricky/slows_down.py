"""All losses are averaged at each step, so steps become ever slower."""
# own: --batch-size 32 --num-workers 0

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
i = 0  # the list of all losses is averaged at each step: ever slower
while True:
    wait(30 / w + 0.1 * i)
    burn(2)
    i += 1
    step(a.batch_size)
    if i % 5 == 0:
        print(f"iter {i} samples {i * a.batch_size}", flush=True)
