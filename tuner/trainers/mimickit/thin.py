"""Has an iteration make but some of its updates: all are alike, and some tell how all of them keep a device busy.

With 40 epochs pi_plus spends 60 to 95 % of an iteration on updates; a quarter of them took a quarter of the time on an
H200, at the same utilisation (`benchmarks/results/thin.md`). Loaded by the driver, from beside it.
"""

import math
import time
from typing import Any

LEAST_S = 1.5
"""Seconds of updates that each iteration makes at least: some readings of what they keep busy."""
LEAST_SHARE_OF_REST = 0.5
"""The same, as a share of the iteration's other time."""
LEAST_PARTS = 2
"""The same, in parts: the first iteration makes one, and two numbers of parts show whether updates go by parts."""
MOST_SHARE = 2 / 3
"""Of its updates; an iteration that needs more makes all of them."""


class Thinning:
    """How much of its updates an agent makes in each iteration: the same share of the epochs of all that it learns.

    The first iteration makes the least there is, the next ones what is enough, as the one before took its time.
    """

    def __init__(self, agent: Any, *, wanted: bool) -> None:
        """All updates are made unless it is `wanted`."""
        epochs = {name: count for name, count in vars(agent).items() if name.endswith("_epochs")}
        thinnable = wanted and all(isinstance(count, int) for count in epochs.values())
        self._parts = (math.gcd(*epochs.values()) or 1) if thinnable else 1
        """Equal parts that all updates come in."""
        self._agent, self._each = agent, {name: count // self._parts for name, count in epochs.items()}
        self._updates_of_a_part: float | None = None
        self._goes_by_parts = True
        self._rest_s, self._updates = 0.0, 0
        self._began_s = self._ended_s = time.monotonic()
        self.take(1)

    def take(self, parts: int) -> None:
        """Make so many parts of them from now on."""
        self._taken = parts
        for name, count in self._each.items():
            setattr(self._agent, name, count * parts)

    def begin(self, updates: int) -> None:
        """Take note that this iteration's updates begin now, after so many in all."""
        self._updates, self._began_s = updates, time.monotonic()
        self._rest_s = self._began_s - self._ended_s

    def end(self, updates: int) -> None:
        """Take note that they end now."""
        self._ended_s = time.monotonic()
        of_a_part = (updates - self._updates) / self._taken
        self._goes_by_parts &= self._updates_of_a_part in {None, of_a_part}
        self._updates_of_a_part = of_a_part

    def enough(self) -> int:
        """Give how many parts the next iteration should make."""
        wanted_s = max(LEAST_S, LEAST_SHARE_OF_REST * self._rest_s)
        parts = max(LEAST_PARTS, math.ceil(self._taken * wanted_s / (self._ended_s - self._began_s)))
        return parts if self._goes_by_parts and parts <= MOST_SHARE * self._parts else self._parts

    def told(self) -> dict[str, float]:
        """Give what a report tells of this iteration's updates."""
        by = self._parts / self._taken
        return {"thin_from_s": self._began_s, "thin_by": by} if self._goes_by_parts and by > 1 else {}
