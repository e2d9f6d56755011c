"""Finds lines that look like progress although no `progress` pattern matches them. Pure."""

import re
from collections import deque
from collections.abc import Sequence

from tuner.probe.last_words import quoted

RECURS = 3
"""The number of lines of one form, with a growing number in them, that show progress."""
PATIENCE_S = 60.0
"""The seconds after which a probe ends if such lines come but no pattern has matched.

Without this limit, a wrong pattern would cost the whole time limit of the probe. The limit is long enough for a pattern
that matches one line per epoch.
"""

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
        """The time at which lines first clearly showed progress; None until then."""

    @property
    def lines(self) -> Sequence[str]:
        """The last lines that look like progress. Empty until lines clearly show progress."""
        return [] if self.since_s is None else list(self._last)

    def feed(self, text: str, t_s: float) -> None:
        """Consider a line that no pattern has matched."""
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
