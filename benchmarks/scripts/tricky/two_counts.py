"""Two networks count their own steps."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
d = g = 0
while True:
    wait(20 / w)
    burn(3)
    d += 1
    step(B)
    if d % 5 == 0:
        wait(20)
        g += 1
    if d % 5 == 0:
        print(f"g_step {g} d_step {d} loss_d 0.{d % 100:02d} loss_g 0.{g % 100:02d}", flush=True)
