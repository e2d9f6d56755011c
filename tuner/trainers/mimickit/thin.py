"""Makes an iteration run only some of its updates: all updates are alike, so some show how busy all keep a device.

With 40 epochs, pi_plus spends 60 to 95 % of an iteration on updates. On an H200 a quarter of the updates took a quarter
of the time, at the same utilisation (`benchmarks/results/measurement.md`). The driver loads this file from its own
folder.
"""

import math
import time
from collections.abc import Callable
from typing import Any

LEAST_S = 3.0
"""Each iteration runs updates for at least this many seconds.

The first and the last 0.2 s of the updates show no measurement of their own. With 1.5 s, these ends alone gave errors
of 2 to 5 points of utilisation on an H200, however many iterations ran.
"""
LEAST_SHARE_OF_REST = 0.5
"""Each iteration runs updates for at least this share of the rest of the iteration's time."""
LEAST_PARTS = 2
"""Each iteration after the first runs at least this many parts of its updates.

The first iteration runs a single part. Two different numbers of parts show whether updates grow with the parts.
"""
MOST_FOR_ONE = 10
"""A second of updates stands for at most this many seconds of training: what its two ends add counts as often."""
MOST_SHARE = 2 / 3
"""An iteration that needs more than this share of its updates runs all of them."""


class Thinning:
    """Decides what share of its updates an agent makes in each iteration: the same share of the epochs of each network.

    The first iteration makes the smallest share. Each later share follows from the time of the iteration before.
    """

    def __init__(self, agent: Any, *, wanted: bool, now: Callable[[], float] = time.monotonic) -> None:
        """The agent makes all updates unless thinning is `wanted`; `now` returns the seconds of a monotonic clock."""
        self._now = now
        epochs = {name: count for name, count in vars(agent).items() if name.endswith("_epochs")}
        thinnable = wanted and all(isinstance(count, int) for count in epochs.values())
        self._parts = (math.gcd(*epochs.values()) or 1) if thinnable else 1
        """The number of equal parts into which all updates can be divided."""
        self._agent, self._each = agent, {name: count // self._parts for name, count in epochs.items()}
        self._updates_of_a_part: float | None = None
        self._goes_by_parts = True
        self._rest_s, self._updates = 0.0, 0
        self._began_s = self._ended_s = now()
        self.take(1)

    def take(self, parts: int) -> None:
        """Run this many parts of the updates from now on."""
        self._taken = parts
        for name, count in self._each.items():
            setattr(self._agent, name, count * parts)

    def begin(self, updates: int) -> None:
        """Note that this iteration's updates begin now; `updates` counts those of all iterations before."""
        self._updates, self._began_s = updates, self._now()
        self._rest_s = self._began_s - self._ended_s

    def end(self, updates: int) -> None:
        """Note that this iteration's updates end now; `updates` counts all updates up to here."""
        self._ended_s = self._now()
        of_a_part = (updates - self._updates) / self._taken
        self._goes_by_parts &= self._updates_of_a_part in {None, of_a_part}
        self._updates_of_a_part = of_a_part

    def enough(self) -> int:
        """Return how many parts the next iteration should run."""
        wanted_s = max(LEAST_S, LEAST_SHARE_OF_REST * self._rest_s)
        least = max(LEAST_PARTS, math.ceil(self._parts / MOST_FOR_ONE))
        parts = max(least, math.ceil(self._taken * wanted_s / (self._ended_s - self._began_s)))
        return parts if self._goes_by_parts and parts <= MOST_SHARE * self._parts else self._parts

    def report_fields(self) -> dict[str, float]:
        """Return the fields of a report that describe this iteration's updates."""
        by = self._parts / self._taken
        return {"thin_from_s": self._began_s, "thin_by": by} if self._goes_by_parts and by > 1 else {}
