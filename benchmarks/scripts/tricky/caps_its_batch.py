"""The batch is at most 48, whatever is typed."""
# own: --batch-size 32 --num-workers 0
# answer: 1
# options: --free-batch

import argparse

from tools import burn, step, wait
from tqdm import tqdm

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
bs = min(a.batch_size, 48)  # what fits into the old card
for e in range(100):
    for _ in tqdm(range(60000 // bs), desc=f"epoch {e}"):
        wait(1.0 * bs / max(1, min(a.num_workers, 2)))
        burn(4)
        step(bs)
