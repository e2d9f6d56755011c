"""Reads a trainer's progress from its lines, and collects lines that look like progress and match no pattern.

A printed count may start again at each epoch, and is then continued. Its end is the number that it will reach, such as
100 in `12/100`. A trainer may draw several progress bars, one for the training and one for an evaluation: then only the
bar that trains counts.

Progress comes in three ways: as messages that the trainer sends by `report()`, as messages about steps that were
counted inside its processes, or as printed lines, which the patterns of the study match. A field is a number of a
report, such as `iteration` or `samples`.
"""

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from tuner.probe.count_files import COUNTED_INSIDE
from tuner.probe.evidence import quoted
from tuner.probe.output import json_object
from tuner.probe.probe_plan import SCORE_GROUP, LinePatterns, OutputLine
from tuner.probe.result import Pause, Progress, Score, Thin

MOST_ITERATIONS = 2**31 - 1
"""The largest iteration that is accepted. Databases store an iteration as a step of 32 bits."""
MOST = 2**53
"""The largest other number that is accepted. Up to this number, a float represents every whole number exactly."""

END = re.compile(r"\s*(?:/|\bof\b)\s*(?P<end>\d[\d,_]*(?:\.\d+)?[kKMGB]?)(?![\d.])")
"""Matches what follows a count that is printed with its end, as in `12/100`."""
_NUMERAL = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKmMgGbBtT](?![A-Za-z]))?")
_GROUPED = re.compile(r"\d{1,3}(?:[,_\s]\d{3})+")
_POWERS = {"k": "e3", "K": "e3", "M": "e6", "G": "e9", "B": "e9"}


def numeral(line: str, begin: int, end: int) -> str:
    """Return the text of a number that begins at `begin`, where a pattern may have matched only its part up to `end`.

    A pattern such as `\\d+` matches `12` of `12,800`, `1` of `1.28e+04` and `12` of `12.8K`. A letter that may stand
    for a power is part of the text, too, also that of `1.8m`: `number` knows what it means, or returns None.
    """
    match = _NUMERAL.match(line, begin)
    if match is None or match.end() <= end:  # the pattern has matched all of it, and perhaps the sentence's comma
        return line[begin:end].rstrip(",.")
    text = match[0].rstrip(",_")
    is_list = re.search("[,_]", _GROUPED.sub("", text, count=1)) is not None  # such as `3,4`
    return line[begin:end] if is_list else text


