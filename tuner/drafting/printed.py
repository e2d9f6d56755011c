"""Reads the progress of a command whose steps nothing counts inside: a preset, `report()`, or one plain form. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.probe import LinePatterns, OutputLine, Progress, ProgressReader, record
from tuner.probe.count_files import COUNTED
from tuner.trainers.presets import PRESETS

LEAST = 3
"""The fewest growing iterations that show progress."""
FORMS = tuple(
    rf"(?i)\b{word}s?\b[\s:=#\[(|]{{0,9}}(?P<iteration>\d[\d,_]*)"
    for word in ("(?:iteration|iter)", "step", "batch", "epoch")
)
"""The plain forms, such as `iteration 12`. An epoch counts where nothing else does."""
SHOWN = 3
"""How many of the last lines are kept to be shown."""


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
    doubt: str = ""
    """Why the counts may be wrong, as a probe says it, too."""

    @property
    def is_plain(self) -> bool:
        """Whether the lines have a plain form: nothing is known of the trainer."""
        return self.preset is None and bool(self.patterns)

    @property
    def counts_samples(self) -> bool:
        """Whether the trainer tells its samples: a plain form never does."""
        return self.reports[-1].samples is not None

    @property
    def by(self) -> str:
        """What shows the progress, in words."""
        if self.preset:
            return f"the preset {self.preset}"
        return "lines of a plain form" if self.patterns else "report()"


def find_printed(lines: Sequence[OutputLine], likely: Sequence[str] = ()) -> Found | None:
    """Return how these lines show progress; None where fewer than three growing iterations are told.

    `likely` names presets that are tried before the others.
    """
    return next(_ways(lines, likely), None)


def _ways(lines: Sequence[OutputLine], likely: Sequence[str]) -> Iterator[Found]:
    told = [line for line in lines if line.stream == "progress" and not record(line.text).get(COUNTED)]
    console = [line for line in lines if line.stream == "console"]
    yield from _read(told, None, ())
    for name in dict.fromkeys((*likely, *PRESETS)):
        yield from _read(console, name, PRESETS[name].progress)
    for form in FORMS:
        for found in _read(console, None, (form,)):
            if len({report.t_s for report in found.reports}) >= LEAST:  # a list of layers is printed at once
                yield found


def _read(lines: Sequence[OutputLine], preset: str | None, patterns: tuple[str, ...]) -> Iterator[Found]:
    """Yield what some patterns find; nothing where they find too few iterations."""
    reader = ProgressReader(LinePatterns(patterns=patterns), 0.0)
    read = [(line.text.strip(), report) for line in lines if (report := reader.feed(line))]
    if len(read) >= LEAST:
        yield Found(
            preset=preset,
            patterns=patterns,
            reports=tuple(report for _, report in read),
            lines=tuple(text for text, _ in read[-SHOWN:]),
            doubt=reader.doubt or "",
        )
