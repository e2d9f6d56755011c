"""The bar of an epoch counts its parts, not batches."""
# own: --batch-size 32 --num-workers 0
# answer: 1
# options: --free-batch

import argparse
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
N = 6400
e = 0
while True:  # twenty reports an epoch, whatever the batch
    e += 1
    n = N // B
    k = 0
    for b in range(n):
        wait(10 + 0.6 * B / w)
        burn(2)
        step(B)
        if (b + 1) * 20 // n > k:
            k = (b + 1) * 20 // n
            print(f"epoch {e} [{k}/20] loss {1 / (e + b / n):.4f}", flush=True)
