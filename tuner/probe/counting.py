"""Reads printed counts, and goes on with those that start again. Pure."""

import math
import re

MOST_ITERATIONS = 2**31 - 1
"""The largest iteration that is accepted. Databases store an iteration as a step of 32 bits."""
MOST = 2**53
"""The largest other number that is accepted. Up to this number, a float represents every whole number exactly."""
RESTART_DROP = 5
"""A count has started again if it falls by at least this much, to its first value or below.

A smaller drop is not a restart: when several ranks print, some of them lag behind by an iteration or two.
"""

NEAR_END = 0.9
"""A count has come to its end from this share of it on: the last steps may not be printed."""
SURE_DIGITS = 3
"""The fewest digits of a rounded count, such as `1.28k`, between two of which hardly anything is lost."""

_END = re.compile(r"\s*(?:/|\bof\b)\s*(?P<end>\d[\d,_]*(?:\.\d+)?[kKMGB]?)(?![\d.])")
_NUMERAL = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKmMgGbBtT](?![A-Za-z]))?")
_GROUPED = re.compile(r"\d{1,3}(?:[,_\s]\d{3})+")
_POWERS = {"k": "e3", "K": "e3", "M": "e6", "G": "e9", "B": "e9"}


def whole_numeral(line: str, begin: int, end: int) -> str:
    """Return the whole number in a line from `begin` on, of which a pattern may have matched only the first part.

    A pattern such as `\\d+` matches `12` of `12,800`, `1` of `1.28e+04` and `12` of `12.8K`. A letter that may stand
    for a power, such as that of `1.8m`, is part of the number, too: `number` knows what it means, or refuses it.
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
    """Read a number that may be printed as `12,800`, `12 800`, `1.28e+04`, `12.8K` or `1.2M`.

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
    return float(_GROUPED.sub(lambda found: re.sub(r"[,_\s]", "", found[0]), plain) + power)


def printed_end(line: str, at: int) -> float | None:
    """Return the end of a count that a line prints right after it, as 100 in `12/100`; None where it prints none."""
    found = _END.match(line, at)
    return None if found is None else number(found["end"])


def is_rounded(text: str) -> bool:
    """Return whether a count is printed with so few digits that steps are lost, as in `1K` or `1.2M`."""
    return text[-1:] in _POWERS and sum(map(str.isdecimal, text)) < SURE_DIGITS


