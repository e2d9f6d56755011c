"""Tokens and tokens/s are rounded to K and M."""
# own: --batch-size 8 --seq-len 512 --num-workers 0

import argparse
import time

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--seq-len", type=int, default=512)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
i = tok = 0
t = time.time()
l = 0
while True:
    wait(70 / max(1, min(a.num_workers, 4)))
    burn(8)
    i += 1
    tok += a.batch_size * a.seq_len
    step(a.batch_size)
    if i % 10 == 0:
        d = time.time() - t
        print(
            f"\x1b[90m{time.strftime('%H:%M:%S')}\x1b[0m \x1b[32mINFO\x1b[0m it {i} | loss {9 / (1 + i / 500):.3f} | {tok / 1e6:.1f}M tok | {(tok - l) / d / 1e3:.1f}K tok/s | mfu 12.3%",
            flush=True,
        )
        t = time.time()
        l = tok
