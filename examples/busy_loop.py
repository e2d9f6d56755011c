"""A stand-in for a training script: it works for a while on each batch, waits for the next, and prints a line.

It needs no library and no GPU, so it shows what tuner does with a script in a minute. Workers shorten the wait.
"""

import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--steps", type=int, default=100_000)
args = parser.parse_args()

for step in range(1, args.steps + 1):
    time.sleep(0.08 / (1 + args.num_workers))
    end = time.process_time() + 0.001 * args.batch_size
    while time.process_time() < end:
        pass
    print(f"step {step}/{args.steps} samples {step * args.batch_size} loss {1 / step:.3f}", flush=True)
