"""Tells the bar that counts training from bars of epochs, evaluations and preparations. Pure.

A trainer may print several bars in turn. They differ in the end that they print, as 100 in `12/100`.
"""

import re
from dataclasses import dataclass, field

from tuner.probe.counts import NEAR_END, Unwrapped

EVALUATES = re.compile(
    r"(?i)(?<![a-z])(?:test|testing|val|valid|validation|validat(?:e|ing)|eval|evaluat(?:e|ing|ion)|sanity)(?![a-z])"
)
"""Words of lines that tell of an evaluation."""
_PREPARES = re.compile(
    r"(?i)\W*(?:running )?(?:map|filter|loading|load|downloading|download|fetching|resolving|extracting|generating"
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
    - A bar of the same name that follows a whole bar may be an evaluation. It counts once it has lasted longer.
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
        if own_end is not None and (_PREPARES.match(name) or EXAMPLES in after):
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
    follows = main.is_over and bar.name != main.name and bar.is_new
    return main.is_inside or main.is_around or follows or bar.seconds > main.seconds
