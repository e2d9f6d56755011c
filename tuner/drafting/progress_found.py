"""Finds what counts in the lines that a trainer prints."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from math import gcd

from tuner.drafting.columns import EPISODE, EPOCH, RECURS, Column, columns, recurring, shows_bar
from tuner.probe import (
    LEAST_TURNS,
    MUCH_LONGER,
    LinePatterns,
    OutputLine,
    Progress,
    ProgressFile,
    ProgressReader,
    number,
    printed_end,
    whole_numeral,
)
from tuner.study import grouped
from tuner.trainers.presets import PRESETS

PLAIN, PRINTED = r"\d+", r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?[kKMGB]?"
"""Patterns for a number of digits alone, and for a number such as `12,800`, `1.28e+04` or `12.8K`."""
SPACED = r"\d{1,3}(?:[ _\u00a0\u202f]\d{3})*"
"""A pattern for a number such as `12 800`."""


_TRAINS = re.compile(r"(?i)(?<![a-z])(?:epochs?|train(?:ing)?)(?![a-z])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """How a trainer's lines show its progress."""

    preset: str | None
    """The preset that matches; None where the patterns were found by the form of the lines."""
    patterns: tuple[str, ...]
    """Empty where the trainer calls `report`."""
    reports: tuple[Progress, ...]
    """The progress that the patterns find in the lines."""
    lines: tuple[str, ...]
    """The last lines that complete an iteration."""
    file: ProgressFile | None = None
    """The file that shows the progress, where no line does."""
    is_sure: bool = True
    """Whether no preset that has begun to match may still match better."""
    printed: tuple[str, ...] = ()
    """All lines from which the patterns were found."""
    unsure: str = ""
    """Why the counts may be wrong, as a probe says it, too."""

    @property
    def counts_epochs(self) -> bool:
        """Whether each counted iteration is an epoch: the words right before the count name epochs."""
        return bool(EPOCH.search(self._words))

    @property
    def doubt(self) -> str:
        """Why counted iterations cannot be compared; empty where they can, or where samples are counted."""
        counts_episodes = EPISODE.search(self._words) and not self.counts_samples
        return self.unsure or ("episodes differ in length" if counts_episodes else "")

    @property
    def _words(self) -> str:
        """The words right before the count, or the name of its column."""
        if (last := self._last_count) is None:
            return "" if self.file is None else self.file.columns.get("iteration", "")
        return last.string[: last.start("iteration")]

    @property
    def called(self) -> str:
        """The newest count behind the word before it, such as `g_step 40`; empty where there is no such word."""
        last, word = self._last_count, re.search(r"[A-Za-z]\w*(?=\W*$)", self._words)
        return f"{word[0]} {last['iteration']}" if last and word else ""

    @property
    def end(self) -> float | None:
        """The end of the count that the last counted line prints; None where it prints none that is not below it."""
        last = self._last_count
        end = None if last is None else printed_end(last.string, last.end("iteration"))
        return None if end is None or last is None or end < (number(last["iteration"]) or 0.0) else end

    @property
    def to_end_s(self) -> float | None:
        """The seconds until the count has come to its end; what counts then may be another thing, after a warm-up.

        A count without words must come to its end several times, because evaluations may look like it. None where no
        end is known, where the count has begun again as often, or where its words name a training.
        """
        if _TRAINS.search(self._words):
            return None
        last, end = self._last_count, self.end
        begun = sum(one.pause is not None and bool(one.pause.every) for one in self.reports)
        more = (1 if re.search("[A-Za-z]", self._words) else LEAST_TURNS) - begun
        if last is None or end is None or more <= 0:
            return None
        return max(0.0, more * end - (number(last["iteration"]) or 0.0)) * (self.iteration_s or 0.0)

    @property
    def _last_count(self) -> re.Match[str] | None:
        counts = [pattern for pattern in self.patterns if "(?P<iteration>" in pattern]
        newest = chain(reversed(self.lines), reversed(self.printed))  # other lines may complete an iteration
        return next((match for line in newest for one in counts if (match := re.search(one, line))), None)

    @property
    def voices(self) -> int:
        """How many ranks print: how many lines in a row tell the same counts, again and again, with other numbers.

        A bar is drawn again and again, and a rounded count such as `1.0k` stays for some steps: they say nothing.
        """
        found = (re.search(self.patterns[-1], line) for line in self.printed if self.counts_numbers and self.patterns)
        matches = [one for one in found if one and not shows_bar(one.string) and not _is_rounded(one)]
        same = groupby(matches, lambda one: (one.groups(), re.sub(r"[\d.]+", "", one.string)))
        (most, times), *_ = Counter(len({one.string for one in group}) for _, group in same).most_common(1) or [(1, 0)]
        return most if times >= RECURS else 1

    def grows_by(self, batch: int) -> bool:
        """Return whether the count always grows by a multiple of a batch, as in `[640/60000]`: it may be of samples."""
        step = gcd(*(later.iteration - one.iteration for one, later in pairwise(self.reports)))
        return batch > 1 and step > 0 and step % batch == 0

    @property
    def counts_samples(self) -> bool:
        """Whether the trainer says how many samples it has collected."""
        return self.reports[-1].samples is not None

    @property
    def is_known(self) -> bool:
        """Whether a preset matches, or the trainer calls `report`."""
        return bool(self.preset) or not (self.patterns or self.file)

    @property
    def counts_numbers(self) -> bool:
        """Whether a printed number counts, rather than the lines."""
        return bool(self.preset) or not self.patterns or any("(?P<" in pattern for pattern in self.patterns)

    @property
    def prints_speeds(self) -> bool:
        """Whether the trainer prints samples per second."""
        return self.reports[-1].samples_per_s is not None

    @property
    def iteration_s(self) -> float | None:
        """The seconds from one counted iteration to the next, without the first one, which is often slower."""
        reports = list(self.reports)
        first, last = reports[1 if len(reports) > 2 else 0], reports[-1]
        counted = last.iteration - first.iteration
        return (last.t_s - first.t_s) / counted if counted else None


