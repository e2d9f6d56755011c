"""Reads counts in the forms that trainers print, and continues counts that start again. Pure."""

import math
import re
from dataclasses import dataclass

MOST_ITERATIONS = 2**31 - 1
"""The largest iteration that is accepted. Databases store an iteration as a step of 32 bits."""
MOST = 2**53
"""The largest other number that is accepted. Up to this number, a float represents every whole number exactly."""
RESTART_DROP = 5
"""A count has started again if it falls by at least this much, to its first value or below.

A smaller drop is not a restart: when several ranks print, some of them lag behind by an iteration or two.
"""

LATE_SHARE, NEAR_END = 1 / 3, 0.9
"""An epoch has just begun until this share of the seconds of the epoch before is over. In this time a line is one of
the epoch before if its count is at least `NEAR_END` of the last count of that epoch."""

_END = re.compile(r"\s*(?:/|\bof\b)\s*(?P<end>\d[\d,_]*(?:\.\d+)?[kKMGB]?)(?![\d.])")
_NUMERAL = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKMGB](?![A-Za-z]))?")
_GROUPED = re.compile(r"\d{1,3}(?:[,_]\d{3})+")
_POWERS = {"k": "e3", "K": "e3", "M": "e6", "G": "e9", "B": "e9"}


def whole_numeral(line: str, begin: int, end: int) -> str:
    """Return the whole number in a line from `begin` on, of which a pattern may have matched only the first part.

    A pattern such as `\\d+` matches `12` of `12,800`, `1` of `1.28e+04` and `12` of `12.8K`.
    """
    found = _NUMERAL.match(line, begin)
    if found is None or found.end() <= end:
        return line[begin:end].rstrip(",.")  # what follows the number in a sentence
    text = found[0].rstrip(",_")
    whole = _GROUPED.match(text)
    if ("," in text or "_" in text) and (whole is None or re.search("[,_]", text[whole.end() :])):
        return line[begin:end]  # a list such as `3,4`
    return text


def number(value: object, most: float = MOST, *, least: float = 0.0) -> float | None:
    """Read a number that may be printed as `12,800`, `1.28e+04`, `12.8K` or `1.2M`.

    Returns None for a value that is not a number, is not finite, or is not between `least` and `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = _printed(value) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and least <= found <= most else None


def _printed(text: str) -> float:
    text = text.strip()
    power = _POWERS.get(text[-1:], "")
    plain = text[:-1] if power else text
    return float(_GROUPED.sub(lambda found: re.sub("[,_]", "", found[0]), plain) + power)


def printed_end(line: str, at: int) -> float | None:
    """Return the end of a count that a line prints right after it, as 100 in `12/100`; None where it prints none."""
    found = _END.match(line, at)
    return None if found is None else number(found["end"])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Epoch:
    """An epoch that is over."""

    number: float | None
    before: float
    """The count of all epochs before it."""
    last: float
    """The highest count that was printed in it."""
    seconds: float


class Unwrapped:
    """A count that continues when the printed count starts again, for example at a new epoch.

    Several ranks may print the same count. Then a rank may still print the end of an epoch after another rank has begun
    the next one, and each rank prints its own new start. Only the first start counts, and late lines count as lines of
    their own epoch.
    """

    def __init__(self, *, restart_drop: float = RESTART_DROP) -> None:
        """A count that falls by `restart_drop`, to its first value or below, has started again."""
        self._restart_drop = restart_drop
        self.epoch_ends: list[float] = []
        """The counts of the epochs that are over."""
        self.doubt: str | None = None
        """Why the count may be wrong: it has started again, and the output does not say that an epoch is over."""
        self._first: float | None = None
        self._last = 0.0
        self._steps: tuple[float, float] | None = None
        """The smallest and the largest step between two counts of this epoch."""
        self._end: float | None = None
        self._ends: list[float] = []
        """The printed ends of the epochs that are over."""
        self._before = 0.0
        self._epoch: float | None = None
        self._began_s = 0.0
        self._over: _Epoch | None = None

    def __call__(
        self, printed: float, t_s: float = 0.0, *, epoch: float | None = None, end: float | None = None
    ) -> float:
        """Return the count over all epochs for a line that was printed at `t_s`.

        `epoch` is the number of the epoch, and `end` the last count of an epoch, if the trainer prints them.
        """
        if self._first is None:
            self._first, self._last, self._began_s = printed, printed, t_s
        if self._over is not None and self._is_late(self._over, printed, t_s, epoch):
            return self._over.before + printed
        if self._starts_again(printed, t_s, epoch):
            self._over = _Epoch(number=self._epoch, before=self._before, last=self._last, seconds=t_s - self._began_s)
            if epoch is None and not self._reached_end(end):
                self.doubt = self.doubt or f"the count fell from {self._last:.0f} to {printed:.0f}"
            self.epoch_ends.append(self._whole_epoch())
            self._before += self.epoch_ends[-1]
            self._last, self._steps, self._began_s = printed, None, t_s
        if (step := printed - self._last) > 0:
            least, most = self._steps or (step, step)
            self._steps = min(least, step), max(most, step)
        self._first = min(self._first, printed)
        if printed >= self._last:
            self._last, self._end = printed, end
        self._epoch = self._epoch if epoch is None else epoch
        return self._before + printed

    def _starts_again(self, printed: float, t_s: float, epoch: float | None) -> bool:
        """Return whether this is the first line of a new epoch. Soon after a start, it is another rank's."""
        if epoch is not None and self._epoch is not None:
            return epoch > self._epoch and printed <= self._last
        has_grown = self._steps is not None  # before it has grown, another rank may lag behind
        deep = has_grown and self._last - printed >= self._restart_drop and printed <= (self._first or 0.0)
        return deep and (
            self._over is None or self._last >= self._over.last / 2 or not self._has_just_begun(self._over, t_s)
        )

    def _is_late(self, over: _Epoch, printed: float, t_s: float, epoch: float | None) -> bool:
        """Return whether this line is one of the epoch before: it prints the end of an epoch that has just begun."""
        if epoch is not None and over.number is not None:
            return epoch <= over.number
        return self._has_just_begun(over, t_s) and printed >= NEAR_END * over.last and self._last < over.last / 2

    def _has_just_begun(self, over: _Epoch, t_s: float) -> bool:
        return t_s - self._began_s < LATE_SHARE * over.seconds

    def _reached_end(self, end: float | None) -> bool:
        """Return whether the epoch has printed its last count, or the next count would be beyond it.

        Two ends that take turns are those of two bars, such as training and validation.
        """
        most = self._steps[1] if self._steps else 0.0
        if self._end is None or self._last < min(NEAR_END * self._end, self._end - most):
            return False
        self._ends.append(self._end)
        return end != self._ends[0] or len(set(self._ends)) == 1

    def _whole_epoch(self) -> float:
        """Return the iterations of the epoch that ends.

        The last line of an epoch may come before its end, as `[190/200]` if a trainer prints every tenth iteration.
        Without a printed end, a count from 0 has one more step.
        """
        least, most = self._steps or (0.0, 0.0)
        if self._end is not None and self._last <= self._end <= self._last + 2 * most:
            return self._end
        return self._last + (least if self._first == 0 and self._end is None else 0.0)
