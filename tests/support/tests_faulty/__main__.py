"""A trainer of two real processes with one fault: rank 0 is the main process, rank 1 its child.

The moment of the fault is written to `fault_at` in the out dir, in seconds of the monotonic clock.
"""

import argparse
import multiprocessing
import time
from functools import partial
from pathlib import Path

from tests.support.tests_faulty.rank import Rank
from tests.support.tests_faulty.strikes import STRIKES, Strike


def main() -> None:
    """Train with the fault that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", choices=STRIKES)
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--iteration-seconds", type=float, default=0.02)
    options = parser.parse_args()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    ranks = [Rank(number, options.out_dir, options.iteration_seconds, barrier) for number in range(2)]
    train = partial(_train, fault=STRIKES[options.fault], iterations=options.iterations)
    context.Process(target=train, args=(ranks[1],)).start()
    train(ranks[0])


def _train(rank: Rank, fault: Strike, iterations: int) -> None:
    def before(iteration: int) -> None:
        if rank.number in fault.ranks and iteration == fault.at:
            (rank.out_dir / "fault_at").write_text(str(time.monotonic()), encoding="ascii")
            fault.does(rank)

    rank.train(iterations, before)


if __name__ == "__main__":
    main()
