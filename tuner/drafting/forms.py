"""Sorts printed lines by their form: lines of one form have the same words and differ in their numbers. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tuner.drafting.columns import ENVIRONMENT, RECURS, Column, is_bar, literal
from tuner.probe.counts import number

MOST_LINES = 4_000
"""The most lines that are looked at: the last ones."""
_FORMS = 400
_CLOCK = r"\d{4}-\d\d-\d\d|(?<![\d.:])\d{1,2}(?::\d\d){1,2}(?!\d)(?:[.,]\d+)?"
_NUMERAL = r"[-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKMGB](?![A-Za-z]))?"
_PIECE = re.compile(rf"(?P<clock>{_CLOCK})|(?<![A-Za-z\d.])(?P<number>{_NUMERAL})")
_SHARE = re.compile(r"\d ?%")
_TRAINS = re.compile(r"(?i)(?:\b|_)(?:loss|rewards?|returns?|perplexity|ppl|epochs?|iter(?:ation)?s?|steps?)(?:\b|_)")
"""Words of lines that tell of training."""

_Row = tuple[int, list[re.Match[str]], str]
"""The position of a line, its numbers, and the line."""


def columns(lines: Sequence[str]) -> list[Column]:
    """Return the numbers of all lines that recur, form by form in the order of the output."""
    forms: dict[str, list[_Row]] = {}
    for position, line in enumerate(lines[-MOST_LINES:]):
        found, form = list(_PIECE.finditer(line)), _form(line)
        if found and (form in forms or len(forms) < _FORMS):
            forms.setdefault(form, []).append((position, found, line))
    found = [column for form, rows in forms.items() if len(rows) >= RECURS for column in _of_form(form, rows)]
    has_environments = any(ENVIRONMENT.search(column.form) for column in found)
    return [replace(column, has_environments=has_environments) for column in found]


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
    told = [line for line in lines[-MOST_LINES:] if _TRAINS.search(line) and _PIECE.search(line) and not _is_bar(line)]
    most = Counter(map(_form, told)).most_common(1)
    if not most or most[0][1] < 2 * RECURS:
        return ()
    line = next(line for line in told if _form(line) == most[0][0])
    words = _PIECE.split(line, maxsplit=1)[0].split()[-3:]
    return (literal(" ".join(words)),) if re.search("[A-Za-z]", " ".join(words)) else ()


def _is_bar(line: str) -> bool:
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
