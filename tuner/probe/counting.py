"""Reads printed counts, goes on with those that start again, and finds the bar of the training. Pure."""

import math
import re
from collections.abc import Sequence
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
LEAST_TURNS = 4
"""The fewest epochs that can show that two speeds take turns."""

_END = re.compile(r"\s*(?:/|\bof\b)\s*(?P<end>\d[\d,_]*(?:\.\d+)?[kKMGB]?)(?![\d.])")
_NUMERAL = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKMGB](?![A-Za-z]))?")
_GROUPED = re.compile(r"\d{1,3}(?:[,_\s]\d{3})+")
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


class Unrounded:
    """A count that keeps its step once the trainer rounds it: after `950` and `1K`, the next `1K` is 1,050.

    The lines before must have had one step. Otherwise the count is the printed one.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._step = 0.0
        self._is_even = False

    def __call__(self, text: str) -> float | None:
        """Return the count of a line that prints it as `text`; None where this is no number."""
        printed = number(text)
        if printed is None:
            return None
        unit, last = _unit(text), self._last
        foreseen = None if last is None else last + self._step
        if foreseen and self._is_even and self._step < unit and abs(foreseen - printed) <= unit / 2:
            printed = foreseen
        if last is not None:
            self._is_even = printed - last == self._step > 0
            self._step = printed - last
        self._last = printed
        return printed


def _unit(text: str) -> float:
    """Return the smallest difference between two counts that are printed like this one: 100 for `1.2k`."""
    mantissa, power = text.strip()[:-1], _POWERS.get(text.strip()[-1:], "")
    return float(f"1{power}") / 10 ** len(mantissa.partition(".")[2]) if power else 1.0


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
        self._last_s = 0.0
        self._paces: list[float] = []
        """The seconds per step of each epoch that is over, without those after its last line."""
        self._over: _Epoch | None = None

    def __call__(
        self, printed: float, t_s: float = 0.0, *, epoch: float | None = None, end: float | None = None
    ) -> float:
        """Return the count over all epochs for a line that was printed at `t_s`.

        `epoch` is the number of the epoch, and `end` the last count of an epoch, if the trainer prints them.
        """
        if self._first is None:
            self._first, self._last, self._began_s, self._last_s = printed, printed, t_s, t_s
        if self._over is not None and self._is_late(self._over, printed, t_s, epoch):
            return self._over.before + printed
        if self._starts_again(printed, t_s, epoch):
            self._over = _Epoch(number=self._epoch, before=self._before, last=self._last, seconds=t_s - self._began_s)
            if epoch is None and not self._reached_end(end):
                self.doubt = self.doubt or f"the count fell from {self._last:.0f} to {printed:.0f}"
            self.epoch_ends.append(self._whole_epoch())
            self._before += self.epoch_ends[-1]
            if epoch is None:
                self._paces.append((self._last_s - self._began_s) / self._last)
                if _take_turns(self._paces):
                    self.doubt = self.doubt or "two speeds took turns, and no number says which epochs train"
            self._last, self._steps, self._began_s = printed, None, t_s
        if (step := printed - self._last) > 0:
            least, most = self._steps or (step, step)
            self._steps = min(least, step), max(most, step)
        self._first = min(self._first, printed)
        if printed >= self._last:
            self._last, self._last_s, self._end = printed, t_s, end
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


def _take_turns(paces: Sequence[float]) -> bool:
    """Return whether every other epoch is clearly slower, as training is beside evaluation.

    The fewer epochs there are, the larger the difference must be, because chance may alternate, too.
    """
    fast, slow = sorted((paces[::2], paces[1::2]), key=lambda each: max(each, default=0.0))
    return len(paces) >= LEAST_TURNS and min(slow) > (1 + 2 / len(paces)) * max(fast) > 0


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
SAME_END = 0.1
"""The ends of one bar differ by at most this share from epoch to epoch, or from rank to rank."""
LONGER_INSIDE, LEAST_INSIDE_S = 10.0, 20.0
"""A bar that begins inside another one counts for nothing, unless it lasts so many times as long, and so many seconds.

