"""The batch is as many sentences as fit into a number of tokens."""
# own: --num-workers 0 --max-tokens 4096

import argparse
import random
import time
from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
p.add_argument("--max-tokens", type=int, default=4096)
a = p.parse_args()
B = a.batch_size
w = max(1, min(a.num_workers, 4))
r = random.Random(1)
M = a.max_tokens
u = 0
t = time.time()
tk = sq = 0
k = 0
while True:
    L = r.choice([40, 60, 90, 130, 200])
    b = max(1, M // L)
    wait(8 + b * L * 0.012 / w)
    burn(3)
    u += 1
    step(b)
    tk += b * L
    sq += b
    k += 1
    if u % 20 == 0:
        d = time.time() - t
        t = time.time()
        print(
            f"{time.strftime('%Y-%m-%d %H:%M:%S')} | INFO | train_inner | epoch 001:    {u} / 40000 loss={9 / (1 + u / 500):.3f}, ppl=88.1, wps={tk / d:.1f}, ups={k / d:.2f}, wpb={tk / k:.1f}, bsz={sq / k:.1f}, num_updates={u}, lr=0.0001, gnorm=1.2, train_wall={d:.0f}",
            flush=True,
        )
        tk = sq = k = 0
