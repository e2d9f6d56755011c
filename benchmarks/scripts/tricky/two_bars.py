"""Each epoch has a bar of preparation before that of training."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
from tqdm import tqdm

for e in tqdm(range(50), desc="epochs"):
    for b in tqdm(range(20), desc="load shards", leave=False):
        wait(60)
        burn(1)
    for b in tqdm(range(20), desc="train", leave=False):
        wait(60 / w)
        burn(4)
        step(a.batch_size)
