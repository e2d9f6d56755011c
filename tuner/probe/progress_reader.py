"""Reads a trainer's progress from its lines, and finds lines that look like progress that no pattern matches."""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from math import nan
from typing import Any, TypeVar

from tuner.probe.count_files import COUNTED
from tuner.probe.counting import (
    EVALUATES,
    MOST,
    MOST_ITERATIONS,
    Unwrapped,
    is_aside,
    is_rounded,
    number,
    printed_end,
    whole_numeral,
)
from tuner.probe.evidence import quoted
from tuner.probe.probe_plan import SCORE_GROUP, LinePatterns
from tuner.probe.protocols import OutputLine
from tuner.probe.result import Pause, Progress, Score, Thin

RECURS = 3
"""The number of lines, each with a count that has grown, that show progress."""

_SHOWN = 3
FORMS = tuple(
    rf"(?i)\b{word}s?\b[\s:=#\[(|]{{0,9}}(?P<iteration>\d[\d,_]*)"
    for word in ("(?:iteration|iter)", "step", "batch", "epoch")
)
"""The plain forms of progress, such as `iteration 12`. An epoch counts where nothing else does."""
_BAR = r"(?P<iteration>\d+)/\d+ \["


class Unmatched:
    """Collects lines that look like progress: those of a plain form whose count grows."""

    def __init__(self) -> None:
        self._readers = [ProgressReader(LinePatterns(patterns=(form,)), 0.0) for form in (*FORMS, _BAR)]
        self._grown = 0
        self._last: deque[str] = deque(maxlen=_SHOWN)

    @property
    def lines(self) -> Sequence[str]:
        """The last lines that look like progress. Empty until lines clearly show progress."""
        return list(self._last) if self._grown >= RECURS else []

    def feed(self, text: str) -> None:
        """Consider a line that no pattern has matched."""
        if any(reader.feed(OutputLine(t_s=0.0, text=text)) for reader in self._readers):
            self._grown += 1
            self._last.append(quoted(text.strip()))


N = TypeVar("N", int, float)
BOM = "\ufeff"
"""The byte order mark with which some programs begin a file; it is no text."""
_NOT_FINITE = r"(?i:[-+]?(?:nan|inf(?:inity)?)\b)"
_SCORE = f"(?P<{SCORE_GROUP}>"
_COUNTS = ("iteration", "samples")
"""The groups of counts that may start again at each epoch."""
_NAME, _AFTER = "name", "after"
"""The fields for the text before the iteration, such as the name of a bar, and for the text after it."""
_SAVES = re.compile(r"(?i)(?<![a-z])(?:checkpoint|saving|saved)")


