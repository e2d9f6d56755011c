"""Reads printed counts, and continues counts that start again at each epoch. Pure.

The end of a count is the number that it will reach, such as 100 in `12/100`. A trainer may draw several progress bars,
one for the training and one for an evaluation: then only the bar that trains counts.
"""

import math
import re

MOST_ITERATIONS = 2**31 - 1
"""The largest iteration that is accepted. Databases store an iteration as a step of 32 bits."""
MOST = 2**53
"""The largest other number that is accepted. Up to this number, a float represents every whole number exactly."""

END = re.compile(r"\s*(?:/|\bof\b)\s*(?P<end>\d[\d,_]*(?:\.\d+)?[kKMGB]?)(?![\d.])")
"""Matches what follows a count that is printed with its end, as in `12/100`."""
_NUMERAL = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKmMgGbBtT](?![A-Za-z]))?")
_GROUPED = re.compile(r"\d{1,3}(?:[,_\s]\d{3})+")
_POWERS = {"k": "e3", "K": "e3", "M": "e6", "G": "e9", "B": "e9"}


def numeral(line: str, begin: int, end: int) -> str:
    """Return the text of a number that begins at `begin`, where a pattern may have matched only its part up to `end`.

    A pattern such as `\\d+` matches `12` of `12,800`, `1` of `1.28e+04` and `12` of `12.8K`. A letter that may stand
    for a power is part of the text, too, also that of `1.8m`: `number` knows what it means, or returns None.
    """
    match = _NUMERAL.match(line, begin)
    if match is None or match.end() <= end:  # the pattern has matched all of it, and perhaps the sentence's comma
        return line[begin:end].rstrip(",.")
    text = match[0].rstrip(",_")
    is_list = re.search("[,_]", _GROUPED.sub("", text, count=1)) is not None  # such as `3,4`
    return line[begin:end] if is_list else text


