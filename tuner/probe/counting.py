"""Reads printed counts, and continues those that start again at each epoch. Pure."""

import math
import re

MOST_ITERATIONS = 2**31 - 1
"""The largest iteration that is accepted. Databases store an iteration as a step of 32 bits."""
MOST = 2**53
"""The largest other number that is accepted. Up to this number, a float represents every whole number exactly."""

_END = re.compile(r"\s*(?:/|\bof\b)\s*(?P<end>\d[\d,_]*(?:\.\d+)?[kKMGB]?)(?![\d.])")
_NUMERAL = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKmMgGbBtT](?![A-Za-z]))?")
_GROUPED = re.compile(r"\d{1,3}(?:[,_\s]\d{3})+")
_POWERS = {"k": "e3", "K": "e3", "M": "e6", "G": "e9", "B": "e9"}


def numeral(line: str, begin: int, end: int) -> str:
    """Return the whole number in a line from `begin` on, of which a pattern may have matched only the part to `end`.

    A pattern such as `\\d+` matches `12` of `12,800`, `1` of `1.28e+04` and `12` of `12.8K`. A letter that may stand
    for a power, such as that of `1.8m`, is part of the number, too: `number` knows what it means, or refuses it.
    """
    match = _NUMERAL.match(line, begin)
    if match is None or match.end() <= end:
        return line[begin:end].rstrip(",.")  # what follows the number in a sentence
    text = match[0].rstrip(",_")
    is_list = re.search("[,_]", _GROUPED.sub("", text, count=1)) is not None  # such as `3,4`
    return line[begin:end] if is_list else text


