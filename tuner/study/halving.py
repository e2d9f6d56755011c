"""The order in which to try values that stand in a row, so that few of them show most."""

import itertools


def halving(count: int, wanted: int) -> list[int]:
    """Return `wanted` of the indices 0 … count-1: the last, the first, then the middle of the widest gap each time."""
    chosen = [index for index in dict.fromkeys((count - 1, 0)) if 0 <= index < count][:wanted]
    while 2 <= len(chosen) < min(count, wanted):
        ordered = sorted(chosen)
        low, high = max(itertools.pairwise(ordered), key=lambda pair: (pair[1] - pair[0], pair[1]))
        chosen.append((low + high) // 2)
    return chosen
