"""Sorts printed lines by their form, and finds the numbers in them that count. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tuner.probe import EVALUATES, EXAMPLES, PREPARES, number

RECURS = 3
"""The fewest lines of one form that can show progress."""
_STEADY, _GROWING = 0.7, 0.9
"""The shares of steps between neighbouring lines that are equal, and that are upwards, in a counter.

A counter may start again at each epoch. A number that starts again more often numbers ranks, workers or layers.
"""
LEAST_LINES = 4
"""The fewest lines of an epoch in whose output a count with an end starts again, such as `[10/40]`."""

_ITERATION = re.compile(
    r"(?i)(?:\b|_)(?:it|iter|iters|iterations?(?:_since_restore)?|steps?|updates?|batch|epochs?|rounds?)\W*$"
)
_OVERALL = re.compile(r"(?i)(?:\b|_)(?:global|total|num)[ _]?(?:iterations?|steps?|updates?)\W*$")
"""A count over all epochs: of iterations, or, in reinforcement learning, of the steps of the environments."""
ENVIRONMENT = re.compile(r"(?i)(?:\b|_)(?:episod\w*|ep|env\w*|returns?|rewards?|rew|rollouts?|fps|sps)(?:\b|_)")
EPOCH = re.compile(r"(?i)(?:\b|_)epochs?(?:\W*\(\w+\))?\W*$")
"""The words right before the number of an epoch."""
EPISODE = re.compile(r"(?i)(?:\b|_)episodes?\W*$")
"""The words right before the number of an episode. Episodes differ in length, so they are no iterations."""
_SAMPLES = re.compile(
    r"(?i)(?:\b|_)(?:samples|(?:time|env|environment)[_ ]?steps?|frames|transitions|images|examples|tokens)"
    r"(?:[ _](?:so far|seen|total|(?:sampled[ _])?lifetime))?\W*$"
)
_TOKENS = re.compile(r"(?i)(?:\b|_)tokens(?:\b|_)")
_SAMPLED = r"(?:samples|(?:env|environment|time|agent|global)[ _]?steps|frames|images|imgs?|examples|tokens)"
"""What one sample is called. A step without such a word may be one of the optimizer."""
_PER_S = rf"(?:fps|sps|{_SAMPLED}(?:/| per |_per_)s(?:ec(?:ond)?)?)"
_SPEED = re.compile(rf"(?i)(?:\b|_){_PER_S}\W*$")
_SPEED_AFTER = re.compile(rf"(?i)^\s*{_PER_S}\b(?!\s*[:=]|/|_?per)")
"""Not the name of the next number, as in `0.1 img/s: 123`, and no speed of one rank, as in `12 samples/s/gpu`."""
MOST_MARKS = 3
"""A longer word of marks alone is a bar."""
OWN_DIGITS = 3
"""The fewest digits of a word that may belong to one run alone."""
_SKIPPED = r"[-+\w.,:]++\W*+"
"""A number that counts nothing, and the marks after it. It gives nothing back, or a long line takes minutes."""
_JOINED = re.compile(r"[-+.,:\d]*")
"""What joins two numbers to one, as in `10.0.0.1:8080`."""
_TIME = re.compile(
    r"(?i)(?:\b|_)(?:(?:up|wall_?)?time(?:stamp)?|ts|wall|elapsed|eta|seconds?|secs?|minutes?|mins?|hours?|pid|port)\W*$"
)
_UNIT = re.compile(r"(?: ?(?:secs?|seconds?|mins?|minutes?|hours?|[KMGT]i?B)|[mun\u00b5]?s|m|h|B)(?![\w=:])")
"""The unit of a time or of memory, right after its number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One number of the lines of one form, or a column of a file, whose name stands before its numbers."""

    form: str = ""
    place: int
    """The position among the numbers of the line."""
    gaps: tuple[str, ...]
    """The texts before each number up to this one, in the first such line."""
    after: str = ""
    values: tuple[float, ...]
    is_plain: bool = True
    """Whether every value is printed with digits alone."""
    first_line: int = 0
    """The position of the first such line among all lines."""
    lines: tuple[str, ...] = ()
    """The lines of the values."""
    is_spaced: bool = False
    """Whether the trainer prints spaces between thousands; in `lines` these are `_`."""
    has_environments: bool = False
    """Whether the trainer's lines tell of environments."""

    @property
    def before(self) -> str:
        """The text between the number before and this one, in the first such line."""
        return self.gaps[-1]

    @property
    def is_whole(self) -> bool:
        """Whether every value is a whole number."""
        return all(value == int(value) for value in self.values)

    @property
    def falls(self) -> tuple[int, ...]:
        """The places at which a value is below the value before."""
        return tuple(place for place, (value, later) in enumerate(pairwise(self.values), 1) if later < value)

    @property
    def is_share(self) -> bool:
        """Whether the number is a percentage."""
        return self.after.lstrip().startswith("%")

    @property
    def has_end(self) -> bool:
        """Whether the end of the count follows, as in `3/100`."""
        return self.after.lstrip().startswith("/")

    @property
    def step(self) -> float | None:
        """The usual step of a counter; None where the number is no counter."""
        if len(self.values) < RECURS or not self.is_whole:
            return None
        steps = [later - value for value, later in pairwise(self.values) if later != value]
        grown = [step for step in steps if step > 0]
        if len(grown) < RECURS - 1 or not (len(grown) >= _GROWING * len(steps) or self._starts_again):
            return None
        step, times = Counter(grown).most_common(1)[0]
        begins_short = times == len(grown) - 1 >= RECURS - 1 and grown[0] < step  # 1, 10, 20, 30
        is_usual = times >= _STEADY * len(grown) or begins_short
        return step if is_usual or len(set(self.values)) >= 2 * RECURS else None

    @property
    def _starts_again(self) -> bool:
        """Whether this is a count with an end that sometimes starts again at its first value."""
        starts = [self.values[place] for place in self.falls]
        rare = len(starts) * LEAST_LINES <= len(self.values)
        return self.has_end and rare and all(value <= self.values[0] for value in starts)

    def numbers_epochs_of(self, count: "Column") -> bool:
        """Whether this number of the same line grows exactly where a count starts again."""
        grown = tuple(place for place, (value, later) in enumerate(pairwise(self.values), 1) if later > value)
        return self.form == count.form and self.is_whole and not self.falls and bool(grown) and grown == count.falls

    @property
    def counts_epochs(self) -> bool:
        """Whether the words before the number name epochs, and the number never falls."""
        return bool(EPOCH.search(self.before)) and self.is_whole and not self.falls

    @property
    def is_time(self) -> bool:
        """Whether the number is a time or memory rather than a count."""
        return bool(_TIME.search(self.before)) or bool(_UNIT.match(self.after))

    @property
    def counts_iterations(self) -> bool:
        """Whether the words before the number name iterations."""
        return bool(_ITERATION.search(self.before)) and not self.counts_samples

    @property
    def evaluates(self) -> bool:
        """Whether the line tells of an evaluation."""
        return bool(EVALUATES.search(self.form))

    @property
    def prepares(self) -> bool:
        """Whether the number is that of a bar before the training."""
        return self.has_end and bool(PREPARES.match(self.gaps[0]) or EXAMPLES in self.after)

    @property
    def counts_samples(self) -> bool:
        """Whether the words before the number name samples, or steps of environments."""
        overall = self.has_environments and (self.step or 0) > 1 and _OVERALL.search(self.before)
        return bool(overall) or bool(_SAMPLES.search(self.before))

    @property
    def counts_tokens(self) -> bool:
        """Whether the words before the number name tokens."""
        return bool(_TOKENS.search(self.before))

    @property
    def counts_overall(self) -> bool:
        """Whether the words before the number name iterations over all epochs."""
        return bool(_OVERALL.search(self.before)) and not self.counts_samples

    @property
    def is_speed(self) -> bool:
        """Whether the words beside the number name samples per second."""
        is_end = self.before.strip() in {"/", "of"}
        return not is_end and bool(_SPEED.search(self.before) or _SPEED_AFTER.match(self.after))

    def pattern(self, after: int | None = None) -> str:
        """Return what comes before the number as a pattern: the nearest words, and any numbers between them and it.

        `after` is the place of a number of the same line that the pattern already has.
        """
        begin = 0 if after is None else after + 1
        worded = [place for place in range(begin, self.place + 1) if re.search("[A-Za-z]", self.gaps[place])]
        nearest = max(worded, default=begin)
        parts = [place for place in range(nearest + 1, self.place + 1) if not _JOINED.fullmatch(self.gaps[place])]
        if worded:
            joint = "" if after is None else ".*?"
            return joint + _words(self.gaps[nearest]) + _SKIPPED * len(parts)
        return ("^" if after is None else "") + r"\W*" + _SKIPPED * len(parts)

    @property
    def then(self) -> str:
        """The mark right after the number as a pattern, such as `/` in `3/100`."""
        mark = self.after[:1]
        return re.escape(mark) if mark and mark in "/])|" else ""