def find_progress(lines: Sequence[OutputLine], likely: Sequence[str] = (), *, last: bool = False) -> Found | None:
    """Return how these lines show progress; None if fewer than three iterations can be recognised.

    `likely` names presets that are tried before the others. If no more lines come (`last`), one iteration is enough
    for a likely preset, and for a preset that alone prints such lines.
    """
    if reported := _read([line for line in lines if line.stream == "progress"], None, ()):
        return reported
    printed = [line for line in lines if line.stream == "console"]
    begun = [name for name in PRESETS if name not in likely and _has_begun(printed, PRESETS[name].progress)]
    for name in dict.fromkeys((*likely, *begun, *PRESETS)):
        if found := _read(
            printed, name, PRESETS[name].progress, least=1 if last and name in (*likely, *begun) else RECURS
        ):
            return found if name in likely or found.counts_samples else _with_samples(found, printed)
    found = _read(printed, None, find_patterns([line.text for line in printed]))
    if found is None or len({report.t_s for report in found.reports}) < RECURS:  # a list of layers is printed at once
        return None
    return replace(found, is_sure=not begun)


def _with_samples(found: Found, lines: Sequence[OutputLine]) -> Found:
    """Return progress that also takes the samples that a bar shows behind its count, such as `env_step=600`."""
    if len(found.patterns) != 1:
        return found
    (bar,) = found.patterns
    bars = [match for line in lines if (match := re.search(bar, line.text))]
    behind = [bar.string[bar.end() :] for bar in bars]
    sampled = next((one for one in columns(behind) if one.counts_samples and one.step and not one.counts_tokens), None)
    if sampled is None:
        return found
    pattern = f"{bar}.*?{sampled.pattern()}(?P<samples>{PLAIN if sampled.is_plain else PRINTED})"
    with_samples = _read(lines, None, (pattern,))
    return with_samples if with_samples is not None and with_samples.counts_samples else found


def _has_begun(lines: Sequence[OutputLine], patterns: Sequence[str]) -> bool:
    """Return whether a line matches one of several patterns of a preset. A single pattern matches many trainers."""
    return len(patterns) > 1 and any(re.search(pattern, line.text) for pattern in patterns for line in lines)


def _read(
    lines: Sequence[OutputLine], preset: str | None, patterns: tuple[str, ...], *, least: int = RECURS
) -> Found | None:
    reader = ProgressReader(LinePatterns(patterns=patterns), 0.0)
    read = [(line, report) for line in lines if (report := reader.feed(line))]
    if len(read) < least:
        return None
    begun = max((place for place, (_, report) in enumerate(read) if report.begins_anew), default=0)
    reports = tuple(report for _, report in read[begun:])
    shown = tuple(line.text.strip() for line, _ in read[-RECURS:])
    texts, unsure = tuple(line.text for line in lines), reader.doubt or ""
    return Found(preset=preset, patterns=patterns, reports=reports, lines=shown, printed=texts, unsure=unsure)


def find_patterns(lines: Sequence[str]) -> tuple[str, ...]:
    """Return patterns for the numbers that count iterations and samples.

    The number of iterations is the counter whose words say so, or else the counter with the smallest step. If that
    counts samples, the lines are the iterations. Epochs are iterations only where nothing counts within them.
    If no number counts, the lines that tell of training again and again are the iterations; see `recurring`.
    """
    found = columns(lines)
    while chosen := _chosen(found):
        groups = _by_form(chosen)
        patterns = [_pattern(group) for group in groups]
        pairs = zip(patterns, groups, strict=True)
        misread = [column for pattern, group in pairs for one, column in group if not _is_read(pattern, one, column)]
        if not misread:
            return tuple(_after_warm_up(pattern, lines) for pattern in patterns)
        found = [column for column in found if column not in misread]
    return recurring(lines)