class Unwrapped:
    """A count that continues when the printed count starts again, for example at a new epoch.

    Ends tell bars apart. A bar that begins in the middle of the one that counts is an evaluation inside it. But if that
    one makes one step for each such bar, it counts epochs. Where a bar of another end follows a whole one, nothing says
    which one trains.

    Several ranks may print the same count. Then a rank may still print the end of an epoch after another rank has begun
    the next one. Only the first start counts, and late lines count as lines of their own epoch.
    """

    def __init__(self, *, restart_drop: float = RESTART_DROP) -> None:
        """A count that falls by `restart_drop`, to its first value or below, has started again."""
        self._restart_drop = restart_drop
        self.epoch_ends: list[float] = []
        """The counts of the epochs that are over."""
        self.doubt: str | None = None
        """Why the count may be wrong: the output does not say that an epoch is over, or which bar trains."""
        self._first: float | None = None
        self._last = self._before = 0.0
        """The highest count of this epoch, and that of all epochs before it."""
        self._steps: tuple[float, float] | None = None
        """The smallest and the largest step between two counts of this epoch."""
        self._end: float | None = None
        self._epoch: float | None = None
        self._over = (0.0, 0.0, 0.0)
        """Of the epoch before: the count of all epochs before it, its highest count, and its largest step."""
        self._latest: float | None = None
        """The end that the latest line has printed."""
        self._around: tuple[float | None, float] = (None, 0.0)
        """The end of a bar of epochs around the one that counts, and its latest count."""

    def __call__(self, printed: float, *, epoch: float | None = None, end: float | None = None) -> float | None:
        """Return the count over all epochs; None for a line of another bar.

        `epoch` is the number of the epoch, and `end` the last count of an epoch, if the trainer prints them.
        """
        if epoch is None and end is not None and self._is_other(printed, end):
            return None
        if self._first is None:
            self._first = self._last = printed
        if self._is_late(printed, epoch):
            return self._over[0] + printed
        if self._starts_again(printed, epoch):
            if epoch is None and not self._is_whole:
                self.doubt = self.doubt or f"the count fell from {self._last:.0f} to {printed:.0f}"
            self._begin(printed)
        if (step := printed - self._last) > 0:
            least, most = self._steps or (step, step)
            self._steps = min(least, step), max(most, step)
        self._first = min(self._first, printed)
        if printed >= self._last:
            self._last, self._end = printed, end
        self._epoch = self._epoch if epoch is None else epoch
        return self._before + printed

    def _is_other(self, printed: float, end: float) -> bool:
        """Return whether this is a line of a bar that does not count."""
        latest, self._latest = self._latest, end
        around, before = self._around
        if end == around:
            self._around = end, printed
            if latest == end and printed > before:  # it goes on by itself, so it counts no epochs
                self._doubt_bars(end)
            return True
        if self._end in {None, end}:
            return False
        if self._is_whole:
            self._doubt_bars(end)
            self._begin(printed)
        elif self._last - (self._first or 0.0) > 1:
            return True
        else:
            self._around, self._first, self._steps = (self._end, self._last), None, None
        return False

    def _doubt_bars(self, end: float) -> None:
        self.doubt = self.doubt or f"bars of {self._end or 0:.0f} and {end:.0f} steps, and none says it trains"

    def _begin(self, printed: float) -> None:
        """Begin the next epoch.

        The last line of an epoch may come before its end, as `[190/200]` if a trainer prints every tenth iteration.
        Without a printed end, a count from 0 has one more step.
        """
        least, most = self._steps or (0.0, 0.0)
        self._over = self._before, self._last, most
        counted = self._last + (least if self._first == 0 and self._end is None else 0.0)
        if self._end is not None and self._last <= self._end <= self._last + 2 * most:
            counted = self._end
        self.epoch_ends.append(counted)
        self._before += counted
        self._last, self._steps = printed, None

    def _starts_again(self, printed: float, epoch: float | None) -> bool:
        """Return whether this is the first line of a new epoch. Soon after a start, it is another rank's."""
        if epoch is not None and self._epoch is not None:
            return epoch > self._epoch and printed <= self._last
        has_grown = self._steps is not None  # before it has grown, another rank may lag behind
        deep = has_grown and self._last - printed >= self._restart_drop and printed <= (self._first or 0.0)
        return deep and self._last >= self._over[1] / 2

    def _is_late(self, printed: float, epoch: float | None) -> bool:
        """Return whether this line is one of the epoch before: it prints the end of an epoch that has just begun."""
        if epoch is not None and self._epoch is not None:
            return epoch < self._epoch
        _, last, step = self._over
        is_near = printed >= NEAR_END * last and printed - self._last > 2 * step
        return is_near and self._last < last / 2 and self.doubt is None

    @property
    def _is_whole(self) -> bool:
        """Whether the epoch has printed its last count, or the next count would be beyond it."""
        most = self._steps[1] if self._steps else 0.0
        return self._end is not None and self._last >= min(NEAR_END * self._end, self._end - most)


EVALUATES = re.compile(
    r"(?i)(?<![a-z])(?:test|testing|val|valid|validation|validat(?:e|ing)|eval|evaluat(?:e|ing|ion)|sanity)(?![a-z])"
)
"""Words of lines that tell of an evaluation."""
PREPARES = re.compile(
    r"(?i)\W*(?:train: )?(?:running )?(?:map|filter|load(?:ing)?|download(?:ing)?|fetching|resolving|extracting"
    r"|scanning|generating|caching|indexing|building|compiling|preparing|preprocess(?:ing)?|tokeniz(?:er|ing)|grouping)(?![a-z])"
)
"""The first words of bars before the training. Their steps are no iterations."""
EXAMPLES = "examples/s"
"""The unit of the bars with which `datasets` prepares its examples, whatever their names."""
NAME_WORDS = 3
"""The most words of a bar's name. A longer text before a count may tell of an evaluation that is over."""


def is_aside(name: str, after: str) -> bool:
    """Return whether a bar is one of a preparation or an evaluation, by the texts before and after its count."""
    is_short = len(re.findall("[A-Za-z]{2,}", name)) <= NAME_WORDS
    return bool(PREPARES.match(name)) or EXAMPLES in after or (is_short and bool(EVALUATES.search(name)))
