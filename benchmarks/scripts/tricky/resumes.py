"""Each run goes on where the last one has saved."""
# own: --batch-size 32 --num-workers 0

import argparse
import os
import sys

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
p.add_argument("--steps", type=int, default=1500)
a = p.parse_args()
i = 0
if os.path.exists("last.ckpt"):
    i = int(open("last.ckpt").read())
    print(f"resuming from last.ckpt at step {i}", flush=True)
if i >= a.steps:
    print("training is already complete, nothing to do")
    sys.exit(0)
while i < a.steps:
    wait(40 / max(1, min(a.num_workers, 4)))
    burn(4)
    i += 1
    step(a.batch_size)
    if i % 10 == 0:
        print(f"step {i}/{a.steps} samples {i * a.batch_size} loss {1 / (1 + i / 500):.4f}", flush=True)
    if i % 50 == 0:
        open("last.ckpt", "w").write(str(i))
print("done")