def number(value: object, most: float = MOST, *, least: float = 0.0) -> float | None:
    """Read a number that a trainer has printed or sent: a number, or a text such as `12,800`, `1.28e+04` or `12.8K`.

    Returns None for a value that is not a number, is not finite, or is not between `least` and `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        text = value.strip()
        power = _POWERS.get(text[-1:], "")
        digits = text[:-1] if power else text
        value = _GROUPED.sub(lambda match: re.sub(r"[,_\s]", "", match[0]), digits) + power
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) and least <= result <= most else None


def is_rounded(text: str) -> bool:
    """Return whether the text of a count has so few digits that it stays the same for many steps: `1K` or `1.2M`."""
    return text[-1:] in _POWERS and sum(map(str.isdecimal, text)) < 3


class EpochCounter:
    """Continues a count when the printed count starts again, for example at a new epoch.

    Progress bars differ by their ends. A bar that begins in the middle of the bar that counts is left out. If a bar
    with another end follows a bar that has come to its end, nothing says which of the two trains.

    Several ranks may print the same count. Then a rank may still print the end of an epoch after another rank has begun
    the next one. Such late lines are left out.
    """

    NEAR_END = 0.9
    """A count has come to its end from this share of it on: the last steps may not be printed."""

    RESTART_DROP = 5
    """A count that falls by this much, to its first value or below, has started again.

    A smaller drop is no restart, because ranks that print the same count lag behind each other by an iteration or two.
    """

    def __init__(self) -> None:
        """Continue a printed count over epochs."""
        self.epoch_lengths: list[float] = []
        """The counts of the epochs that are over."""
        self.count_problem: str | None = None
        """Why the count may be wrong: the output does not say that an epoch is over, or which bar trains."""
        self._first: float | None = None
        """The lowest first count of an epoch; None before any count."""
        self._last = 0.0
        """The highest count of this epoch."""
        self._largest_step = 0.0
        """The largest step between two counts of this epoch."""
        self._last_epochs_largest_step = 0.0
        """The largest step between two counts of the epoch before."""
        self._end: float | None = None
        """The last count of this epoch, as it is printed; None where it is not."""
        self._epoch: float | None = None
        """The number of this epoch, as it is printed; None where it is not."""
        self._other_bar: tuple[float, float] | None = None
        """The end and the count of another bar, whose line came last; None after a line of the bar that counts."""

    def __call__(self, printed: float, *, epoch: float | None = None, end: float | None = None) -> float | None:
        """Return the count over all epochs; None for a line of another bar, and for a late line of the epoch before.

        Args:
            printed: the count that the line prints.
            epoch: the number of the epoch, if the trainer prints it.
            end: the last count of an epoch, if the trainer prints it.
        """
        # where epochs are numbered, bars need not be distinguished
        if epoch is None and not self._is_of_counting_bar(printed, end):
            return None
        if self._first is None:
            self._first = self._last = printed
        if self._is_late(printed, epoch):
            return None
        if self._starts_again(printed, epoch):
            if epoch is None and not self._is_complete:
                self.count_problem = self.count_problem or f"the count fell from {self._last:.0f} to {printed:.0f}"
            self._begin_epoch(printed)
        self._first = min(self._first, printed)
        self._largest_step = max(self._largest_step, printed - self._last)
        if printed >= self._last:  # a smaller count is that of another rank, which lags behind
            self._last, self._end = printed, end
        if epoch is not None:
            self._epoch = epoch
        return sum(self.epoch_lengths) + printed

    def _is_of_counting_bar(self, printed: float, end: float | None) -> bool:
        """Return whether a line is of the progress bar that counts; `printed` and `end` are its count and its end.

        A line with another end is of another bar. That bar becomes the one that counts with its second line, if its
        count has grown, and if the bar that counted so far is complete or has never moved.
        """
        if end is None or self._end is None or end == self._end:
            self._other_bar = None
            return True
        end_before, printed_before = self._other_bar or (None, 0.0)
        self._other_bar = end, printed
        if end_before != end or printed <= printed_before:
            return False
        if self._is_complete:
            self.count_problem = (
                self.count_problem or f"bars of {self._end:.0f} and {end:.0f} steps, and none says it trains"
            )
            self._begin_epoch(printed)
        elif self._largest_step > 0.0:  # the bar that counts goes on
            return False
        self._first = self._last = printed
        self._end = end
        return True

    def _begin_epoch(self, printed: float) -> None:
        """Keep the length of the epoch that is over, and begin the next one with its first count."""
        one_more = self._largest_step if self._first == 0 else 0.0  # counted from 0, the last step of ten is 9
        self.epoch_lengths.append(max(self._last, self._end or self._last + one_more))
        self._last, self._last_epochs_largest_step, self._largest_step = printed, self._largest_step, 0.0

    def _starts_again(self, printed: float, epoch: float | None) -> bool:
        """Return whether this is the first line of a new epoch.

        The printed number of the epoch shows it. Without that number, the count must have fallen by `RESTART_DROP`, to
        its first value or below. A count that falls before half the length of the last epoch is that of another rank.
        """
        if epoch is not None and self._epoch is not None:
            return epoch > self._epoch and printed <= self._last  # a larger count goes on over all epochs
        falls_far = self._last - printed >= self.RESTART_DROP and printed <= (self._first or 0.0)
        has_moved = self._largest_step > 0.0  # without a growth, the two lines may be those of two ranks
        last_length = self.epoch_lengths[-1] if self.epoch_lengths else 0.0
        return falls_far and has_moved and self._last >= last_length / 2

    def _is_late(self, printed: float, epoch: float | None) -> bool:
        """Return whether this is a late line of the epoch before, which another rank prints.

        The printed number of the epoch shows it. Without that number, a late line shows by its jump: an epoch has just
        begun, and the count is near the length of the epoch before.
        """
        if epoch is not None and self._epoch is not None:
            return epoch < self._epoch
        if not self.epoch_lengths or self.count_problem is not None:  # a length may be wrong
            return False
        last_length = self.epoch_lengths[-1]
        has_just_begun = self._last < last_length / 2
        is_near_end = printed >= self.NEAR_END * last_length
        jumps = printed - self._last > 2 * self._last_epochs_largest_step  # a line may be missing (2 is chosen)
        return has_just_begun and is_near_end and jumps

    @property
    def _is_complete(self) -> bool:
        """Whether the epoch has come near its printed end, or the next step would lead beyond it."""
        return self._end is not None and self._last >= min(self.NEAR_END * self._end, self._end - self._largest_step)


EVALUATES = re.compile(
    r"(?i)(?<![a-z])(?:test|testing|val|valid|validation|validat(?:e|ing)|eval|evaluat(?:e|ing|ion)|sanity)(?![a-z])"
)
"""Words of lines about an evaluation."""
_PREPARES = re.compile(
    r"(?i)\W*(?:train: )?(?:running )?(?:map|filter|load(?:ing)?|download(?:ing)?|fetching|resolving|extracting"
    r"|scanning|generating|caching|indexing|building|compiling|preparing|preprocess(?:ing)?|tokeniz(?:er|ing)|grouping)(?![a-z])"
)
"""The first words of bars before the training. Their steps are no iterations."""


def is_of_other_work(name: str, after: str) -> bool:
    """Return whether a progress bar is that of a preparation or an evaluation, whose steps are no iterations.

    Args:
        name: the text before the count. More than three words may be about an evaluation that is over.
        after: the text after the count. The bars with which `datasets` prepares its data count `examples/s`.
    """
    is_short = len(re.findall("[A-Za-z]{2,}", name)) <= 3
    return bool(_PREPARES.match(name)) or "examples/s" in after or (is_short and bool(EVALUATES.search(name)))


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
        """Read lines by patterns: those of progress, and those of scores alone."""
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
        printed = _whole_number(fields.get("iteration"), MOST_ITERATIONS)
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
        """Return the part at an iteration's end of which a session did only a share, to save time; None without one.

        The message has when that part began, and `thin_by`, the seconds of whole work that each of its seconds stands
        for. `began_s` and `t_s` are when the iteration began and ended: the part must begin between them.
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
        if self.pause is None and EVALUATES.search(text):
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
            self.score = Score(t_s, math.nan if score is None else score)

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
            does_not_train = end is not None and is_of_other_work(bar_name, after)
            is_left_out = is_iteration and (is_before_first_step or does_not_train)
            fields[count] = None if is_left_out else counter(printed, epoch=epoch, end=end)
            if counter.count_problem:
                self.count_problem = self.count_problem or counter.count_problem + (
                    "" if is_iteration else ", where samples are counted"
                )
            if is_rounded(text):
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
                    self._partial[group] = numeral(text, begin, end)
                    if group in self.COUNTS:
                        end_match = END.match(text, begin + len(self._partial[group]))
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
