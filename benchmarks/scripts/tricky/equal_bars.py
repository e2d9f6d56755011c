"""Training and validation have bars of one length and no name."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse

from tools import burn, step, wait
from tqdm import tqdm

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
while True:
    for _ in tqdm(range(50)):
        wait(80 / w)
        burn(8)
        step(a.batch_size)
    for _ in tqdm(range(50)):
        wait(20)
        burn(2)
