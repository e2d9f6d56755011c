"""A queue makes the first batches fast."""
# own: --batch-size 32 --num-workers 0
# answer: 1

import argparse
import time
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
import multiprocessing as mp


def work(k, q, n):
    i = k
    while True:
        time.sleep(0.08)
        print(f"[worker {k}] batch {i} decoded", flush=True)
        q.put(i)
        i += n


if __name__ == "__main__":
    q = mp.Queue(maxsize=64)
    n = max(1, a.num_workers)
    for k in range(n):
        mp.Process(target=work, args=(k, q, n), daemon=True).start()
    i = 0
    while True:
        q.get()
        wait(30)
        burn(3)
        i += 1
        step(B)
        if i % 20 == 0:
            print(f"loss {1 / (1 + i / 500):.4f}", flush=True)
