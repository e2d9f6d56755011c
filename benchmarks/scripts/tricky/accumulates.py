"""Each printed step is one of the optimizer, over several batches."""
# own: --batch-size 8 --grad-accum 8 --num-workers 0
# answer: 2

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--grad-accum", type=int, default=8)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
i = 0
s = 0
w = max(1, min(a.num_workers, 2))
print(f"effective batch {a.batch_size * a.grad_accum}", flush=True)
while s < 50000:
    for _ in range(a.grad_accum):
        wait((6 + a.batch_size * 1.0) / w)
        burn(3)
        step(a.batch_size)
        i += 1
    s += 1
    print(f"optimizer step {s}/50000 loss {1 / (1 + s / 100):.4f} lr 1e-4", flush=True)
