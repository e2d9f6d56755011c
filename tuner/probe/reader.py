"""Progress marks from what a trainer writes: printed lines or the JSON-lines file of `tuner.progress`."""

import json
import re
from typing import Any, TypeVar

from tuner.probe.counts import MOST, MOST_ITERATIONS, Unwrapped, number, whole_numeral
from tuner.probe.plan import LinePatterns
from tuner.probe.protocols import Line
from tuner.probe.result import Progress, Thin

N = TypeVar("N", int, float)


class ProgressReader:
    """Turns lines into marks; what is not a finite, growing count is no mark, or unknown beside the iteration.

    `origin_s` is the monotonic time at which the probe's clock reads 0.
    """

    def __init__(self, patterns: LinePatterns, origin_s: float) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns.patterns]
        self._origin_s = origin_s
        self._partial: dict[str, str] = {}
        self._unwrapped: dict[tuple[str | None, str], Unwrapped] = {}
        self.matched = 0
        """How often a printed line has matched a pattern."""
        self._highest: dict[tuple[int | None, str], float] = {}

    def feed(self, line: Line) -> Progress | None:
        """Return the mark that this line completes, if it completes one."""
        fields = record(line.text) if line.stream == "progress" else self._over_epochs(self._printed(line.text))
        rank = _count(fields.get("rank"))
        if rank is None and fields.get("rank") is not None:
            return None
        before = self._highest.get((rank, "iteration"), -1)
        iteration = self._grown(rank, "iteration", _count(fields.get("iteration"), MOST_ITERATIONS))
        if iteration is None or iteration == before:
            return None
        began_s = self._highest.get((rank, "t_s"), 0.0)
        t_s = self._time_s(rank, number(fields.get("t_s")), line)
        return Progress(
            iteration=iteration,
            rank=rank,
            samples=self._grown(rank, "samples", _count(fields.get("samples"))),
            busy_s=self._grown(rank, "busy_s", number(fields.get("busy_s"))),
            alloc_retries=self._grown(rank, "alloc_retries", _count(fields.get("alloc_retries"))),
            t_s=t_s,
            thin=self._thin(number(fields.get("thin_from_s")), number(fields.get("thin_by")), began_s, t_s),
        )

    def _grown(self, rank: int | None, name: str, value: N | None) -> N | None:
        """Give a number that has not fallen below what its rank said before; one that has is unknown."""
        if value is None or value < self._highest.get((rank, name), 0):
            return None
        self._highest[rank, name] = value
        return value

    def _time_s(self, rank: int | None, stamp_s: float | None, line: Line) -> float:
        """Give the stamp on the probe's clock, or the time of reading where the stamp's clock stood still or jumped."""
        before_s = self._highest.get((rank, "t_s"), 0.0)
        own_s = None if stamp_s is None else stamp_s - self._origin_s
        t_s = own_s if own_s is not None and before_s < own_s <= line.t_s else line.t_s
        self._highest[rank, "t_s"] = t_s
        return t_s

    def _thin(self, stamp_s: float | None, by: float | None, began_s: float, t_s: float) -> Thin | None:
        """Give the thin part of the iteration between the two times; None where it does not lie in it."""
        if stamp_s is None or by is None or by <= 1:
            return None
        from_s = stamp_s - self._origin_s
        return Thin(from_s, by) if began_s <= from_s < t_s else None

    def _over_epochs(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Let printed counts go on where they start again with an epoch."""
        epoch = number(fields.get("epoch"))
        for name in ("iteration", "samples"):
            if (printed := number(fields.get(name))) is not None:
                unwrapped = self._unwrapped.setdefault((fields.get("rank"), name), Unwrapped())
                fields[name] = unwrapped(printed, epoch)
        return fields

    def _printed(self, text: str) -> dict[str, Any]:
        for pattern in self._patterns:
            if found := pattern.search(text):
                self.matched += 1
                groups = {name: found.span(name) for name, value in found.groupdict().items() if value is not None}
                self._partial |= {name: whole_numeral(text, *span) for name, span in groups.items()}
                if pattern is self._patterns[-1]:
                    whole, self._partial = self._partial, {}
                    return whole
        return {}


def record(text: str) -> dict[str, Any]:
    """Give the JSON object that a line of the progress file holds; an empty one where it holds none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(value: object, most: float = MOST) -> int | None:
    found = number(value, most)
    return None if found is None else int(found)
