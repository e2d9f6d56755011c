"""The batch grows by itself, and each line prints it."""
# own: --batch-size 16 --num-workers 0
# answer: 1

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=16)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
b = a.batch_size
i = 0  # grows the batch each 60 steps, as GPT-3 did; prints it on each line
while True:
    if i and i % 60 == 0 and b < 256:
        b += a.batch_size
    wait(2.0 * b / max(1, min(a.num_workers, 4)))
    burn(4)
    i += 1
    step(b)
    if i % 5 == 0:
        print(f"iter {i} bs {b} loss {1 / (1 + i / 500):.4f}", flush=True)