Lines that were read at once have the same time, so a bar may seem to have lasted no time.
"""


MUCH_LONGER = 10.0
"""A named count whose end is so many times that of the count before is the training, after a warm-up."""


@dataclass(kw_only=True, slots=True)
class _Bar:
    """One bar, also if it starts again."""

    end: float | None
    name: str
    evaluates: bool
    last: float
    began: float
    """The count with which the bar last took over from another bar."""
    count: Unwrapped = field(default_factory=Unwrapped)
    offset: float = 0.0
    seconds: float = 0.0
    """The time in which this bar advanced."""
    is_new: bool = True
    """Whether it has printed one line."""
    is_inside: bool = False
    """Whether it is an evaluation inside a bar that goes on after it."""
    is_around: bool = False
    """Whether it may be a bar of epochs, around the bars of their steps."""

    @property
    def advanced(self) -> bool:
        """Whether the bar has advanced by more than one step since another bar printed."""
        return self.last - self.began > 1

    @property
    def is_over(self) -> bool:
        """Whether the bar has come to its end. A bar that vanishes may not print its last steps."""
        return self.end is None or self.last >= NEAR_END * self.end


class Bars:
    """The count of the training, over all its epochs, from the lines of all bars.

    - A bar that begins in the middle of another one is an evaluation inside it. But if the other bar makes one step
      for each such bar, it counts epochs.
    - A bar of the same name that follows a whole bar may be an evaluation. It counts once it has lasted longer. But if
      it has a name and is much longer, the whole bar was a warm-up.
    - A bar of another name counts at once. Of two bars that take turns, the one that has lasted longer counts.
    - A bar whose name tells of a preparation, such as `Map` or `Loading weights`, never counts.
    """

    def __init__(self) -> None:
        self._bars: list[_Bar] = []
        self._main: _Bar | None = None
        self._latest: _Bar | None = None
        self._total = 0.0
        self._t_s = 0.0
        self._doubt: str | None = None
        self.taken_over = 0
        """How often another bar has become the one that counts. What was counted before was no training."""

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
        """Return the count over all epochs for a line that was printed at `t_s`; None where another bar printed it.

        `name` is the text before the count, and `after` the text after it. A line with the number of its `epoch` needs
        no end to be told from others.
        """
        own_end = None if epoch is not None else end
        if own_end is not None and (PREPARES.match(name) or EXAMPLES in after):
            return None
        words = re.findall("[A-Za-z]{2,}", name)
        evaluates = end is not None and len(words) <= NAME_WORDS and bool(EVALUATES.search(name))
        bar = self._bar(printed, own_end, " ".join(words), evaluates)
        if bar is not self._latest:
            bar.began = printed
        elif printed > bar.last:
            bar.seconds += t_s - self._t_s
        bar.last, self._latest, self._t_s = printed, bar, t_s
        counted = bar.count(printed, t_s, epoch=epoch, end=end)
        if bar is not self._main:
            takes_over = self._main is None or _takes_over(bar, self._main)
            if self._main is not None and bar.advanced and _in_turn(bar, self._main):
                ends = " and ".join(f"{one:.0f}" for one in sorted(one.end or 0.0 for one in (bar, self._main)))
                self._doubt = self._doubt or f"bars of {ends} steps took turns, and no name says which one trains"
            bar.is_new = False
            if not takes_over:
                return None
            bar.offset = self._total - counted if self._total else 0.0
            self.taken_over += self._main is not None
            self._main = bar
        self._total = max(self._total, bar.offset + counted)
        return bar.offset + counted

    def _bar(self, printed: float, end: float | None, name: str, evaluates: bool) -> _Bar:
        """Return the bar of a line; a new bar if none has such an end."""
        for bar in self._bars:
            if bar.evaluates == evaluates and _same(bar.end, end):
                return bar
        bar = _Bar(end=end, name=name, evaluates=evaluates, last=printed, began=printed)
        self._bars.append(bar)
        if self._main is not None:
            _relate(bar, self._main)
        return bar


def _same(end: float | None, other: float | None) -> bool:
    if end is None or other is None:
        return end is other
    return abs(end - other) <= SAME_END * max(end, other)


def _relate(new: _Bar, main: _Bar) -> None:
    """Note whether a bar that begins is inside the bar that counts so far, or that bar around it."""
    if new.evaluates != main.evaluates:
        inside = new if new.evaluates else main
        inside.is_inside = True
    elif not main.is_over:
        new.is_inside = main.advanced
        main.is_around = not main.advanced


def _in_turn(bar: _Bar, main: _Bar) -> bool:
    """Return whether two bars may both be the training, because one follows the other and no name tells them apart."""
    if bar.evaluates != main.evaluates or bar.is_inside or main.is_inside or bar.is_around or main.is_around:
        return False
    return bar.end is not None and main.end is not None


def _takes_over(bar: _Bar, main: _Bar) -> bool:
    """Return whether a bar counts from now on, instead of the bar that has counted so far."""
    if bar.is_around and bar.advanced:  # it goes on by itself, so it counts no epochs
        bar.is_around, main.is_inside = False, True
    if bar.is_inside:
        return bar.seconds > max(LEAST_INSIDE_S, LONGER_INSIDE * main.seconds)
    is_longer = bool(bar.name) and (bar.end or 0.0) >= MUCH_LONGER * (main.end or math.inf)
    follows = main.is_over and bar.is_new and (bar.name != main.name or is_longer)
    return main.is_inside or main.is_around or follows or bar.seconds > main.seconds
