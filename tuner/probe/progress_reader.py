"""Reads a trainer's progress from its lines, and collects lines that look like progress and match no pattern.

Progress comes in three ways: as messages that the trainer sends by `report()`, as messages about steps that were
counted inside its processes, or as printed lines, which the patterns of the study match. A field is a number of a
report, such as `iteration` or `samples`.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from math import nan
from typing import Any, TypeVar

from tuner.probe import counting
from tuner.probe.count_files import COUNTED_INSIDE
from tuner.probe.counting import MOST, EpochCounter, number
from tuner.probe.evidence import quoted
from tuner.probe.output import json_object
from tuner.probe.probe_plan import SCORE_GROUP, LinePatterns
from tuner.probe.protocols import OutputLine
from tuner.probe.result import Pause, Progress, Score, Thin

_Number = TypeVar("_Number", int, float)

FORMS = tuple(
    rf"(?i)\b(?:{words})s?\b[\s:=#\[(|]{{0,9}}(?P<iteration>\d[\d,_]*)"
    for words in ("iteration|iter|step|batch", "epoch")
)
"""The plain forms of progress, such as `iteration 12`. An epoch counts where nothing else does."""


class Unmatched:
    """Collects lines that look like progress although no pattern of the study matches them, to quote them in a message.

    These are plain forms, such as `step 12`, and progress bars whose count grows.
    """

    def __init__(self) -> None:
        forms = (*FORMS, r"(?P<iteration>\d+)/\d+ \[")
        self._readers = [ProgressReader(LinePatterns(patterns=(form,)), 0.0) for form in forms]
        self._latest: deque[str] = deque(maxlen=3)
        """The last such lines."""

    @property
    def lines(self) -> Sequence[str]:
        """The last lines that look like progress. Empty until three lines have shown a growing count."""
        return list(self._latest) if len(self._latest) == self._latest.maxlen else []

    def feed(self, text: str) -> None:
        """Consider a line that no pattern has matched."""
        if any(reader.feed(OutputLine(t_s=0.0, text=text)) for reader in self._readers):
            self._latest.append(quoted(text.strip()))


class ProgressReader:
    """Turns lines into progress reports.

    A line whose iteration is not finite, or has not grown, makes no report. If no pattern has the group `iteration`,
    each printed match counts as one iteration, except where it repeats the samples of an earlier match. Other fields
    that are not finite or have decreased are None in their report.

    `origin_s` is the monotonic time at which the probe's clock is 0.
    """

    COUNTS = ("iteration", "samples")
    """The groups of counts that may start again at each epoch."""
    SAVES = re.compile(r"(?i)(?<![a-z])(?:checkpoint|saving|saved)")
    """Words of lines about a checkpoint."""

    def __init__(self, patterns: LinePatterns, origin_s: float) -> None:
        """Begin before the first line, and divide the patterns into those of progress and those of scores."""
        self.patterns = patterns
        score = f"(?P<{SCORE_GROUP}>"
        # a training that diverges prints `nan` and `inf`, too
        any_score = rf"{score}(?i:[-+]?(?:nan|inf(?:inity)?)\b)|"
        compiled = [re.compile(pattern.replace(score, any_score)) for pattern in patterns.patterns]
        # a pattern of a score alone shows no progress; a pattern of progress may have a score, too
        self._progress_patterns = [pattern for pattern in compiled if pattern.groupindex.keys() != {SCORE_GROUP}]
        self._score_patterns = [pattern for pattern in compiled if SCORE_GROUP in pattern.groupindex]
        self._counts_lines = not any("iteration" in pattern.groupindex for pattern in self._progress_patterns)
        self._lines_by_rank: Counter[int | None] = Counter()
        """Rank → the matches that have counted as iterations."""
        self._origin_s = origin_s
        self._partial: dict[str, Any] = {}
        """The fields that patterns have found since the last pattern has matched."""
        self._counters: dict[tuple[str | None, str], EpochCounter] = defaultdict(EpochCounter)
        """Rank and one of `COUNTS` → what continues the count over epochs."""
        self.score: Score | None = None
        """How well the trained model did last, as `Score` says; of the first rank, if ranks report for themselves."""
        self.matched = 0
        """The number of times that a printed line has matched a pattern."""
        self.count_problem: str | None = None
        """Why the samples may be wrong. It stays: after one count that made no sense, later ones may be wrong, too."""
        self.pause: Pause | None = None
        """The pause, such as an evaluation, that lines since the last report are about; None without one."""
        self.counts_inside = False
        """Whether iterations and samples are counted inside the training."""
        self._trainer_reports = False
        """Whether the trainer has reported an iteration itself."""
        self._highest: dict[tuple[int | None, str], float] = {}
        """Rank and field → the highest value so far."""

    def feed(self, line: OutputLine) -> Progress | None:
        """Read a line, and return the report of an iteration that it completes; None if it completes none.

        A line is a message of the trainer or of what counts inside it, or else a printed line that patterns may match.
        """
        if line.stream == "progress":
            message = json_object(line.text)
            self._note_score(line.t_s, None if message.get("rank") else message.get("score"))
            return self._feed_message(message, line)
        score_match = next(filter(None, (pattern.search(line.text) for pattern in self._score_patterns)), None)
        self._note_score(line.t_s, score_match and score_match[SCORE_GROUP])
        fields = self._feed_printed(line.text)
        if fields is None or self.counts_inside:  # no iteration, or one that is counted inside already
            self._note_pause(line.text)
            return None
        if self._counts_lines:  # no pattern reads an iteration: each match is one, unless it repeats samples
            rank, samples = _whole_number(fields.get("rank")), _whole_number(fields.get("samples"))
            if samples is None or samples > self._highest.get((rank, "samples"), -1):
                self._lines_by_rank[rank] += 1
            fields["iteration"] = self._lines_by_rank[rank]
        return self._report(fields, line)

    def _feed_message(self, message: dict[str, Any], line: OutputLine) -> Progress | None:
        """Return the iteration that a message reports, in the form of `_report`; None if it reports none.

        The trainer sends messages, and so does what counts inside it. The two counts may differ, so counts from inside
        are left out once the trainer has reported an iteration. The first of them replaces all that was printed before.
        `line` is the line of the message, with its time.
        """
        begins_anew = False
        if not message.get(COUNTED_INSIDE):
            self._trainer_reports = self._trainer_reports or "iteration" in message
        elif not self.counts_inside:
            if self._trainer_reports:
                return None
            begins_anew = self.counts_inside = True
            self.count_problem = None
            self._highest.clear()
        if self.counts_inside:
            pause = message.get("pause")
            self.pause = Pause(str(pause.get("what")), number(pause.get("every"))) if isinstance(pause, dict) else None
        return self._report(message, line, begins_anew=begins_anew)

    def _report(self, fields: dict[str, Any], line: OutputLine, *, begins_anew: bool = False) -> Progress | None:
        """Return the report that some fields make; None if the iteration has not grown, or the rank is not a number.

        Args:
            fields: `iteration`, `rank`, `samples` and so on → what was printed or sent.
            line: The line that completes the fields.
            begins_anew: Whether no earlier report counts any more.
        """
        rank = _whole_number(fields.get("rank"))
        if rank is None and fields.get("rank") is not None:
            return None
        iteration_before = self._highest.get((rank, "iteration"), -1)
        printed = _whole_number(fields.get("iteration"), counting.MOST_ITERATIONS)
        iteration = self._unless_lower(rank, "iteration", printed)
        if iteration is None or iteration == iteration_before:
            return None
        pause, self.pause = self.pause, None  # it belongs to this report
        samples, samples_before = _whole_number(fields.get("samples")), self._highest.get((rank, "samples"), 0)
        if samples is not None and samples < samples_before:
            why = f"`samples` fell from {samples_before:.0f} to {samples}, so it is not the total since the start"
            self.count_problem = self.count_problem or why
        began_s = self._highest.get((rank, "t_s"), 0.0)  # the end of the iteration before
        stamp_s = number(fields.get("t_s"))
        # the end of the iteration by the rank's own clock, unless that time did not grow or lies in the future
        t_s = line.t_s if stamp_s is None else stamp_s - self._origin_s
        t_s = self._highest[rank, "t_s"] = t_s if began_s < t_s <= line.t_s else line.t_s
        return Progress(
            iteration=iteration,
            rank=rank,
            samples=self._unless_lower(rank, "samples", samples),
            busy_s=self._unless_lower(rank, "busy_s", number(fields.get("busy_s"))),
            alloc_retries=self._unless_lower(rank, "alloc_retries", _whole_number(fields.get("alloc_retries"))),
            t_s=t_s,
            thin=self._thin(fields, began_s, t_s),
            pause=pause,
            begins_anew=begins_anew,
        )

    def _thin(self, fields: dict[str, Any], began_s: float, t_s: float) -> Thin | None:
        """Return the thin part of an iteration: its end, of which a session has done only a share; None without one.

        Its message has `thin_by`, the seconds of training that each second of the part stands for. `began_s` and `t_s`
        are when the iteration began and ended: the part must begin between them.
        """
        stamp_s, trained_per_s = number(fields.get("thin_from_s")), number(fields.get("thin_by"))
        if stamp_s is None or trained_per_s is None or trained_per_s <= 1:
            return None
        from_s = stamp_s - self._origin_s
        return Thin(from_s, trained_per_s) if began_s <= from_s < t_s else None

    def _note_pause(self, text: str) -> None:
        """Note the pause, such as an evaluation, that a printed line is about by its words.

        Of several pauses since the last report, the first one stays.
        """
        if self.pause is None and counting.EVALUATES.search(text):
            self.pause = Pause("an evaluation")
        elif self.pause is None and self.SAVES.search(text):
            self.pause = Pause("a checkpoint")

    def _note_score(self, t_s: float, value: object) -> None:
        """Note `value`, which a trainer has printed or sent, as the newest score, if it is a number.

        A number that is not finite, or larger than `MOST`, becomes NaN: the training has diverged.
        """
        score = number(value, least=-MOST)
        if score is None and isinstance(value, str):
            with suppress(ValueError):  # the text is no number
                value = float(value)
        if score is not None or isinstance(value, int | float):
            self.score = Score(t_s, nan if score is None else score)

    def _unless_lower(self, rank: int | None, field: str, value: _Number | None) -> _Number | None:
        """Return the value of a rank's field, or None if the field has been higher before.

        The value is noted as the highest so far.
        """
        if value is None or value < self._highest.get((rank, field), 0):
            return None
        self._highest[rank, field] = value
        return value

    def _over_epochs(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a printed line with counts over all epochs, where counts start again at each epoch.

        The iteration of a progress bar that does not train becomes None. Pauses that the fields show are noted, and so
        is a count that makes no sense. `fields`: group of a pattern → its text; they are changed.
        """
        epoch, rank = number(fields.get("epoch")), fields.get("rank")
        bar_name, after = fields.get("name", ""), fields.get("after", "")
        for count in self.COUNTS:
            text, end, counter = fields.get(count, ""), fields.get(f"{count} end"), self._counters[rank, count]
            if (printed := number(text)) is None:
                continue
            is_iteration = count == "iteration"
            epochs_before = len(counter.epoch_lengths)
            is_before_first_step = printed == 0 and "?" in after  # so tqdm draws a bar that has not begun
            does_not_train = end is not None and counting.is_of_other_work(bar_name, after)
            is_left_out = is_iteration and (is_before_first_step or does_not_train)
            fields[count] = None if is_left_out else counter(printed, epoch=epoch, end=end)
            if counter.count_problem:
                self.count_problem = self.count_problem or counter.count_problem + (
                    "" if is_iteration else ", where samples are counted"
                )
            if counting.is_rounded(text):
                self.count_problem = self.count_problem or f"a count is rounded, as {text}, so that steps are lost"
            if is_iteration and len(counter.epoch_lengths) > epochs_before:
                self.pause = Pause("an epoch's end", counter.epoch_lengths[-1])
            elif is_iteration and fields[count] is None:  # the bar may be that of an evaluation
                self._note_pause(bar_name)
        return fields

    def _feed_printed(self, text: str) -> dict[str, Any] | None:
        """Look for the patterns in a printed line, and return the fields of an iteration once they are complete.

        The fields may be spread over several lines. They are complete when the last pattern has matched. Before, they
        are kept, and None is returned.

        Returns:
            Group of a pattern → its text, such as `iteration` → `12`. `name` and `after` are the texts before and after
            the iteration, such as the name of a bar. `iteration end` and `samples end` are the last count of an epoch,
            which the line prints after the count, as in `12/100`.
        """
        for pattern in self._progress_patterns:
            if match := pattern.search(text):
                self.matched += 1
                for group in (name for name, value in match.groupdict().items() if value is not None):
                    begin, end = match.span(group)
                    self._partial[group] = counting.numeral(text, begin, end)
                    if group in self.COUNTS:
                        end_match = counting.END.match(text, begin + len(self._partial[group]))
                        self._partial[f"{group} end"] = end_match and number(end_match["end"])
                    if group == "iteration":
                        self._partial |= {"name": text[:begin], "after": text[end:]}
                if pattern is self._progress_patterns[-1]:
                    fields, self._partial = self._partial, {}
                    return self._over_epochs(fields)  # counts that begin anew in each epoch go on instead
        return None


def _whole_number(value: object, most: float = MOST) -> int | None:
    """Return the whole part of a number that was printed or sent; None if it is no number, or larger than `most`."""
    amount = number(value, most)
    return None if amount is None else int(amount)
