"""The count is of micro-steps, and each eighth takes longer."""
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
ACC = 8
i = 0
while True:
    wait(25 / w)
    burn(3)
    i += 1
    step(B)
    if i % ACC == 0:
        wait(120)  # the optimizer's step
    if i % 4 == 0:
        print(f"micro step {i}/400000 | update {i // ACC} | loss {3 / (1 + i / 900):.3f} | lr {1e-4:.2e}", flush=True)
