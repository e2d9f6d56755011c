"""Finds lines that look like progress although no `progress` pattern matches them. Pure."""

import re
from collections import deque
from collections.abc import Sequence

from tuner.probe.last_words import quoted

RECURS = 3
"""The number of lines with the same words, each with a number that has grown, that show progress."""

_FORMS = 100
_SHOWN = 3
_NUMBERS = 20
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LETTERS = re.compile(r"[^\W\d_]+")
_WORDS = re.compile(
    r"(?i)\b(?:iter(?:ation)?s?|(?:time|global|env)?_?steps?|epochs?|updates?|batch(?:es)?|samples?|fps|sps|loss)\b"
    r"|(?<![a-z])(?:it/s|s/it)\b"
)


class Unmatched:
    """Collects lines that look like progress."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, list[float]]] = {}
        """The words of a line → how often one of its numbers has grown, and its numbers of last time."""
        self._last: deque[str] = deque(maxlen=_SHOWN)
        self._sure = False

    @property
    def lines(self) -> Sequence[str]:
        """The last lines that look like progress. Empty until lines clearly show progress."""
        return list(self._last) if self._sure else []

    def feed(self, text: str) -> None:
        """Consider a line that no pattern has matched."""
        if not _WORDS.search(text):
            return
        words = " ".join(_LETTERS.findall(text))
        numbers = [float(number) for number in _NUMBER.findall(text)[:_NUMBERS]]
        if words not in self._seen and len(self._seen) >= _FORMS:
            return
        count, before = self._seen.get(words, (1, []))
        grown = any(now > last for now, last in zip(numbers, before, strict=False))
        self._seen[words] = count + grown, numbers
        self._sure = self._sure or self._seen[words][0] >= RECURS
        if numbers:
            self._last.append(quoted(text.strip()))
