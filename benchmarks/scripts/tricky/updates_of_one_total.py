"""Each update has 256 samples, whatever fits at once."""
# own: --batch-size 32 --num-workers 0
# options: --free-batch

import argparse
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
G = 256
acc = max(1, G // B)
s = 0  # always 256 samples an update, whatever fits at once
while True:
    for _ in range(acc):
        wait(6 + 0.5 * B / w)
        burn(2)
        step(B)
    s += 1
    print(f"step {s}/20000 loss {1 / (1 + s / 100):.4f}", flush=True)
