"""How often does memory stay below the bound of a soak? Simulated runs whose truth is known, ten times as long.

    python -m benchmarks.memory.held

A run has 300 steps, and its soak the first 30. Each step rises from a base by its batch, and the base may grow. Memory
is read ten times a second, as in a probe.
"""

import random
from collections.abc import Iterator
from statistics import median

from benchmarks.memory.series import summary
from tuner.search.lasting import PILING_UP, USUAL, lasts

STEPS, STEP_S, READ_S = 300, 0.25, 0.1
BASE_MIB, BATCH_MIB, TOTAL_MIB = 200.0, 60.0, 1000.0
LONGEST = 3.0
RUNS = 40
GROWTH_MIB = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""The growth of a step."""
KINDS = {
    "equal batches, told that nothing worse comes": (False, False, True),
    "equal batches": (False, False, False),
    "random lengths, the longest first": (True, True, True),
    "random lengths, not provoked": (True, False, False),
}
"""Kind of run → whether lengths are random, whether the longest comes first, whether the soak provokes the worst."""


def series(seed: int, grows_mib: float, *, lengths: bool, longest_first: bool) -> Iterator[tuple[float, float, float]]:
    """Yield the seconds, the memory in use and the largest so far, in MiB, of one run."""
    draw, most = random.Random(seed), 0.0
    for step in range(STEPS):
        length = min(LONGEST, draw.lognormvariate(-0.35, 0.55)) if lengths else 1.0
        length = LONGEST if longest_first and step < 3 else length
        low = BASE_MIB + grows_mib * step
        high = low + BATCH_MIB * length
        for read in range(int(STEP_S / READ_S)):
            used = low + (high - low) * max(0.0, draw.uniform(-0.4, 1.0))
            most = max(most, used)
            yield step * STEP_S + read * READ_S, used, most
        most = max(most, high)


def held(lengths: bool, longest_first: bool, provoked: bool, grows_mib: float) -> tuple[float, float]:
    """Return the share of runs that stayed below their bound, and the room above the truth in MiB, in the median."""
    room: list[float] = []
    for seed in range(RUNS):
        run = list(series(seed, grows_mib, lengths=lengths, longest_first=longest_first))
        expected = PILING_UP if provoked else USUAL
        found = lasts((summary(run, run[-1][0] / 10, TOTAL_MIB),), run[-1][0] / 3600, expected)
        if found:
            room.append(found.most_mib - max(most for _, _, most in run))
    return sum(one >= 0.0 for one in room) / len(room), median(room)


def main() -> None:
    """Print the table."""
    print(f"| run | {' | '.join(f'{grows:g} MiB a step' for grows in GROWTH_MIB)} |")
    print(f"|---|{'---|' * len(GROWTH_MIB)}")
    for name, (lengths, first, provoked) in KINDS.items():
        cells = [held(lengths, first, provoked, grows) for grows in GROWTH_MIB]
        print(f"| {name} | {' | '.join(f'{100 * share:.0f} %, {room:.0f}' for share, room in cells)} |")


if __name__ == "__main__":
    main()
