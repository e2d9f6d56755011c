"""Each worker reads all data, so samples come several times."""
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
from tqdm import tqdm

N = 2400
L = N // B * max(1, a.num_workers)  # an IterableDataset that forgets get_worker_info: each worker yields all records
for e in range(1000):
    for b in tqdm(range(L), desc=f"epoch {e}"):
        wait(50 / w)
        burn(3)
        step(B / max(1, a.num_workers))
