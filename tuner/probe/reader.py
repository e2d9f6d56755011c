"""Progress marks from what a trainer writes: printed lines or the JSON-lines file of `tuner.progress`."""

import json
import math
import re
from typing import Any

from tuner.probe.plan import LinePatterns
from tuner.probe.protocols import Line
from tuner.probe.result import Progress


class ProgressReader:
    """Turns lines into marks; what is not a finite, growing count is no mark.

    `origin_s` is the monotonic time at which the probe's clock reads 0.
    """

    def __init__(self, patterns: LinePatterns, origin_s: float) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns.patterns]
        self._origin_s = origin_s
        self._partial: dict[str, str] = {}
        self._last: dict[int | None, int] = {}

    def feed(self, line: Line) -> Progress | None:
        """Give the mark that this line completes, if it completes one."""
        fields = self._record(line.text) if line.stream == "progress" else self._printed(line.text)
        iteration = _count(fields.get("iteration"))
        rank = _count(fields.get("rank"))
        if iteration is None or iteration <= self._last.get(rank, -1):
            return None
        self._last[rank] = iteration
        stamp_s = _number(fields.get("t_s"))
        own_s = None if stamp_s is None else stamp_s - self._origin_s
        return Progress(
            iteration=iteration,
            rank=rank,
            samples=_count(fields.get("samples")),
            busy_s=_number(fields.get("busy_s")),
            alloc_retries=_count(fields.get("alloc_retries")),
            t_s=own_s if own_s is not None and 0 <= own_s <= line.t_s else line.t_s,
        )

    def _record(self, text: str) -> dict[str, Any]:
        try:
            record = json.loads(text)
        except ValueError:
            return {}
        return record if isinstance(record, dict) else {}

    def _printed(self, text: str) -> dict[str, Any]:
        for pattern in self._patterns:
            if found := pattern.search(text):
                self._partial |= {name: value for name, value in found.groupdict().items() if value is not None}
                if pattern is self._patterns[-1]:
                    whole, self._partial = self._partial, {}
                    return whole
        return {}


def _number(value: object) -> float | None:
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
