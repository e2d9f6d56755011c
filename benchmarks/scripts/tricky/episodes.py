"""A line for each episode, of any length."""
# own: --num-envs 8 --env-workers 0
# answer: 1
# options: --free-batch

import argparse
import random

from tools import burn, step, wait

p = argparse.ArgumentParser()
p.add_argument("--num-envs", type=int, default=8)
p.add_argument("--env-workers", type=int, default=0)
a = p.parse_args()
r = random.Random(1)
L = [r.randint(20, 200) for _ in range(a.num_envs)]
c = [0] * a.num_envs
e = 0
t = 0
while True:
    wait(8 + 1.0 * a.num_envs / max(1, min(a.env_workers, 4)))
    burn(2)
    step(a.num_envs)
    t += 1
    for j in range(a.num_envs):
        c[j] += 1
        if c[j] >= L[j]:
            e += 1
            print(f"episode {e:5d}  step {t}  return {r.random() * 100:7.2f}  length {c[j]}", flush=True)
            c[j] = 0
            L[j] = r.randint(20, 200)