def number(value: object, most: float = MOST, *, least: float = 0.0) -> float | None:
    """Return a number that may be printed as `12,800`, `12 800`, `1.28e+04`, `12.8K` or `1.2M`.

    Returns None for a value that is not a number, is not finite, or is not between `least` and `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = _parsed(value.strip()) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) and least <= result <= most else None


def _parsed(text: str) -> float:
    power = _POWERS.get(text[-1:], "")
    digits = text[:-1] if power else text
    return float(_GROUPED.sub(lambda match: re.sub(r"[,_\s]", "", match[0]), digits) + power)


def printed_end(line: str, at: int) -> float | None:
    """Return the end of a count that a line prints right after it, as 100 in `12/100`; None where it prints none."""
    match = _END.match(line, at)
    return None if match is None else number(match["end"])


def is_rounded(text: str) -> bool:
    """Return whether a count is printed with so few digits that steps are lost, as in `1K` or `1.2M`."""
    return text[-1:] in _POWERS and sum(map(str.isdecimal, text)) < 3


class EpochCounter:
    """Continues a count when the printed count starts again, for example at a new epoch.

    Bars are told apart by their ends. Lines of a bar that begins in the middle of the one that counts are left out.
    Where a bar of another end follows one that has come to its end, nothing says which of them trains.

    Several ranks may print the same count. Then a rank may still print the end of an epoch after another rank has begun
    the next one. Such late lines are left out.
    """

    NEAR_END = 0.9
    """A count has come to its end from this share of it on: the last steps may not be printed."""

    def __init__(self, *, restart_drop: float = 5) -> None:
        """A count that falls by `restart_drop`, to its first value or below, has started again.

        A smaller drop is not a restart: when several ranks print, some of them lag behind by an iteration or two.
        """
        self._restart_drop = restart_drop
        self.epoch_ends: list[float] = []
        """The counts of the epochs that are over."""
        self.doubt: str | None = None
        """Why the count may be wrong: the output does not say that an epoch is over, or which bar trains."""
        self._first: float | None = None
        self._last = 0.0
        """The highest count of this epoch."""
        self._step = self._step_before = 0.0
        """The largest step between two counts of this epoch, and of the one before."""
        self._end: float | None = None
        self._epoch: float | None = None
        self._rival: tuple[float, float] | None = None
        """The end and the count of another bar, whose line came last."""

    def __call__(self, printed: float, *, epoch: float | None = None, end: float | None = None) -> float | None:
        """Return the count over all epochs; None for a line of another bar, and for a late one.

        Args:
            printed: the count that the line prints.
            epoch: the number of the epoch, if the trainer prints it.
            end: the last count of an epoch, if the trainer prints it.
        """
        if epoch is None and self._belongs_to_another_bar(printed, end):
            return None
        if self._first is None:
            self._first = self._last = printed
        if self._is_late(printed, epoch):
            return None
        if self._starts_again(printed, epoch):
            if epoch is None and not self._is_complete:
                self.doubt = self.doubt or f"the count fell from {self._last:.0f} to {printed:.0f}"
            self._begin_epoch(printed)
        self._first = min(self._first, printed)
        self._step = max(self._step, printed - self._last)
        if printed >= self._last:
            self._last, self._end = printed, end
        self._epoch = self._epoch if epoch is None else epoch
        return sum(self.epoch_ends) + printed

    def _belongs_to_another_bar(self, printed: float, end: float | None) -> bool:
        """Return whether this is a line of a bar that does not count.

        Another bar counts from its second growing line on, once the one that counts is over or has not begun.
        """
        if end is None or self._end is None or end == self._end:
            self._rival = None
            return False
        before, self._rival = self._rival, (end, printed)
        grows = before is not None and before[0] == end and printed > before[1]
        if not grows or not (self._is_complete or self._step == 0.0):
            return True
        if self._is_complete:
            self.doubt = self.doubt or f"bars of {self._end:.0f} and {end:.0f} steps, and none says it trains"
            self._begin_epoch(printed)
        self._first = self._last = printed
        self._end = end
        return False

    def _begin_epoch(self, printed: float) -> None:
        """Begin the next epoch. Without a printed end, a count from 0 has one more step than its last count says."""
        more = self._step if self._first == 0 else 0.0
        self.epoch_ends.append(self._last + more if self._end is None else max(self._last, self._end))
        self._last, self._step_before, self._step = printed, self._step, 0.0

    def _starts_again(self, printed: float, epoch: float | None) -> bool:
        """Return whether this is the first line of a new epoch. Soon after a start, it is another rank's."""
        if epoch is not None and self._epoch is not None:
            return epoch > self._epoch and printed <= self._last
        is_deep = self._last - printed >= self._restart_drop and printed <= (self._first or 0.0)
        return is_deep and self._step > 0.0 and self._last >= (self.epoch_ends or [0.0])[-1] / 2

    def _is_late(self, printed: float, epoch: float | None) -> bool:
        """Return whether this line is one of the epoch before: it prints the end of an epoch that has just begun."""
        if epoch is not None and self._epoch is not None:
            return epoch < self._epoch
        end = (self.epoch_ends or [math.inf])[-1] if self.doubt is None else math.inf
        return printed >= self.NEAR_END * end > end / 2 > self._last and printed - self._last > 2 * self._step_before

    @property
    def _is_complete(self) -> bool:
        """Whether the epoch has printed its last count, or the next count would be beyond it."""
        return self._end is not None and self._last >= min(self.NEAR_END * self._end, self._end - self._step)


EVALUATES = re.compile(
    r"(?i)(?<![a-z])(?:test|testing|val|valid|validation|validat(?:e|ing)|eval|evaluat(?:e|ing|ion)|sanity)(?![a-z])"
)
"""Words of lines that tell of an evaluation."""
_PREPARES = re.compile(
    r"(?i)\W*(?:train: )?(?:running )?(?:map|filter|load(?:ing)?|download(?:ing)?|fetching|resolving|extracting"
    r"|scanning|generating|caching|indexing|building|compiling|preparing|preprocess(?:ing)?|tokeniz(?:er|ing)|grouping)(?![a-z])"
)
"""The first words of bars before the training. Their steps are no iterations."""


def is_aside(name: str, after: str) -> bool:
    """Return whether a bar is one of a preparation or an evaluation.

    Args:
        name: the text before the count. One of more than three words may tell of an evaluation that is over.
        after: the text after the count. The bars with which `datasets` prepares its data count `examples/s`.
    """
    is_short = len(re.findall("[A-Za-z]{2,}", name)) <= 3
    return bool(_PREPARES.match(name)) or "examples/s" in after or (is_short and bool(EVALUATES.search(name)))
