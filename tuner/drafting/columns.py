"""Finds numbers that grow in lines that are alike: iterations and samples that no preset knows. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner.probe.counts import number

RECURS = 3
"""The fewest lines of one form that can show progress."""
MOST_LINES = 4_000
"""The most lines that are looked at: the last ones."""
_FORMS = 400
_STEADY, _GROWING = 0.7, 0.9
"""The shares of steps between neighbouring lines that are equal, and that are upwards, in a counter.

A counter may start again at each epoch. A number that starts again more often numbers ranks, workers or layers.
"""

_CLOCK = r"\d{4}-\d\d-\d\d|\d{1,2}(?::\d\d){1,2}(?:[.,]\d+)?"
_NUMERAL = r"[-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKMGB](?![A-Za-z]))?"
_PIECE = re.compile(rf"(?P<clock>{_CLOCK})|(?<![A-Za-z\d.])(?P<number>{_NUMERAL})")
_ITERATION = re.compile(
    r"(?i)(?:\b|_)(?:it|iter|iters|iterations?|steps?|updates?|batch|epochs?|episodes?|rounds?)\W*$"
)
_SAMPLES = re.compile(
    r"(?i)(?:\b|_)(?:samples|time_?steps|env_?steps|total[ _]steps|global_?steps?|frames|transitions|images|examples"
    r"|tokens)(?:[ _](?:so far|seen|total))?\W*$"
)
_SPEED = re.compile(
    r"(?i)(?:\b|_)(?:fps|sps|(?:samples|steps|frames|images|tokens)(?:/| per |_per_)s(?:ec(?:ond)?)?)\W*$"
)
_SPEED_AFTER = re.compile(r"(?i)^\s*(?:fps|sps|(?:samples|steps|frames|images|tokens)(?:/| per )s(?:ec(?:ond)?)?)\b")
_TIME = re.compile(
    r"(?i)(?:\b|_)(?:time|elapsed|eta|seconds?|secs?|minutes?|mins?|hours?|pid|port)\W*$|\btime_elapsed\W*$"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One number of the lines of one form."""

    form: str
    place: int
    """The position among the numbers of the line."""
    before: str
    """The text between the number before and this one, in the first such line."""
    after: str
    values: tuple[float, ...]
    is_plain: bool
    """Whether every value is printed with digits alone."""
    first_line: int
    """The position of the first such line among all lines."""

    @property
    def step(self) -> float | None:
        """The usual step of a counter; None where the number is no counter."""
        if len(self.values) < RECURS or any(value != int(value) for value in self.values):
            return None
        steps = [later - value for value, later in pairwise(self.values) if later != value]
        grown = [step for step in steps if step > 0]
        if len(grown) < RECURS - 1 or len(grown) < _GROWING * len(steps):
            return None
        step, times = Counter(grown).most_common(1)[0]
        return step if times >= _STEADY * len(grown) or len(set(self.values)) >= 2 * RECURS else None

    @property
    def is_time(self) -> bool:
        """Whether the number is a time rather than a count."""
        return bool(_TIME.search(self.before))

    @property
    def counts_iterations(self) -> bool:
        """Whether the words before the number name iterations."""
        return bool(_ITERATION.search(self.before)) and not self.counts_samples

    @property
    def counts_samples(self) -> bool:
        """Whether the words before the number name samples."""
        return bool(_SAMPLES.search(self.before))

    @property
    def is_speed(self) -> bool:
        """Whether the words beside the number name samples per second."""
        return bool(_SPEED.search(self.before)) or bool(_SPEED_AFTER.match(self.after))

    @property
    def pattern(self) -> str:
        """The words before the number as a pattern, with any space between them."""
        words = self.before.split()[-3:]
        if any(re.search("[A-Za-z]", word) for word in words):
            return literal(" ".join(words)) if self.before.isascii() else literal(words[-1])
        return r"^\s*" if self.place == 0 and not words else r"(?:^|[\s\[(|#])"

    @property
    def then(self) -> str:
        """The mark right after the number as a pattern, such as `/` in `3/100`."""
        mark = self.after[:1]
        return re.escape(mark) if mark and mark in "/])|" else ""


def columns(lines: Sequence[str]) -> list[Column]:
    """Return the numbers of all lines that recur, form by form in the order of the output."""
    forms: dict[str, list[tuple[int, list[re.Match[str]], str]]] = {}
    for position, line in enumerate(lines[-MOST_LINES:]):
        found, form = list(_PIECE.finditer(line)), _form(line)
        if found and (form in forms or len(forms) < _FORMS):
            forms.setdefault(form, []).append((position, found, line))
    return [column for form, rows in forms.items() if len(rows) >= RECURS for column in _columns(form, rows)]


def _columns(form: str, rows: Sequence[tuple[int, list[re.Match[str]], str]]) -> Iterator[Column]:
    position, pieces, line = rows[0]
    for place, piece in enumerate(pieces):
        printed = [found[place]["number"] for _, found, _ in rows if place < len(found)]
        values = [number(text) for text in printed]
        if len(values) < len(rows) or any(value is None for value in values):
            continue
        begin = pieces[place - 1].end() if place else 0
        end = pieces[place + 1].start() if place + 1 < len(pieces) else len(line)
        yield Column(
            form=form,
            place=place,
            before=line[begin : piece.start()],
            after=line[piece.end() : end],
            values=tuple(value for value in values if value is not None),
            is_plain=all(text.isdecimal() for text in printed),
            first_line=position,
        )


def _form(line: str) -> str:
    """Return the words of a line without its numbers and without marks such as the blocks of a bar."""
    return " ".join(re.findall(r"[A-Za-z_]{2,}|#", _PIECE.sub(" # ", line)))


def literal(text: str) -> str:
    """Return a pattern for a text, with any space between its words."""
    return r"\s+".join(re.escape(word).replace(r"\-", "-") for word in text.split()) + r"\s*"
