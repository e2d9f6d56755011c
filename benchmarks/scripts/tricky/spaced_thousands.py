"""Numbers have spaces between their thousands, as in French."""
# own: --batch-size 32 --num-workers 0

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
g = lambda x: f"{x:,}".replace(",", " ")
n = i = 0
while i < 200000:
    wait(20 / max(1, min(a.num_workers, 4)))
    burn(4)
    i += 1
    n += a.batch_size
    step(a.batch_size)
    if i % 25 == 0:
        print(f"step {g(i)}/{g(200000)}  samples {g(n)}  loss {2 / (1 + i / 500):.3f}", flush=True)