class ProgressReader:
    """Turns lines into progress reports.

    A line without a finite, growing iteration is not a report. If no pattern has the group `iteration`, each printed
    match counts as one iteration, except where it repeats the samples of an earlier match. Other fields that are not
    finite or have decreased are unknown in their report. `origin_s` is the monotonic time at which the probe's clock
    is 0.
    """

    def __init__(self, patterns: LinePatterns, origin_s: float) -> None:
        self.patterns = patterns
        compiled = [re.compile(_with_any_score(pattern)) for pattern in patterns.patterns]
        self._marks = [pattern for pattern in compiled if pattern.groupindex.keys() != {SCORE_GROUP}]
        self._returns = [pattern for pattern in compiled if SCORE_GROUP in pattern.groupindex]
        self._counts_lines = not any("iteration" in pattern.groupindex for pattern in self._marks)
        self._counted: Counter[int | None] = Counter()
        self._origin_s = origin_s
        self._partial: dict[str, Any] = {}
        self._counters: dict[tuple[str | None, str], Unwrapped] = defaultdict(Unwrapped)
        self.score: Score | None = None
        """The newest score; of the first rank, if ranks report for themselves."""
        self.matched = 0
        """The number of times that a printed line has matched a pattern."""
        self.doubt: str | None = None
        """Why the samples may be wrong: something that was counted once made no sense, so no later count is trusted."""
        self._pause: Pause | None = None
        """What the lines since the last report tell of."""
        self._reports = self._counts_inside = self._is_first_count = False
        self._highest: dict[tuple[int | None, str], float] = {}

    @property
    def pauses(self) -> bool:
        """Whether a line since the last report tells of something else than training, such as an evaluation."""
        return self._pause is not None

    def feed(self, line: OutputLine) -> Progress | None:
        """Return the progress report that this line completes, or None."""
        told = record(line.text) if line.stream == "progress" else None
        self._note_score(line, told)
        fields = self._printed(line.text) if told is None else told
        if fields is None:
            self._note_pause(line.text)
            return None
        if told is not None and told.get("doubt"):
            self._suspect(str(told["doubt"]))
        if not self._takes(told):
            if told is None:
                self._note_pause(line.text)
            return None
        rank = _count(fields.get("rank"))
        if rank is None and fields.get("rank") is not None:
            return None
        if line.stream == "console" and self._counts_lines:
            fields["iteration"] = self._count_line(rank, _count(fields.get("samples")))
        before = self._highest.get((rank, "iteration"), -1)
        iteration = self._grown(rank, "iteration", _count(fields.get("iteration"), MOST_ITERATIONS))
        is_drawn = told is None and iteration == 0 and "?" in fields.get(_AFTER, "")  # tqdm's bar before a step
        if iteration is None or iteration == before or is_drawn:
            return None
        pause, self._pause = _pause(told) if self._counts_inside else self._pause, None
        begins_anew, self._is_first_count = self._is_first_count, False
        began_s = self._highest.get((rank, "t_s"), 0.0)
        t_s = self._time_s(rank, number(fields.get("t_s")), line)
        return Progress(
            iteration=iteration,
            rank=rank,
            samples=self._total(rank, _count(fields.get("samples"))),
            samples_per_s=number(fields.get("samples_per_s")),
            busy_s=self._grown(rank, "busy_s", number(fields.get("busy_s"))),
            alloc_retries=self._grown(rank, "alloc_retries", _count(fields.get("alloc_retries"))),
            allocated_mib=number(fields.get("allocated_mib")),
            reserved_mib=number(fields.get("reserved_mib")),
            t_s=t_s,
            thin=self._thin(number(fields.get("thin_from_s")), number(fields.get("thin_by")), began_s, t_s),
            pause=pause,
            begins_anew=begins_anew,
        )

    def _takes(self, told: dict[str, Any] | None) -> bool:
        """Return whether a report counts: what the trainer reports itself, else what is counted inside, else lines."""
        if told is None:
            return not self._counts_inside
        if not told.get(COUNTED):
            self._reports = self._reports or "iteration" in told
            return True
        if not self._reports and not self._counts_inside:
            self._counts_inside = self._is_first_count = True
            self.doubt = None
            self._highest.clear()
        return self._counts_inside

    def _total(self, rank: int | None, samples: int | None) -> int | None:
        """Return the samples so far; None for a number that is below an earlier one, so that it is no total."""
        before = self._highest.get((rank, "samples"), 0)
        if samples is not None and samples < before:
            self._suspect(f"`samples` fell from {before:.0f} to {samples}, so it is not the total since the start")
        return self._grown(rank, "samples", samples)

    def _suspect(self, why: str | None) -> None:
        self.doubt = self.doubt or why

    def _note_pause(self, text: str) -> None:
        """Remember what a line that reports no iteration tells of; the end of an epoch goes before all else."""
        if self._pause is None and EVALUATES.search(text):
            self._pause = Pause("an evaluation")
        elif self._pause is None and _SAVES.search(text):
            self._pause = Pause("a checkpoint")

    def _note_score(self, line: OutputLine, told: dict[str, Any] | None) -> None:
        if told is not None:
            value = None if told.get("rank") else _score(told.get("score"))
        else:
            found = next(filter(None, (pattern.search(line.text) for pattern in self._returns)), None)
            value = found and _score(found[SCORE_GROUP])
        if value is not None:
            self.score = Score(line.t_s, value)

    def _count_line(self, rank: int | None, samples: int | None) -> int:
        """Count a match of a rank as an iteration, unless its samples are those of an earlier match."""
        if samples is None or samples > self._highest.get((rank, "samples"), -1):
            self._counted[rank] += 1
        return self._counted[rank]

    def _grown(self, rank: int | None, name: str, value: N | None) -> N | None:
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
        own_s = None if stamp_s is None else stamp_s - self._origin_s
        t_s = own_s if own_s is not None and before_s < own_s <= line.t_s else line.t_s
        self._highest[rank, "t_s"] = t_s
        return t_s

    def _thin(self, stamp_s: float | None, by: float | None, began_s: float, t_s: float) -> Thin | None:
        """Return the thin part of the iteration from `began_s` to `t_s`, or None when it begins outside."""
        if stamp_s is None or by is None or by <= 1:
            return None
        from_s = stamp_s - self._origin_s
        return Thin(from_s, by) if began_s <= from_s < t_s else None

    def _over_epochs(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Make printed counts continue when the trainer starts them again at a new epoch."""
        epoch, rank, name = number(fields.get("epoch")), fields.get("rank"), fields.get(_NAME, "")
        for count in _COUNTS:
            text, end, counter = fields.get(count, ""), fields.get(_end_of(count)), self._counters[rank, count]
            if (printed := number(text)) is None:
                continue
            is_iteration, over = count == "iteration", len(counter.epoch_ends)
            is_other = is_iteration and end is not None and is_aside(name, fields.get(_AFTER, ""))
            fields[count] = None if is_other else counter(printed, epoch=epoch, end=end)
            self._suspect(counter.doubt and f"{counter.doubt}{'' if is_iteration else ', where samples are counted'}")
            if is_rounded(text):
                self._suspect(f"a count is rounded, as {text}, so that steps are lost")
            if is_iteration and len(counter.epoch_ends) > over:
                self._pause = Pause("an epoch's end", counter.epoch_ends[-1])
            elif is_iteration and fields[count] is None:
                self._note_pause(name)
        return fields

    def _printed(self, text: str) -> dict[str, Any] | None:
        """Return the fields that the patterns have found, once the last pattern matches; None before that."""
        for pattern in self._marks:
            if found := pattern.search(text):
                self.matched += 1
                groups = {name: found.span(name) for name, value in found.groupdict().items() if value is not None}
                printed = {name: whole_numeral(text, *span) for name, span in groups.items()}
                counts = {name: groups[name][0] + len(printed[name]) for name in _COUNTS if name in groups}
                self._partial |= printed | {_end_of(name): printed_end(text, at) for name, at in counts.items()}
                if "iteration" in groups:
                    self._partial |= {_NAME: text[: groups["iteration"][0]], _AFTER: text[groups["iteration"][1] :]}
                if pattern is self._marks[-1]:
                    whole, self._partial = self._partial, {}
                    return self._over_epochs(whole)
        return None


def _pause(told: dict[str, Any] | None) -> Pause | None:
    """Return the pause that a message tells of; None where it tells of none."""
    pause = (told or {}).get("pause")
    return Pause(str(pause.get("what")), number(pause.get("every"))) if isinstance(pause, dict) else None


def _end_of(name: str) -> str:
    """Return the field for the end of a count."""
    return f"{name} end"


def record(text: str) -> dict[str, Any]:
    """Return the JSON object on a line of the progress file, or an empty dictionary when there is none."""
    try:
        found = json.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _with_any_score(pattern: str) -> str:
    """Let the group of the score match `nan` and `inf` as well: a training that diverges prints them."""
    return pattern.replace(_SCORE, f"{_SCORE}{_NOT_FINITE}|")


def _score(value: object) -> float | None:
    """Read a score; NaN where it is not finite, or larger than any score; None where it is no number."""
    if (found := number(value, least=-MOST)) is not None or not isinstance(value, int | float | str):
        return found
    try:
        float(value)
    except ValueError:
        return None
    except OverflowError:  # an integer that no float can hold
        pass
    return nan


def _count(value: object, most: float = MOST) -> int | None:
    found = number(value, most)
    return None if found is None else int(found)
