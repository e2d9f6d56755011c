"""Reads what a command prints: its progress, and why it shows none. Pure.

The progress is read from printed lines, which match a preset or a plain form such as `step 12`, or from calls of
`report()`. This is for commands in which no steps are counted inside.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tuner import probe
from tuner.probe.count_files import COUNTED_INSIDE
from tuner.probe.progress_reader import FORMS
from tuner.trainers.command_options import PRESETS


class PrintedProgress(NamedTuple):
    """How the lines that a command prints, or its calls of `report`, show its progress."""

    reports: tuple[probe.Progress, ...]
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
    def is_enough(self) -> bool:
        """Whether there are at least six iterations, over some seconds without the first two, which are often slow."""
        # a plain form waits longer, because lines of a preset, which say more, may still come
        least_s = 10.0 if self.is_plain else 5.0
        return len(self.reports) > 5 and self.reports[-1].t_s - self.reports[1].t_s >= least_s

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

    def __init__(self, likely_presets: Iterable[str] = ()) -> None:
        """Prepare the ways to read lines, in this order: calls of `report`, presets, and plain forms.

        Presets named `likely_presets` come first, then those with several patterns, which rarely match by chance.
        """
        surest_first = sorted(PRESETS, key=lambda name: len(PRESETS[name].progress) == 1)
        presets = dict.fromkeys((*likely_presets, *surest_first))
        self._ways = [  # the first that shows progress counts
            _Way(None, ()),
            *(_Way(name, PRESETS[name].progress) for name in presets),
            *(_Way(None, (form,)) for form in FORMS),
        ]

    def feed(self, lines: Iterable[probe.OutputLine]) -> None:
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
        self._reader = probe.ProgressReader(probe.LinePatterns(patterns=patterns), 0.0)
        self._reports: list[probe.Progress] = []
        self._lines: deque[str] = deque(maxlen=3)

    def feed(self, line: probe.OutputLine) -> None:
        """Read a line if it is of the right kind: a printed line where there are patterns, else a call of `report`."""
        is_printed = line.stream == "console"
        # a message, and none of the counting inside
        is_report = not is_printed and not probe.json_object(line.text).get(COUNTED_INSIDE)
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
            contradiction=self._reader.count_problem or "",
        )


OTHER_WAYS = "let the command print lines such as `step 12`, or copy tuner/progress.py beside it and call report()"
"""How a command can be made to show its progress where nothing counts inside."""
NOT_LET_IN = "no Python process of the command let the counting in, as with `python -I` or in a container"
"""Why nothing was counted inside a command: the counting did not start in any of its processes."""


class Output:
    """The last lines that a command has printed, and the crash that they show."""

    def __init__(self) -> None:
        self.texts: deque[str] = deque(maxlen=2000)
        self.evidence = probe.Evidence()

    def feed(self, lines: Iterable[probe.OutputLine]) -> None:
        """Read new lines of the run; only what the command has printed is used, not messages to the tuner."""
        for line in lines:
            if line.stream == "console":
                self.texts.append(line.text)
                self.evidence.feed(line.text, line.t_s)

    @property
    def cause(self) -> str:
        """Why the command ended, as far as its lines show: the exception that began a crash, or else the last line."""
        failure = self.evidence.failure()
        return failure.detail if failure else self.evidence.crash_line()

    @property
    def tail(self) -> str:
        """The last three lines, in words."""
        last_lines = " | ".join(text.strip()[:200] for text in list(self.texts)[-3:])
        return f"the last lines: {last_lines}" if last_lines else "it printed nothing"

    @property
    def crash(self) -> str | None:
        """The exception that has probably ended some process; None where no line shows one."""
        return None if self.evidence.fatal_t_s is None else self.cause


def complaint(
    output: Output, exit_code: int | None, seconds: float, plan: probe.ProbePlan, *, is_counting: bool, steps: int
) -> str:
    """Return why a first run did not show the progress of its command, and what the user can do.

    Args:
        output: what the command has printed.
        exit_code: its exit code; None where it was ended while it ran.
        seconds: how long it was watched.
        plan: how it was started.
        is_counting: whether its Python could count steps, but no optimizer has made one.
        steps: the optimizer steps that were counted.
    """
    took = probe.duration(seconds)
    if exit_code not in {None, 0}:
        failure = output.evidence.failure()
        is_missing = failure is not None and failure.kind is probe.FailureKind.MISSING_DEPENDENCY
        remedy = "correct it, or type the full path of the Python that has it" if is_missing else "correct it"
        why = f"the command failed after {took} with exit code {exit_code}: {output.cause}; {remedy}, then try again"
    elif output.crash:
        why = f"the command printed an error, and trained nothing in {took}: {output.crash}; correct it, then try again"
    elif exit_code == 0:
        made = f" and {probe.number_of(steps, 'optimizer step')}" if steps else ", before three iterations were seen"
        unseen = "" if steps else f"; {output.tail}; if it made more, {OTHER_WAYS}"
        # counts begin at the third step, and `drafting.writing` asks for eight iterations of a probe
        longer = "a probe needs about 12, so let it train for longer"
        why = f"the command ended by itself after {took}{made}; {longer}{unseen}"
    else:
        why = _no_progress(output, seconds, is_counting=is_counting, steps=steps)
    return f"{why} (all its output is in {plan.slot.console})"


def _no_progress(output: Output, seconds: float, *, is_counting: bool, steps: int) -> str:
    """Return why a command that still runs shows no progress, and what the user can do.

    `is_counting`: whether its Python could count steps, but no optimizer has made one. `steps`: the optimizer steps
    that were counted.
    """
    took = probe.duration(seconds)
    if is_counting:
        more_s = 2 * 60 * max(1, round(seconds / 60))
        return (
            f"the script made no optimizer step of torch in {took}; {output.tail}; if its start takes longer, rerun "
            f"`tuner` with --seconds {more_s}; if it trains without torch, {OTHER_WAYS}"
        )
    remedies = f"give `tuner` a longer start with --seconds 300, {OTHER_WAYS}"
    remedies = remedies if steps else f"{NOT_LET_IN}; {remedies}"
    if not output.texts:
        return f"the command printed nothing in {took}; {remedies}"
    count = probe.number_of(len(output.texts), "line")
    return f"nothing in {count} of {took} counts iterations; {output.tail}; {remedies}"