def _words(text: str) -> str:
    """Return a pattern for the last words of a text. A bar such as `[==>..]` looks different in each line."""
    words = text.split()
    end = max(place for place, word in enumerate(words) if re.search("[A-Za-z]", word)) + 1
    bars = [place for place, word in enumerate(words) if is_bar(word)]
    begin = max((place + 1 for place in bars if place < end), default=0)
    if any(place >= end for place in bars):
        return literal(" ".join(words[begin:end][-3:])) + r"\W*"
    return literal(" ".join(words[begin:][-3:]))


def is_bar(word: str) -> bool:
    """Return whether a word is a piece of a bar: many marks, or blocks of several heights."""
    marks = not re.search("[A-Za-z]", word)
    return marks and (len(word) > MOST_MARKS or bool(re.search("[\u2580-\u259f\u2800-\u28ff]", word)))


def literal(text: str) -> str:
    """Return a pattern for a text, with any space between its words.

    A word with several digits, such as `rank14726`, may name a process or a host: another run prints another one.
    """
    return r"\s+".join(map(_word, text.split())) + r"\s*"


def _word(word: str) -> str:
    return r"\S+" if len(re.findall(r"\d", word)) >= OWN_DIGITS else re.escape(word).replace(r"\-", "-")


MOST_LINES = 4_000
"""The most lines that are looked at: the last ones."""
_FORMS = 400
_CLOCK = r"\d{4}-\d\d-\d\d|(?<![\d.:])\d{1,2}(?::\d\d){1,2}(?!\d)(?:[.,]\d+)?"
_NUMERAL = r"[-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKMGB](?![A-Za-z]))?"
_PIECE = re.compile(rf"(?P<clock>{_CLOCK})|(?<![A-Za-z\d.])(?P<number>{_NUMERAL})")
_SPACED = re.compile(r"(?<![\w.,:+-])\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?![\w.,:])")
"""What may be one number, such as `27 648`, or several."""
_SHARE = re.compile(r"\d ?%")
_TRAINS = re.compile(r"(?i)(?:\b|_)(?:loss|rewards?|returns?|perplexity|ppl|epochs?|iter(?:ation)?s?|steps?)(?:\b|_)")
"""Words of lines that tell of training."""

