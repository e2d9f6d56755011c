"""Reads the progress of a command whose steps nothing counts inside: a preset, `report()`, or one plain form. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.probe import LinePatterns, OutputLine, Progress, ProgressReader, record
from tuner.probe.progress_files import COUNTED
from tuner.probe.progress_reader import FORMS
from tuner.trainers.presets import PRESETS


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """How a trainer's lines show its progress. What they do not say by themselves is unknown."""

    preset: str | None = None
    """The preset that matches; None for a plain form, and where the trainer calls `report`."""
    patterns: tuple[str, ...] = ()
    """Empty where the trainer calls `report`."""
    reports: tuple[Progress, ...]
    lines: tuple[str, ...] = ()
    """The last lines that complete an iteration."""
    contradiction: str = ""
    """Why the counts may be wrong, as a probe says it, too."""

    @property
    def is_plain(self) -> bool:
        """Whether the lines have a plain form: nothing is known of the trainer."""
        return self.preset is None and bool(self.patterns)

    @property
    def counts_samples(self) -> bool:
        """Whether the lines say the samples, and nothing speaks against them. A plain form never says them."""
        return not self.contradiction and self.reports[-1].samples is not None

    @property
    def by(self) -> str:
        """What shows the progress, in words."""
        if self.preset:
            return f"the preset {self.preset}"
        return "lines of a plain form" if self.patterns else "report()"


class PrintedLines:
    """Follows the lines of a command, in each way in which they may show its progress."""

    def __init__(self, likely: Iterable[str] = ()) -> None:
        """`likely` names presets that go before the others; then come those of several patterns, which are surest."""
        surest_first = sorted(PRESETS, key=lambda name: len(PRESETS[name].progress) == 1)
        presets = dict.fromkeys((*likely, *surest_first))
        self._ways = [  # the first that shows progress counts
            _Way(None, ()),
            *(_Way(name, PRESETS[name].progress) for name in presets),
            *(_Way(None, (form,)) for form in FORMS),
        ]

    def feed(self, lines: Iterable[OutputLine]) -> None:
        """Take some lines into account."""
        for line in lines:
            for way in self._ways:
                way.feed(line)

    @property
    def found(self) -> Found | None:
        """How the lines so far show progress; None where they show fewer than three growing iterations."""
        return next(filter(None, (way.found for way in self._ways)), None)


class _Way:
    """One way to read the lines."""

    def __init__(self, preset: str | None, patterns: tuple[str, ...]) -> None:
        """Without `patterns`, the trainer's own reports are read instead of printed lines."""
        self._preset, self._patterns = preset, patterns
        self._reader = ProgressReader(LinePatterns(patterns=patterns), 0.0)
        self._reports: list[Progress] = []
        self._lines: deque[str] = deque(maxlen=3)

    def feed(self, line: OutputLine) -> None:
        """Take a line into account, if it is of the kind that this way reads."""
        is_printed = line.stream == "console"
        is_report = not is_printed and not record(line.text).get(COUNTED)  # otherwise it was counted inside
        is_of_this_way = is_printed if self._patterns else is_report
        if is_of_this_way and (report := self._reader.feed(line)):
            self._reports.append(report)
            self._lines.append(line.text.strip())

    @property
    def found(self) -> Found | None:
        """How these lines show progress; None where they show fewer than three growing iterations."""
        if len({report.t_s for report in self._reports}) < 3:  # numbered lines at one moment are a list, as of layers
            return None
        return Found(
            preset=self._preset,
            patterns=self._patterns,
            reports=tuple(self._reports),
            lines=tuple(self._lines),
            contradiction=self._reader.doubt or "",
        )
