"""The bar counts images, not steps."""
# own: --batch-size 32 --num-workers 0
# answer: 2

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
from tqdm import tqdm

for e in range(100):
    bar = tqdm(total=50000, unit="img", desc=f"Epoch {e + 1}")
    for s in range(0, 50000, a.batch_size):
        k = min(a.batch_size, 50000 - s)
        wait(20 / w)
        burn(4)
        step(k)
        bar.update(k)
    bar.close()
