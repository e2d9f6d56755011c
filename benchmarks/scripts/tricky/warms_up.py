"""A warm-up prints the words of the training."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
for i in range(1, 401):  # fills the replay buffer with random actions; not training
    wait(30 / w)
    burn(2)
    if i % 10 == 0:
        print(f"step {i}/400 loss nan", flush=True)
for i in range(1, 100001):
    wait(30 / w)
    burn(2)
    wait(120)
    step(a.batch_size)
    if i % 10 == 0:
        print(f"step {i}/100000 loss {1 / (1 + i / 500):.4f}", flush=True)
