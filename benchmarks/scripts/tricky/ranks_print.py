"""Two ranks print their own lines."""
# own: --batch-size 32 --num-workers 0 --nprocs 2
# answer: 1

import argparse
import multiprocessing as mp

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
p.add_argument("--nprocs", type=int, default=2)
a = p.parse_args()


def main(rank, bar):
    n = i = 0
    while i < 100000:
        wait(60 / max(1, min(a.num_workers, 4)))
        burn(4)
        bar.wait()
        i += 1
        n += a.batch_size
        if rank == 0:
            step(a.batch_size * a.nprocs)
        if i % 5 == 0:
            print(f"iter {i}/100000 samples {n} loss {1 / (1 + i / 500) + rank * 0.01:.4f}", flush=True)


if __name__ == "__main__":
    c = mp.get_context("fork")
    bar = c.Barrier(a.nprocs)
    P = [c.Process(target=main, args=(r, bar)) for r in range(a.nprocs)]
    [q.start() for q in P]
    [q.join() for q in P]
