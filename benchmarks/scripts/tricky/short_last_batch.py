"""The last batch of an epoch is short, and an epoch has few."""
# own: --batch-size 32 --num-workers 0
# answer: 1
# options: --free-batch

import argparse
import math
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
N = 600
E = 0  # a small data set: the last batch is what is left
from tqdm import tqdm
import math

for e in range(10000):
    for b in tqdm(range(math.ceil(N / B)), desc=f"Epoch {e}"):
        k = min(B, N - b * B)
        wait(20 + 1.5 * k / w)
        burn(3)
        step(k)
