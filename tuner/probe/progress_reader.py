"""Reads a trainer's progress from its lines, and finds lines that look like progress that no pattern matches."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from math import nan
from typing import Any

from tuner.probe import counting
from tuner.probe.counting import MOST, EpochCounter, number
from tuner.probe.evidence import quoted
from tuner.probe.output import record
from tuner.probe.probe_plan import SCORE_GROUP, LinePatterns
from tuner.probe.progress_files import COUNTED
from tuner.probe.protocols import OutputLine
from tuner.probe.result import Pause, Progress, Score, Thin

FORMS = tuple(
    rf"(?i)\b(?:{words})s?\b[\s:=#\[(|]{{0,9}}(?P<iteration>\d[\d,_]*)"
    for words in ("iteration|iter|step|batch", "epoch")
)
"""The plain forms of progress, such as `iteration 12`. An epoch counts where nothing else does."""


class Unmatched:
    """Collects lines that look like progress: those of a plain form, or bars, whose count grows."""

    def __init__(self) -> None:
        forms = (*FORMS, r"(?P<iteration>\d+)/\d+ \[")
        self._readers = [ProgressReader(LinePatterns(patterns=(form,)), 0.0) for form in forms]
        self._grown = 0
        self._latest: deque[str] = deque(maxlen=3)

    @property
    def lines(self) -> Sequence[str]:
        """The last lines that look like progress. Empty until three lines have shown a growing count."""
        return list(self._latest) if self._grown >= 3 else []

    def feed(self, text: str) -> None:
        """Consider a line that no pattern has matched."""
        if any(reader.feed(OutputLine(t_s=0.0, text=text)) for reader in self._readers):
            self._grown += 1
            self._latest.append(quoted(text.strip()))


class ProgressReader:
    """Turns lines into progress reports.

    A line without a finite, growing iteration is not a report. If no pattern has the group `iteration`, each printed
    match counts as one iteration, except where it repeats the samples of an earlier match. Other fields that are not
    finite or have decreased are unknown in their report.

    `origin_s` is the monotonic time at which the probe's clock is 0.
    """

    COUNTS = ("iteration", "samples")
    """The groups of counts that may start again at each epoch."""
    SAVES = re.compile(r"(?i)(?<![a-z])(?:checkpoint|saving|saved)")
    """Words of lines that tell of a checkpoint."""

    def __init__(self, patterns: LinePatterns, origin_s: float) -> None:
        self.patterns = patterns
        compiled = [re.compile(_with_any_score(pattern)) for pattern in patterns.patterns]
        self._marks = [pattern for pattern in compiled if pattern.groupindex.keys() != {SCORE_GROUP}]
        self._scores = [pattern for pattern in compiled if SCORE_GROUP in pattern.groupindex]
        self._counts_lines = not any("iteration" in pattern.groupindex for pattern in self._marks)
        self._counted: Counter[int | None] = Counter()
        self._origin_s = origin_s
        self._partial: dict[str, Any] = {}
        self._counters: dict[tuple[str | None, str], EpochCounter] = defaultdict(EpochCounter)
        self.score: Score | None = None
        """The newest score; of the first rank, if ranks report for themselves."""
        self.matched = 0
        """The number of times that a printed line has matched a pattern."""
        self.doubt: str | None = None
        """Why the samples may be wrong: something that was counted once made no sense, so no later count is trusted."""
        self._pause: Pause | None = None
        """What the lines since the last report tell of."""
        self.counts_inside = False
        """Whether iterations and samples are counted inside the training."""
        self._reports = False
        self._highest: dict[tuple[int | None, str], float] = {}

    @property
    def pauses(self) -> bool:
        """Whether a line since the last report tells of something else than training, such as an evaluation."""
        return self._pause is not None

    def feed(self, line: OutputLine) -> Progress | None:
        """Return the progress report that this line completes, or None."""
        if line.stream == "progress":
            message = record(line.text)
            self._note_score(line.t_s, None if message.get("rank") else message.get("score"))
            return self._reported(message, line)
        match = next(filter(None, (pattern.search(line.text) for pattern in self._scores)), None)
        self._note_score(line.t_s, match and match[SCORE_GROUP])
        fields = self._printed(line.text)
        if fields is None or self.counts_inside:
            self._note_pause(line.text)
            return None
        if self._counts_lines:
            fields["iteration"] = self._count_line(_count(fields.get("rank")), _count(fields.get("samples")))
        return self._report(fields, line)

    def _reported(self, message: dict[str, Any], line: OutputLine) -> Progress | None:
        """Return the report of a message: what the trainer reports itself goes before what is counted inside."""
        if message.get("doubt"):
            self._suspect(str(message["doubt"]))
        begins_anew = bool(message.get(COUNTED)) and not self._reports and not self.counts_inside
        if begins_anew:
            self.counts_inside, self.doubt = True, None
            self._highest.clear()
        elif message.get(COUNTED) and not self.counts_inside:
            return None
        if not message.get(COUNTED):
            self._reports = self._reports or "iteration" in message
        if self.counts_inside:
            self._pause = _pause(message.get("pause"))
        return self._report(message, line, begins_anew=begins_anew)

    def _report(self, fields: dict[str, Any], line: OutputLine, *, begins_anew: bool = False) -> Progress | None:
        """Return the report of these fields; None where their iteration has not grown, or the rank is none."""
        rank = _count(fields.get("rank"))
        if rank is None and fields.get("rank") is not None:
            return None
        before = self._highest.get((rank, "iteration"), -1)
        iteration = self._grown(rank, "iteration", _count(fields.get("iteration"), counting.MOST_ITERATIONS))
        if iteration is None or iteration == before:
            return None
        pause, self._pause = self._pause, None
        began_s = self._highest.get((rank, "t_s"), 0.0)
        t_s = self._time_s(rank, number(fields.get("t_s")), line)
        return Progress(
            iteration=int(iteration),
            rank=rank,
            samples=self._total(rank, _count(fields.get("samples"))),
            busy_s=self._grown(rank, "busy_s", number(fields.get("busy_s"))),
            alloc_retries=_whole(self._grown(rank, "alloc_retries", _count(fields.get("alloc_retries")))),
            t_s=t_s,
            thin=self._thin(number(fields.get("thin_from_s")), number(fields.get("thin_by")), began_s, t_s),
            pause=pause,
            begins_anew=begins_anew,
        )

    def _total(self, rank: int | None, samples: int | None) -> int | None:
        """Return the samples so far; None for a number that is below an earlier one, so that it is no total."""
        before = self._highest.get((rank, "samples"), 0)
        if samples is not None and samples < before:
            self._suspect(f"`samples` fell from {before:.0f} to {samples}, so it is not the total since the start")
        return _whole(self._grown(rank, "samples", samples))

    def _suspect(self, why: str | None) -> None:
        self.doubt = self.doubt or why

    def _note_pause(self, text: str) -> None:
        """Remember what a line that reports no iteration tells of; the end of an epoch goes before all else."""
        if self._pause is None and counting.EVALUATES.search(text):
            self._pause = Pause("an evaluation")
        elif self._pause is None and self.SAVES.search(text):
            self._pause = Pause("a checkpoint")

    def _note_score(self, t_s: float, printed: object) -> None:
        if (score := _score(printed)) is not None:
            self.score = Score(t_s, score)

    def _count_line(self, rank: int | None, samples: int | None) -> int:
        """Return the iteration of a match: one more than before, unless its samples are those of an earlier match."""
        if samples is None or samples > self._highest.get((rank, "samples"), -1):
            self._counted[rank] += 1
        return self._counted[rank]

    def _grown(self, rank: int | None, name: str, value: float | None) -> float | None:
        """Return the value, or None when it is below the rank's earlier values of the same name."""
        if value is None or value < self._highest.get((rank, name), 0):
            return None
        self._highest[rank, name] = value
        return value

    def _time_s(self, rank: int | None, stamp_s: float | None, line: OutputLine) -> float:
        """Return the rank's time stamp on the probe's clock.

        Returns the time at which the tuner read the line instead, if the stamp did not grow or lies in the future.
        """
        before_s = self._highest.get((rank, "t_s"), 0.0)
        own_s = line.t_s if stamp_s is None else stamp_s - self._origin_s
        t_s = own_s if before_s < own_s <= line.t_s else line.t_s
        self._highest[rank, "t_s"] = t_s
        return t_s

    def _thin(self, stamp_s: float | None, by: float | None, began_s: float, t_s: float) -> Thin | None:
        """Return the thin part of the iteration from `began_s` to `t_s`, or None when it begins outside."""
        if stamp_s is None or by is None or by <= 1:
            return None
        from_s = stamp_s - self._origin_s
        return Thin(from_s, by) if began_s <= from_s < t_s else None

    def _over_epochs(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return printed fields with counts that go on where the trainer starts them again at a new epoch."""
        epoch, rank, name = number(fields.get("epoch")), fields.get("rank"), fields.get("name", "")
        for count in self.COUNTS:
            text, end, counter = fields.get(count, ""), fields.get(f"{count} end"), self._counters[rank, count]
            if (printed := number(text)) is None:
                continue
            is_iteration, epochs, after = count == "iteration", len(counter.epoch_ends), fields.get("after", "")
            is_before_first_step = printed == 0 and "?" in after  # tqdm draws its bar so
            is_no_training = end is not None and counting.is_aside(name, after)
            is_left_out = is_iteration and (is_before_first_step or is_no_training)
            fields[count] = None if is_left_out else counter(printed, epoch=epoch, end=end)
            self._suspect(counter.doubt and f"{counter.doubt}{'' if is_iteration else ', where samples are counted'}")
            if counting.is_rounded(text):
                self._suspect(f"a count is rounded, as {text}, so that steps are lost")
            if is_iteration and len(counter.epoch_ends) > epochs:
                self._pause = Pause("an epoch's end", counter.epoch_ends[-1])
            elif is_iteration and fields[count] is None:
                self._note_pause(name)
        return fields

    def _printed(self, text: str) -> dict[str, Any] | None:
        """Return the fields that the patterns have found, once the last pattern matches; None before that.

        `name` and `after` are the texts before and after the iteration, such as the name of a bar.
        """
        for pattern in self._marks:
            if match := pattern.search(text):
                self.matched += 1
                for group in (name for name, value in match.groupdict().items() if value is not None):
                    begin, end = match.span(group)
                    self._partial[group] = counting.numeral(text, begin, end)
                    if group in self.COUNTS:
                        self._partial[f"{group} end"] = counting.printed_end(text, begin + len(self._partial[group]))
                    if group == "iteration":
                        self._partial |= {"name": text[:begin], "after": text[end:]}
                if pattern is self._marks[-1]:
                    fields, self._partial = self._partial, {}
                    return self._over_epochs(fields)
        return None


def _pause(message: object) -> Pause | None:
    """Return the pause that a part of a message tells of; None where it tells of none."""
    return Pause(str(message.get("what")), number(message.get("every"))) if isinstance(message, dict) else None


def _with_any_score(pattern: str) -> str:
    """Return a pattern whose score may be `nan` and `inf`, too: a training that diverges prints them."""
    group = f"(?P<{SCORE_GROUP}>"
    return pattern.replace(group, rf"{group}(?i:[-+]?(?:nan|inf(?:inity)?)\b)|")


def _score(value: object) -> float | None:
    """Return a printed score; NaN where it is not finite, or larger than any score; None where it is no number."""
    if (known := number(value, least=-MOST)) is not None or not isinstance(value, int | float | str):
        return known
    try:
        float(value)
    except ValueError:
        return None
    except OverflowError:  # an integer that no float can hold
        pass
    return nan


def _count(value: object, most: float = MOST) -> int | None:
    return _whole(number(value, most))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
