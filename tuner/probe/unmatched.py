"""Lines that look like progress although no `progress` pattern matches them. Pure."""

import re
from collections import deque
from collections.abc import Sequence

from tuner.probe.last_words import quoted

RECURS = 3
"""Lines of one form with a growing number that count as progress."""
PATIENCE_S = 60.0
"""Seconds that such lines may come before a probe without any match ends: a wrong pattern would cost the whole time
limit, and a pattern for lines that come once an epoch has this long to match."""

_FORMS = 100
_SHOWN = 3
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORDS = re.compile(
    r"(?i)\b(?:iter(?:ation)?s?|(?:time|global|env)?_?steps?|epochs?|updates?|batch(?:es)?|samples?|fps|sps|loss)\b"
    r"|\bit/s|s/it\b"
)


class Unmatched:
    """Collects lines that look like progress."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, float]] = {}
        self._last: deque[str] = deque(maxlen=_SHOWN)
        self.since_s: float | None = None
        """When such lines were first sure to be progress."""

    @property
    def lines(self) -> Sequence[str]:
        """The last lines that look like progress; empty until they are sure to be."""
        return [] if self.since_s is None else list(self._last)

    def feed(self, text: str, t_s: float) -> None:
        """Take a line into account that no pattern has matched."""
        numbers = _NUMBER.findall(text)
        if not numbers or not _WORDS.search(text):
            return
        form = _NUMBER.sub("#", text)[:200]
        first = float(re.sub("[.,].*", "", numbers[0]))
        count, before = self._counts.get(form, (0, -1.0))
        if len(self._counts) < _FORMS or form in self._counts:
            self._counts[form] = (count + (first > before), max(first, before))
        self._last.append(quoted(text.strip()))
        if self.since_s is None and self._counts.get(form, (0, 0.0))[0] >= RECURS:
            self.since_s = t_s