_Row = tuple[int, list[re.Match[str]], str]
"""The position of a line, its numbers, and the line."""


def columns(lines: Sequence[str]) -> list[Column]:
    """Return the numbers of all lines that recur, form by form in the order of the output."""
    forms: dict[str, list[_Row]] = {}
    joined, spaced = _joined(lines[-MOST_LINES:])
    for position, line in enumerate(joined):
        found, form = list(_PIECE.finditer(line)), _form(line)
        if found and (form in forms or len(forms) < _FORMS):
            forms.setdefault(form, []).append((position, found, line))
    found = [column for form, rows in forms.items() if len(rows) >= RECURS for column in _of_form(form, rows)]
    has_environments = any(ENVIRONMENT.search(column.form) for column in found)
    return [replace(column, has_environments=has_environments, is_spaced=column.form in spaced) for column in found]


def _joined(lines: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return lines with `_` for the spaces in numbers such as `27 648`, and the forms in which these are one number.

    The lines of a form decide together. Those that leave a doubt are empty.
    """
    whole = [_SPACED.sub(lambda found: re.sub(r"\s", "_", found[0]), line) for line in lines]
    forms, spaced = list(map(_form, whole)), set[str]()
    for form in {form for form, line, own in zip(forms, whole, lines, strict=True) if line != own}:
        rows = [(0, list(_PIECE.finditer(line)), line) for one, line in zip(forms, whole, strict=True) if one == form]
        own = {place for _, pieces, _ in rows for place, one in enumerate(pieces) if "_" in one[0]}
        said = [_is_one_number(column.values) for column in _columns(form, rows) if column.place in own]
        if None in said:
            whole = ["" if one == form else line for one, line in zip(forms, whole, strict=True)]
        elif True in said:
            spaced.add(form)
    read = zip(forms, whole, lines, strict=True)
    return [line if one in spaced or not line else own for one, line, own in read], spaced


def _is_one_number(values: Sequence[float]) -> bool | None:
    """Return whether numbers that were joined from groups of three digits are one number; None for a doubt.

    A last group has zeros in front, as in `28 032`, and what stands before it grows, too. Then equal steps say that it
    is one number. A last group that always starts again at the same value may be a step within an epoch.
    """
    heads, tails = {value // 1000 for value in values}, [value % 1000 for value in values]
    starts = {tail for before, tail in pairwise(tails) if tail < before}
    steps = [later - value for value, later in pairwise(values) if later != value]
    padded = any(value > tail < 100 for value, tail in zip(values, tails, strict=True))
    if not (padded and (starts or len(heads) >= RECURS) and len(steps) >= RECURS and min(steps) > 0):
        return False
    return True if max(steps) < 2 * min(steps) else None if len(starts) > 1 else False


def _of_form(form: str, rows: Sequence[_Row]) -> list[Column]:
    """Return the numbers of a form. If nothing counts, several ranks may print the lines: then those of one rank."""
    found = list(_columns(form, rows))
    own = [] if any(column.step for column in found) else _of_one_rank(rows)
    return list(_columns(form, own)) if len(own) >= RECURS else found


def _of_one_rank(rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows of rank 0, if a number that is no count with an end says which rank printed a line."""
    for place in range(min(len(pieces) for _, pieces, _ in rows)):
        names = [pieces[place]["number"] for _, pieces, _ in rows]
        ranks = {str(rank) for rank in range(len(set(names)))}
        if (
            len(ranks) > 1
            and set(names) == ranks
            and not rows[0][2][rows[0][1][place].end() :].lstrip().startswith("/")
        ):
            return [row for row, name in zip(rows, names, strict=True) if name == "0"]
    return []


def recurring(lines: Sequence[str]) -> tuple[str, ...]:
    """Return a pattern for the lines of the most frequent form that tells of training; nothing where none recurs.

    Such lines hold numbers, but none that counts, such as `{'loss': 2.3, 'epoch': 0.16}`. A bar that shows a percentage
    alone is drawn several times a second, whatever the training does.
    """
    told = [
        line for line in lines[-MOST_LINES:] if _TRAINS.search(line) and _PIECE.search(line) and not shows_bar(line)
    ]
    most = Counter(map(_form, told)).most_common(1)
    if not most or most[0][1] < 2 * RECURS:
        return ()
    line = next(line for line in told if _form(line) == most[0][0])
    words = _PIECE.split(line, maxsplit=1)[0].split()[-3:]
    return (literal(" ".join(words)),) if re.search("[A-Za-z]", " ".join(words)) else ()


def shows_bar(line: str) -> bool:
    """Return whether a line shows a bar and its percentage."""
    return bool(_SHARE.search(line)) and any(is_bar(word) for word in line.split())


def _columns(form: str, rows: Sequence[_Row]) -> Iterator[Column]:
    position, pieces, line = rows[0]
    begins = [0, *(piece.end() for piece in pieces)]
    gaps = tuple(line[begin : piece.start()] for begin, piece in zip(begins, pieces, strict=False))
    for place, piece in enumerate(pieces):
        printed = [found[place]["number"] for _, found, _ in rows if place < len(found)]
        values = [number(text) for text in printed]
        if len(values) < len(rows) or any(value is None for value in values):
            continue
        end = pieces[place + 1].start() if place + 1 < len(pieces) else len(line)
        yield Column(
            form=form,
            place=place,
            gaps=gaps[: place + 1],
            after=line[piece.end() : end],
            values=tuple(value for value in values if value is not None),
            is_plain=all(text.isdecimal() for text in printed),
            first_line=position,
            lines=tuple(line for _, _, line in rows),
        )


def _form(line: str) -> str:
    """Return the words of a line without its numbers and without marks such as the blocks of a bar."""
    return " ".join(re.findall(r"[A-Za-z_]{2,}|#", _PIECE.sub(" # ", line)))
