"""Finds numbers that grow in lines that are alike: iterations and samples that no preset knows. Pure."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from tuner.probe.bars import EVALUATES

RECURS = 3
"""The fewest lines of one form that can show progress."""
_STEADY, _GROWING = 0.7, 0.9
"""The shares of steps between neighbouring lines that are equal, and that are upwards, in a counter.

A counter may start again at each epoch. A number that starts again more often numbers ranks, workers or layers.
"""
LEAST_LINES = 4
"""The fewest lines of an epoch in whose output a count with an end starts again, such as `[10/40]`."""

_ITERATION = re.compile(
    r"(?i)(?:\b|_)(?:it|iter|iters|iterations?|steps?|updates?|batch|epochs?|episodes?|rounds?)\W*$"
)
_OVERALL = re.compile(r"(?i)(?:\b|_)(?:global|total|num)[ _]?(?:iterations?|steps?|updates?)\W*$")
"""A count over all epochs: of iterations, or, in reinforcement learning, of the steps of the environments."""
ENVIRONMENT = re.compile(r"(?i)(?:\b|_)(?:episod\w*|ep|env\w*|returns?|rewards?|rew|rollouts?|fps|sps)(?:\b|_)")
_EPOCH = re.compile(r"(?i)(?:\b|_)epochs?(?:\W*\(\w+\))?\W*$")
_SAMPLES = re.compile(
    r"(?i)(?:\b|_)(?:samples|(?:time|env|environment)[_ ]?steps|frames|transitions|images|examples|tokens)"
    r"(?:[ _](?:so far|seen|total))?\W*$"
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
_SKIPPED = r"[-+\w.,:]+\W*"
"""A number that counts nothing, and the marks after it."""
_JOINED = re.compile(r"[-+.,:\d]*")
"""What joins two numbers to one, as in `10.0.0.1:8080`."""
_TIME = re.compile(
    r"(?i)(?:\b|_)(?:(?:up|wall_?)?time(?:stamp)?|ts|wall|elapsed|eta|seconds?|secs?|minutes?|mins?|hours?|pid|port)\W*$"
)
_UNIT = re.compile(r"(?: ?(?:secs?|seconds?|mins?|minutes?|hours?|[KMGT]i?B)|[mun\u00b5]?s|m|h|B)(?![\w=:])")
"""The unit of a time or of memory, right after its number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One number of the lines of one form."""

    form: str
    place: int
    """The position among the numbers of the line."""
    gaps: tuple[str, ...]
    """The texts before each number up to this one, in the first such line."""
    after: str
    values: tuple[float, ...]
    is_plain: bool
    """Whether every value is printed with digits alone."""
    first_line: int
    """The position of the first such line among all lines."""
    lines: tuple[str, ...] = ()
    """The lines of the values."""
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
        return step if times >= _STEADY * len(grown) or len(set(self.values)) >= 2 * RECURS else None

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
        return bool(_EPOCH.search(self.before)) and self.is_whole and not self.falls

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
