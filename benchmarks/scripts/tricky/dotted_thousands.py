"""Numbers have dots between their thousands, as in German."""
# own: --batch-size 32 --num-workers 0

import argparse
import time

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--num-workers", type=int, default=0)
a = p.parse_args()
t = time.time()
n = 0
i = 0
g = lambda x, d=0: f"{x:,.{d}f}".replace(",", "_").replace(".", ",").replace("_", ".")
last = t
ln = 0
print("Lade Daten ...", flush=True)
while True:
    wait(20 / max(1, min(a.num_workers, 4)))
    burn(4)
    i += 1
    n += a.batch_size
    step(a.batch_size)
    if time.time() - last > 2:
        now = time.time()
        print(
            f"Schritt {g(i)} von 100.000 | {g(n)} Beispiele gesehen | Verlust {g(2 / (1 + i / 500), 3)} | {g((n - ln) / (now - last), 1)} Beispiele/s",
            flush=True,
        )
        last = now
        ln = n