def _after_warm_up(pattern: str, lines: Sequence[str]) -> str:
    """Return a pattern that leaves out the ends of counts that are over before a much longer count begins.

    `step 400/400` before `step 10/100000` is a warm-up. A short probe may see nothing else.
    """
    head, count, tail = pattern.partition(f"(?P<iteration>{PLAIN})/")
    counts = re.compile(rf"{head}{count}\s*(?P<end>\d+)") if count else re.compile("(?!)")
    ends = [found["end"] for line in lines if (found := counts.search(line))]
    *before, last = [end for end, _ in groupby(ends)] or [""]
    if not before or ends.count(last) < RECURS or int(last) < MUCH_LONGER * max(map(int, before)):
        return pattern
    return rf"{head}{count}(?!\s*(?:{'|'.join(dict.fromkeys(before))})\b){tail}"


def _chosen(found: Sequence[Column]) -> dict[str, Column]:
    """Return the group of a pattern → the number that it takes; nothing where no number counts."""
    counters = [
        column
        for column in found
        if column.step and not (column.is_time or column.is_speed or column.is_share or column.prepares)
    ]
    if not counters:
        return {}
    iteration = min(_within_epochs(found, counters) or counters, key=_rank)
    samples = _samples_beside(iteration, counters)
    if samples is None and iteration.counts_samples:
        return {"samples": iteration}
    speed = None if samples else next((column for column in found if column.is_speed), None)
    epoch = _epoch_of(iteration, found)
    chosen = {"iteration": iteration, "samples": samples, "epoch": epoch, "samples_per_s": speed}
    return {name: column for name, column in chosen.items() if column}


def _samples_beside(iteration: Column, counters: Sequence[Column]) -> Column | None:
    """Return the number that counts samples: of several, the largest total. Tokens count where nothing else does.

    A number that grows as the iterations do counts no samples.
    """
    counted = [
        column
        for column in counters
        if column.counts_samples and column != iteration and column.values != iteration.values
    ]
    return max(counted, key=lambda column: (not column.counts_tokens, column.values[-1]), default=None)


def _by_form(chosen: Mapping[str, Column]) -> list[list[tuple[str, Column]]]:
    """Return the chosen numbers line by line, in the order of the output and of their places."""
    groups = grouped(chosen.items(), lambda one: one[1].form)
    ordered = sorted(groups.values(), key=lambda group: group[0][1].first_line)
    return [sorted(group, key=lambda one: one[1].place) for group in ordered]


def _is_read(pattern: str, name: str, column: Column) -> bool:
    """Return whether a pattern takes the very numbers of a column. It may match the lines of one rank alone."""
    compiled = re.compile(pattern)
    read = [
        number(whole_numeral(line, *found.span(name))) == value
        for line, value in zip(column.lines, column.values, strict=True)
        if (found := compiled.search(line))
    ]
    return len(read) >= RECURS and all(read)


def _is_rounded(match: re.Match[str]) -> bool:
    spans = (match.span(name) for name in match.re.groupindex if match[name])
    return any(whole_numeral(match.string, *span)[-1:].isalpha() for span in spans)


def _rank(column: Column) -> tuple[float, ...]:
    """Return the order in which counters are taken for the number of iterations: the first has the least rank.

    Words decide first, before all those of a count over all epochs. Then comes an end that is printed, then episodes,
    then the number of lines. In the same line the smaller step wins.
    """
    return (
        column.evaluates,
        not column.counts_overall,
        not column.counts_iterations,
        column.counts_samples,
        not column.has_end,
        not EPISODE.search(column.before),
        -len(column.values),
        column.step or 0.0,
    )


def _within_epochs(found: Sequence[Column], counters: Sequence[Column]) -> list[Column]:
    """Return the counters that advance within epochs. Without words, a counter needs an end or an epoch in its line."""
    forms = {column.form for column in found if column.counts_epochs}
    return [
        column
        for column in counters
        if not column.counts_epochs
        and not any(column.numbers_epochs_of(other) for other in counters)
        and (not forms or column.counts_iterations or column.counts_samples or column.has_end or column.form in forms)
    ]


def _epoch_of(iteration: Column, found: Sequence[Column]) -> Column | None:
    """Return the number of the epoch in the lines of a counter that starts again, or that may do so later."""
    for column in found:
        if column.form != iteration.form or column == iteration:
            continue
        may_start_again = iteration.falls or len(set(column.values)) == 1
        if column.numbers_epochs_of(iteration) or (column.counts_epochs and may_start_again):
            return column
    return None


def _pattern(group: Sequence[tuple[str, Column]]) -> str:
    """Return one pattern for the chosen numbers of one line."""
    pattern, then, before = "", "", None
    for name, column in group:
        shape = SPACED if column.is_spaced else PLAIN if column.is_plain else PRINTED
        own = column.pattern(before)
        pattern += ("" if own.startswith(f".*?{then}") else then) + f"{own}(?P<{name}>{shape})"
        then, before = column.then, column.place
    return pattern + then
