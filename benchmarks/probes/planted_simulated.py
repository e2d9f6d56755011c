"""Simulates verifications whose runs differ by a known scatter, and prints how often they see which slowdown.

python -m benchmarks.probes.planted_simulated [--count 2000]
"""

import argparse
from random import Random
from statistics import fmean
from typing import NamedTuple

from tuner.probe import Quantity
from tuner.tools.verifying import Slowdown, scatter

SCATTERS = (0.002, 0.003, 0.005, 0.01, 0.02)
"""The standard deviations of runs, as shares of their speed."""
SLOWDOWNS = (0.0, 0.03, 0.05, 0.10)
MOST_ROUNDS = 6
"""As many rounds as four minutes hold, of two runs of 20 s."""


class Simulated(NamedTuple):
    """How a verification ended."""

    alarms: bool
    rounds: int


def simulated(rng: Random, share: float, slowdown: float, readings: int) -> Simulated:
    """Return how a verification ends whose study has so many readings of the best."""
    then = Quantity(fmean(rng.gauss(1.0, share) for _ in range(readings)), 0.001)
    own: list[Quantity] = []
    best: list[Quantity] = []
    while True:
        own.append(Quantity(rng.gauss(1.0, share), 0.001))
        best.append(Quantity(rng.gauss(1.0 - slowdown, share), 0.001))
        if len(best) > 1:
            shown = Slowdown.of(best, then, readings, scatter([own, best]))
            if shown.is_precise or len(best) >= MOST_ROUNDS:
                return Simulated(shown.is_below(0.99), len(best))


def main() -> None:
    """Print a row for each scatter and number of readings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="of verifications for each number")
    count = parser.parse_args().count
    for readings in (1, 2):
        for share in SCATTERS:
            ends = {
                slower: [simulated(Random(seed), share, slower, readings) for seed in range(count)]
                for slower in SLOWDOWNS
            }
            seen = ", ".join(f"{slower:.0%}: {fmean(end.alarms for end in each):.1%}" for slower, each in ends.items())
            rounds = fmean(end.rounds for each in ends.values() for end in each)
            print(f"{readings} reading(s), scatter {share:.1%}, {rounds:.1f} rounds: alarms at {seen}")


if __name__ == "__main__":
    main()
