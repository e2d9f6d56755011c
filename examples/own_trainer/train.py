"""Stands for a training script: each rank computes for a while in each iteration and reports it to the tuner."""

import argparse
import itertools
import time

from tuner.progress import report


def main() -> None:
    """Train one task. More environments keep the device busy for a larger share of each iteration."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--iterations", type=int)
    given = parser.parse_args()
    share, began_s = given.envs / (given.envs + 16), time.monotonic()
    for iteration in range(given.iterations) if given.iterations else itertools.count():
        time.sleep(0.02)
        for rank in range(given.ranks):
            busy_s = share * (time.monotonic() - began_s)
            report(iteration=iteration, samples=24 * given.envs * (iteration + 1), rank=rank, busy_s=busy_s)


if __name__ == "__main__":
    main()
