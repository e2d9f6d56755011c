"""A line of its own says when the batch doubles."""
# own: --batch-size 16 --num-workers 0
# answer: 1

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=16)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
b = a.batch_size
i = 0
while True:
    if i in (150, 300):
        b *= 2
        print(f"*** batch size is now {b}", flush=True)
    wait(2.0 * b / max(1, min(a.num_workers, 4)))
    burn(4)
    i += 1
    step(b)
    if i % 5 == 0:
        print(f"iter {i} loss {1 / (1 + i / 500):.4f}", flush=True)
