"""Reads printed counts, and goes on with those that start again. Pure."""

import math
import re
from dataclasses import dataclass, field

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
    the next one. Only the first start counts, and late lines count as lines of their own epoch.
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
            if epoch is None and not self._is_whole:
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

    @property
    def _is_whole(self) -> bool:
        """Whether the epoch has printed its last count, or the next count would be beyond it."""
        most = self._steps[1] if self._steps else 0.0
        return self._end is not None and self._last >= min(NEAR_END * self._end, self._end - most)

    def _whole_epoch(self) -> float:
        """Return the iterations of the epoch that ends.

        The last line of an epoch may come before its end, as `[190/200]` if a trainer prints every tenth iteration.
        Without a printed end, a count from 0 has one more step.
        """
        least, most = self._steps or (0.0, 0.0)
        if self._end is not None and self._last <= self._end <= self._last + 2 * most:
            return self._end
        return self._last + (least if self._first == 0 and self._end is None else 0.0)


EVALUATES = re.compile(
    r"(?i)(?<![a-z])(?:test|testing|val|valid|validation|validat(?:e|ing)|eval|evaluat(?:e|ing|ion)|sanity)(?![a-z])"
)
"""Words of lines that tell of an evaluation."""
PREPARES = re.compile(
    r"(?i)\W*(?:train: )?(?:running )?(?:scanning|map|filter|loading|load"
    r"|downloading|download|fetching|resolving|extracting|generating"
    r"|caching|indexing|building|compiling|preparing|preprocess(?:ing)?|tokeniz(?:er|ing)|grouping)(?![a-z])"
)
"""The first words of bars before the training. Their steps are no iterations."""
EXAMPLES = "examples/s"
"""The unit of the bars with which `datasets` prepares its examples, whatever their names."""
NAME_WORDS = 3
"""The most words of a bar's name. A longer text before a count may tell of an evaluation that is over."""


@dataclass(kw_only=True, slots=True)
class _Bar:
    """One bar, also if it starts again."""

    end: float | None
    last: float
    began: float
    """The count with which the bar last took over from another bar."""
    count: Unwrapped = field(default_factory=Unwrapped)
    is_around: bool = False
    """Whether it is a bar of epochs, around the bars of their steps."""

    @property
    def advances(self) -> bool:
        """Whether the bar has advanced by more than one step since another bar printed."""
        return self.last - self.began > 1

    @property
    def is_over(self) -> bool:
        """Whether the bar has come to its end. A bar that vanishes may not print its last steps."""
        return self.end is None or self.last >= NEAR_END * self.end


class Bars:
    """The count of the training, over all its epochs, from the lines of all bars. Their ends tell them apart.

    A bar that begins in the middle of another one is an evaluation inside it. But if the other bar makes one step for
    each such bar, it counts epochs. Where a bar of another end follows a whole one, nothing says which one trains.
    """

    def __init__(self) -> None:
        self._bars: dict[float | None, _Bar] = {}
        self._main: _Bar | None = None
        self._latest: _Bar | None = None
        self._offset = self._total = 0.0
        self._doubt: str | None = None

    @property
    def doubt(self) -> str | None:
        """Why the count may not be that of the training; None where nothing speaks against it."""
        return self._doubt or (self._main.count.doubt if self._main else None)

    @property
    def epoch_ends(self) -> list[float]:
        """The steps of the epochs that are over."""
        return self._main.count.epoch_ends if self._main else []

    def __call__(
        self,
        printed: float,
        t_s: float,
        *,
        epoch: float | None = None,
        end: float | None = None,
        name: str = "",
        after: str = "",
    ) -> float | None:
        """Return the count over all epochs for a line that was printed at `t_s`; None where it is no training.

        `name` is the text before the count, and `after` the text after it. A line with the number of its `epoch` needs
        no end to be told from others.
        """
        own_end = None if epoch is not None else end
        if own_end is not None and (PREPARES.match(name) or EXAMPLES in after):
            return None
        if end is not None and EVALUATES.search(name) and len(re.findall("[A-Za-z]{2,}", name)) <= NAME_WORDS:
            return None
        bar = self._bars.setdefault(own_end, _Bar(end=own_end, last=printed, began=printed))
        if bar is not self._latest:
            bar.began = printed
        bar.last, self._latest = printed, bar
        counted = bar.count(printed, t_s, epoch=epoch, end=end)
        main = self._main = self._main or bar
        if bar is not main:
            if (bar.is_around and not bar.advances) or (main.advances and not main.is_over):
                return None
            if main.is_over or bar.is_around:
                self._doubt = self._doubt or f"bars of {_steps(main)} and {_steps(bar)} steps, and none says it trains"
            main.is_around, self._main, self._offset = not main.is_over, bar, self._total - counted
        self._total = max(self._total, self._offset + counted)
        return self._offset + counted


def _steps(bar: _Bar) -> str:
    return "unknown" if bar.end is None else f"{bar.end:.0f}"
