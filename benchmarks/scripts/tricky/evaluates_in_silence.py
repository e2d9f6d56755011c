"""Each evaluation prints nothing for 14 seconds."""
# own: --batch-size 32 --num-workers 0

import argparse

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
w = max(1, min(a.num_workers, 4))
i = 0
while True:
    wait(40 / w)
    burn(4)
    i += 1
    step(a.batch_size)
    if i % 10 == 0:
        print(f"iter {i} samples {i * a.batch_size}", flush=True)
    if i % 300 == 0:
        print("evaluating ...", flush=True)
        wait(14000)
        print(f"val acc {1 - 1 / (1 + i / 500):.3f}", flush=True)
