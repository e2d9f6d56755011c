"""A critic takes several steps for each one of the generator."""
# own: --batch-size 64 --num-workers 0 --n-critic 3
# answer: 1

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=64)
p.add_argument("--num-workers", type=int, default=0)
p.add_argument("--n-critic", type=int, default=3)
a = p.parse_args()
i = 0
while True:
    i += 1
    for k in range(a.n_critic):
        wait(30 / max(1, min(a.num_workers, 4)))
        burn(3)
        step(a.batch_size)
        print(f"[D] iter {i} critic {k + 1}/{a.n_critic} loss_d {1 / (1 + i / 500):.4f}", flush=True)
    burn(6)
    print(f"[G] iter {i} loss_g {1 / (1 + i / 500):.4f}", flush=True)
