"""Checks how many samples a counted iteration has against the amounts that a command prints. Pure."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from statistics import fmean

from tuner.drafting.progress_found import Found
from tuner.probe import number, whole_numeral

SAME, NEAR = 0.03, 0.15
"""An amount is the same if it differs by at most this share. A speed times the seconds of an iteration is less sure."""
_AMOUNT = r"(?P<amount>\d[\d,_]*)"
_EACH = re.compile(
    r"(?i)(?P<words>(?:\b|_)(?P<what>samples|images|examples|sequences|frames|tokens|env(?:ironment)?[ _]?steps)"
    rf"(?:[ _]per[ _]|/)(?:iter(?:ation)?|step|update)\b)[^\d\n]*{_AMOUNT}"
)
"""`tokens per iteration will be: 2,048`."""
_BATCH = re.compile(
    r"(?i)(?P<words>(?<![a-z])(?:total|effective|global)[ _](?:\w+[ _])?batch[ _]?size)\b[^\d\n]*"
    rf"(?:\d+ *[x*\u00d7] *)*(?:\d+ *= *)?{_AMOUNT}"
)
"""`Total train batch size (w. accumulation) = 32`, or `Effective batch size: 8 x 1 = 8`."""
_STEPS = re.compile(
    r"(?i)(?<![a-z])total[ _](?:optimi[sz](?:ation|er)|train(?:ing)?)[ _]steps\b[^\d\n]*(?P<amount>\d+)"
)
_SPEED = re.compile(r"(?<![\w.,])(?P<speed>\d[\d.,]*) ?/s(?:ec)?\b")
"""A speed without a word, such as `91.3/s`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What the output of a command says about the samples of a counted iteration."""

    holds: bool | None
    """None where the output says nothing, or several things."""
    because: str = ""
    """The printed fact that decides."""


def check(found: Found, each: float, *, batch: int, ranks: int, typed: Collection[int] = ()) -> Checked:
    """Check whether a counted iteration may have `each` samples of all ranks.

    `batch` is that of the command, 0 where it is unknown. `typed` are the whole numbers of the command line: one of
    them may be the length of a sequence.
    """
    said = [*_said(found, each, typed), *_by_batch(found, each, batch * ranks), *_by_speed(found, each, batch, ranks)]
    decided = [one for one in said if one.holds is not None]
    agree = len({one.holds for one in decided}) == 1
    return decided[0] if agree else Checked(holds=None)


def _said(found: Found, each: float, typed: Collection[int]) -> Iterator[Checked]:
    """Compare with an amount that the output itself calls that of an iteration. Tokens may hold sequences."""
    for words, what, amount in _printed(found, _EACH):
        because = f"the command printed {words} {amount:.0f}"
        same = _is_same(each, amount, SAME)
        if "token" in what.lower():
            holds = same or amount in {each * length for length in typed if length > 1}
            yield Checked(holds=holds or _whole(amount, each), because=because)
        else:
            yield Checked(holds=same, because=because)


def _by_batch(found: Found, each: float, plain: int) -> Iterator[Checked]:
    """Compare with a printed total batch.

    It is that of any step where nothing is accumulated. Else the count must end with the steps of the optimizer.
    """
    if not plain or not found.counts_numbers or found.counts_epochs or found.grows_by(plain):
        return
    for words, _, amount in _printed(found, _BATCH):
        counts_updates = any(found.end == steps for _, _, steps in _printed(found, _STEPS))
        same = _is_same(each, amount, SAME) and (amount == plain or counts_updates)
        yield Checked(holds=same or _whole(amount, each), because=f"the command printed {words} {amount:.0f}")


def _whole(amount: float, each: float) -> bool | None:
    """Return False where an amount cannot consist of so many samples; else it says nothing about them."""
    return None if amount % each == 0 else False


def _by_speed(found: Found, each: float, batch: int, ranks: int) -> Iterator[Checked]:
    """Compare with printed speeds times the seconds of an iteration. A speed may be that of one rank of several."""
    seconds = found.iteration_s
    if not seconds or not batch or found.counts_epochs or each < batch or (ranks > 1 and each < batch * ranks):
        return
    lines = [line for line in found.printed if any(re.search(pattern, line) for pattern in found.patterns)]
    speeds = [[number(one["speed"]) or 0.0 for one in _SPEED.finditer(line)] for line in lines]
    known = [one[0] for one in speeds[1:] if one and one[0]]
    if len(known) >= len(lines) - 1 > 1:
        made = seconds / fmean(1 / one for one in known)
        fits = _is_same(each, made, NEAR)
        yield Checked(holds=fits or None, because=f"it printed {made / seconds:.3g}/s, {made:.3g} in each iteration")


def _printed(found: Found, pattern: re.Pattern[str]) -> Iterator[tuple[str, str, float]]:
    """Yield the words, their noun and the amount wherever the output states one; each statement once."""
    matches = [one for line in found.printed if (one := pattern.search(line))]
    for match in {match[0]: match for match in matches}.values():
        groups = match.groupdict()
        if amount := number(whole_numeral(match.string, *match.span("amount"))):
            yield groups.get("words") or "", groups.get("what") or "", amount


def _is_same(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * other
