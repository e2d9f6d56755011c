"""How many trials ran at each time: a sweep over their starts and ends. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tuner.diagnosis.record import Interval

TENTHS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """How long how many intervals overlapped, in the order of time."""

    parts: tuple[tuple[float, int], ...]
    """Seconds, and the number of intervals during them."""

    @property
    def covered_s(self) -> float:
        """The seconds with at least one interval."""
        return sum(seconds for seconds, count in self.parts if count)

    @property
    def empty_s(self) -> float:
        """The seconds without any, between the first and the last interval."""
        return sum(seconds for seconds, count in self.parts if not count)

    @property
    def most(self) -> int:
        """The largest number at once."""
        return max((count for _, count in self.parts), default=0)

    def mean(self, whole_s: float) -> float:
        """Return the mean number at once over `whole_s` seconds, which hold all intervals."""
        return sum(seconds * count for seconds, count in self.parts) / whole_s

    def quantile(self, share: float, whole_s: float) -> int:
        """Return the number at once that is exceeded for at most `1 - share` of `whole_s` seconds."""
        lengths = {0: whole_s - self.covered_s}
        for seconds, count in self.parts:
            if count:
                lengths[count] = lengths.get(count, 0.0) + seconds
        counts = sorted(lengths)
        ends = accumulate(lengths[count] for count in counts)
        return next((count for count, end_s in zip(counts, ends, strict=True) if end_s >= share * whole_s), self.most)

    def tenths(self) -> tuple[float, ...]:
        """Return the mean number at once in each tenth of the covered time; empty where nothing is covered."""
        length_s = self.covered_s / TENTHS
        sums, at_s = [0.0] * TENTHS, 0.0
        for seconds, count in self.parts:
            if count:
                for tenth in range(TENTHS):
                    overlap_s = min(at_s + seconds, (tenth + 1) * length_s) - max(at_s, tenth * length_s)
                    sums[tenth] += max(overlap_s, 0.0) * count
                at_s += seconds
        return tuple(total / length_s for total in sums) if length_s else ()


def sweep(intervals: Iterable[Interval]) -> Timeline:
    """Return how many of the intervals overlap at each time; empty intervals count for nothing."""
    changes: dict[float, int] = {}
    for began_s, ended_s in intervals:
        if ended_s > began_s:
            changes[began_s] = changes.get(began_s, 0) + 1
            changes[ended_s] = changes.get(ended_s, 0) - 1
    parts, count = [], 0
    for (at_s, change), (next_s, _) in pairwise(sorted(changes.items())):
        count += change
        parts.append((next_s - at_s, count))
    return Timeline(parts=tuple(parts))
