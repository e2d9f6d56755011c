"""Reads the progress of a command from its printed lines, or from its calls of `report()`. Pure.

This is for commands in which no steps are counted inside. Their lines match a preset or a plain form such as `step 12`.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tuner.probe import LinePatterns, OutputLine, Progress, ProgressReader, json_object
from tuner.probe.count_files import COUNTED
from tuner.probe.progress_reader import FORMS
from tuner.trainers.presets import PRESETS


class PrintedProgress(NamedTuple):
    """How the lines that a command prints, or its calls of `report`, show its progress."""

    reports: tuple[Progress, ...]
    """The iterations that the lines report."""
    preset: str | None = None
    """The preset of a known trainer whose patterns match; None for a plain form, and for calls of `report`."""
    patterns: tuple[str, ...] = ()
    """The regular expressions that match the lines; empty for calls of `report`."""
    lines: tuple[str, ...] = ()
    """The last lines that complete an iteration."""
    contradiction: str = ""
    """Why the counts may be wrong, in words; empty where nothing speaks against them."""

    @property
    def is_plain(self) -> bool:
        """Whether the lines match no preset, but a usual form such as `step 12`: nothing is known of the trainer."""
        return self.preset is None and bool(self.patterns)

    @property
    def counts_samples(self) -> bool:
        """Whether the lines say how many samples were used, and nothing speaks against it. A plain form never does."""
        return not self.contradiction and self.reports[-1].samples is not None

    @property
    def by(self) -> str:
        """What shows the progress, in words: a preset, lines of a plain form, or calls of `report`."""
        if self.preset:
            return f"the preset {self.preset}"
        return "lines of a plain form" if self.patterns else "report()"


class PrintedLines:
    """Reads the lines of a command in several ways at once, and finds the best way that shows its progress."""

    def __init__(self, likely: Iterable[str] = ()) -> None:
        """Prepare the ways to read lines, in this order: calls of `report`, presets, and plain forms.

        Presets named `likely` come first, then those with several patterns, which rarely match by chance.
        """
        surest_first = sorted(PRESETS, key=lambda name: len(PRESETS[name].progress) == 1)
        presets = dict.fromkeys((*likely, *surest_first))
        self._ways = [  # the first that shows progress counts
            _Way(None, ()),
            *(_Way(name, PRESETS[name].progress) for name in presets),
            *(_Way(None, (form,)) for form in FORMS),
        ]

    def feed(self, lines: Iterable[OutputLine]) -> None:
        """Read new lines of the run."""
        for line in lines:
            for way in self._ways:
                way.feed(line)

    @property
    def progress(self) -> PrintedProgress | None:
        """How the lines so far show progress; None where they show iterations at fewer than three moments."""
        return next(filter(None, (way.progress for way in self._ways)), None)


class _Way:
    """Reads the lines of a command in one way: by patterns of a preset, by a plain form, or as calls of `report`."""

    def __init__(self, preset: str | None, patterns: tuple[str, ...]) -> None:
        """Without `patterns`, calls of `report` are read instead of printed lines."""
        self._preset, self._patterns = preset, patterns
        self._reader = ProgressReader(LinePatterns(patterns=patterns), 0.0)
        self._reports: list[Progress] = []
        self._lines: deque[str] = deque(maxlen=3)

    def feed(self, line: OutputLine) -> None:
        """Read a line if it is of the right kind: a printed line where there are patterns, else a call of `report`."""
        is_printed = line.stream == "console"
        is_report = not is_printed and not json_object(line.text).get(COUNTED)  # not a message of the counting inside
        is_of_kind = is_printed if self._patterns else is_report
        if is_of_kind and (report := self._reader.feed(line)):
            self._reports.append(report)
            self._lines.append(line.text.strip())

    @property
    def progress(self) -> PrintedProgress | None:
        """How these lines show progress; None where they show iterations at fewer than three moments."""
        if len({report.t_s for report in self._reports}) < 3:  # numbered lines at one moment are a list, as of layers
            return None
        return PrintedProgress(
            preset=self._preset,
            patterns=self._patterns,
            reports=tuple(self._reports),
            lines=tuple(self._lines),
            contradiction=self._reader.doubt or "",
        )