def number(value: object, most: float = MOST, *, least: float = 0.0) -> float | None:
    """Read a number that a trainer has printed or sent: a number, or a text such as `12,800`, `1.28e+04` or `12.8K`.

    Returns None for a value that is not a number, is not finite, or is not between `least` and `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        text = value.strip()
        power = _POWERS.get(text[-1:], "")
        digits = text[:-1] if power else text
        value = _GROUPED.sub(lambda match: re.sub(r"[,_\s]", "", match[0]), digits) + power
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) and least <= result <= most else None


def is_rounded(text: str) -> bool:
    """Return whether the text of a count has so few digits that it stays the same for many steps: `1K` or `1.2M`."""
    return text[-1:] in _POWERS and sum(map(str.isdecimal, text)) < 3


class EpochCounter:
    """Continues a count when the printed count starts again, for example at a new epoch.

    Progress bars differ by their ends. A bar that begins in the middle of the bar that counts is left out. If a bar
    with another end follows a bar that has come to its end, nothing says which of the two trains.

    Several ranks may print the same count. Then a rank may still print the end of an epoch after another rank has begun
    the next one. Such late lines are left out.
    """

    NEAR_END = 0.9
    """A count has come to its end from this share of it on: the last steps may not be printed."""

    RESTART_DROP = 5
    """A count that falls by this much, to its first value or below, has started again.

    A smaller drop is no restart, because ranks that print the same count lag behind each other by an iteration or two.
    """

    def __init__(self) -> None:
        """Begin before the first count."""
        self.epoch_lengths: list[float] = []
        """The counts of the epochs that are over."""
        self.count_problem: str | None = None
        """Why the count may be wrong: the output does not say that an epoch is over, or which bar trains."""
        self._first: float | None = None
        """The lowest first count of an epoch; None before any count."""
        self._last = 0.0
        """The highest count of this epoch."""
        self._largest_step = 0.0
        """The largest step between two counts of this epoch."""
        self._last_epochs_largest_step = 0.0
        """The largest step between two counts of the epoch before."""
        self._end: float | None = None
        """The last count of this epoch, as it is printed; None where it is not."""
        self._epoch: float | None = None
        """The number of this epoch, as it is printed; None where it is not."""
        self._other_bar: tuple[float, float] | None = None
        """The end and the count of another bar, whose line came last; None after a line of the bar that counts."""

    def __call__(self, printed: float, *, epoch: float | None = None, end: float | None = None) -> float | None:
        """Return the count over all epochs; None for a line of another bar, and for a late line of the epoch before.

        Args:
            printed: the count that the line prints.
            epoch: the number of the epoch, if the trainer prints it.
            end: the last count of an epoch, if the trainer prints it.
        """
        # where epochs are numbered, bars need not be distinguished
        if epoch is None and not self._is_of_counting_bar(printed, end):
            return None
        if self._first is None:
            self._first = self._last = printed
        if self._is_late(printed, epoch):
            return None
        if self._starts_again(printed, epoch):
            if epoch is None and not self._is_complete:
                self.count_problem = self.count_problem or f"the count fell from {self._last:.0f} to {printed:.0f}"
            self._begin_epoch(printed)
        self._first = min(self._first, printed)
        self._largest_step = max(self._largest_step, printed - self._last)
        if printed >= self._last:  # a smaller count is that of another rank, which lags behind
            self._last, self._end = printed, end
        if epoch is not None:
            self._epoch = epoch
        return sum(self.epoch_lengths) + printed

    def _is_of_counting_bar(self, printed: float, end: float | None) -> bool:
        """Return whether a line is of the progress bar that counts; `printed` and `end` are its count and its end.

        A line with another end is of another bar. That bar becomes the one that counts with its second line, if its
        count has grown, and if the bar that counted so far is complete or has never moved.
        """
        if end is None or self._end is None or end == self._end:
            self._other_bar = None
            return True
        end_before, printed_before = self._other_bar or (None, 0.0)
        self._other_bar = end, printed
        if end_before != end or printed <= printed_before:
            return False
        if self._is_complete:
            self.count_problem = (
                self.count_problem or f"bars of {self._end:.0f} and {end:.0f} steps, and none says it trains"
            )
            self._begin_epoch(printed)
        elif self._largest_step > 0.0:  # the bar that counts goes on
            return False
        self._first = self._last = printed
        self._end = end
        return True

    def _begin_epoch(self, printed: float) -> None:
        """Keep the length of the epoch that is over, and begin the next one with its first count."""
        one_more = self._largest_step if self._first == 0 else 0.0  # counted from 0, the last step of ten is 9
        self.epoch_lengths.append(max(self._last, self._end or self._last + one_more))
        self._last, self._last_epochs_largest_step, self._largest_step = printed, self._largest_step, 0.0

    def _starts_again(self, printed: float, epoch: float | None) -> bool:
        """Return whether this is the first line of a new epoch.

        The printed number of the epoch shows it. Without that number, the count must have fallen by `RESTART_DROP`, to
        its first value or below. A count that falls before half the length of the last epoch is that of another rank.
        """
        if epoch is not None and self._epoch is not None:
            return epoch > self._epoch and printed <= self._last  # a larger count goes on over all epochs
        falls_far = self._last - printed >= self.RESTART_DROP and printed <= (self._first or 0.0)
        has_moved = self._largest_step > 0.0  # without a growth, the two lines may be those of two ranks
        last_length = self.epoch_lengths[-1] if self.epoch_lengths else 0.0
        return falls_far and has_moved and self._last >= last_length / 2

    def _is_late(self, printed: float, epoch: float | None) -> bool:
        """Return whether this is a late line of the epoch before, which another rank prints.

        The printed number of the epoch shows it. Without that number, a late line shows by its jump: an epoch has just
        begun, and the count is near the length of the epoch before.
        """
        if epoch is not None and self._epoch is not None:
            return epoch < self._epoch
        if not self.epoch_lengths or self.count_problem is not None:  # in doubt, a length may be wrong
            return False
        last_length = self.epoch_lengths[-1]
        has_just_begun = self._last < last_length / 2
        is_near_end = printed >= self.NEAR_END * last_length
        jumps = printed - self._last > 2 * self._last_epochs_largest_step  # a line may be missing (2 is chosen)
        return has_just_begun and is_near_end and jumps

    @property
    def _is_complete(self) -> bool:
        """Whether the epoch has come near its printed end, or the next step would lead beyond it."""
        return self._end is not None and self._last >= min(self.NEAR_END * self._end, self._end - self._largest_step)


EVALUATES = re.compile(
    r"(?i)(?<![a-z])(?:test|testing|val|valid|validation|validat(?:e|ing)|eval|evaluat(?:e|ing|ion)|sanity)(?![a-z])"
)
"""Words of lines about an evaluation."""
_PREPARES = re.compile(
    r"(?i)\W*(?:train: )?(?:running )?(?:map|filter|load(?:ing)?|download(?:ing)?|fetching|resolving|extracting"
    r"|scanning|generating|caching|indexing|building|compiling|preparing|preprocess(?:ing)?|tokeniz(?:er|ing)|grouping)(?![a-z])"
)
"""The first words of bars before the training. Their steps are no iterations."""


def is_of_other_work(name: str, after: str) -> bool:
    """Return whether a progress bar is that of a preparation or an evaluation, whose steps are no iterations.

    Args:
        name: the text before the count. More than three words may be about an evaluation that is over.
        after: the text after the count. The bars with which `datasets` prepares its data count `examples/s`.
    """
    is_short = len(re.findall("[A-Za-z]{2,}", name)) <= 3
    return bool(_PREPARES.match(name)) or "examples/s" in after or (is_short and bool(EVALUATES.search(name)))
