"""What is known of a command's samples, and what a person has to check. Pure."""

import re
from collections.abc import Iterable
from itertools import pairwise
from math import gcd
from statistics import fmean

from tuner.drafting.commands import Setting, settings
from tuner.drafting.draft import Draft
from tuner.drafting.progress import Found
from tuner.drafting.searches import ENVIRONMENTS

CLOSE = 0.25
"""Samples of an iteration are those of some batches if they differ from these by at most this share."""
MOST_BATCHES = 64
"""More batches in an iteration are no accumulation of gradients, but tokens or steps of environments."""

_EPOCH = re.compile(r"(?i)epochs?(?:\\[^d]|[^A-Za-z(\\])*\(\?P<iteration>")
"""A pattern whose iterations are epochs: no other number stands between the word and the count."""


def samples_said(draft: Draft, found: Found, ranks: int) -> str:
    """Return what is known of the samples of a command that worked on so many ranks, as a line for the person."""
    if (each := of_one_rank(draft, found, ranks)) is not None:
        return (
            f"unknown: {each:.0f} in each iteration were printed, perhaps of one of {ranks} ranks; see the study file"
        )
    if found.counts_samples:
        return f"{found.reports[-1].samples} in all, counted by the command"
    if computed := draft.samples_per_iteration(found.preset):
        return f"{computed} in each iteration"
    if found.prints_speeds:
        return "not counted; the printed speed counts if it is that since the line before, and no average"
    return "not counted, so samples/s are unknown"


def sample_lines(draft: Draft, found: Found, ranks: int) -> list[str]:
    """Return the lines of a study file's options that count samples, or that say how samples can be counted."""
    each = _samples_of_an_iteration(found)
    if each is not None and of_one_rank(draft, found, ranks) is not None:
        return _question(draft, each, ranks)
    if ranks > 1 and each is not None and not found.preset:
        return [f"# {each:.0f} samples in each iteration were printed. They are taken as those of all {ranks} ranks."]
    if found.counts_samples:
        return []
    if computed := draft.samples_per_iteration(found.preset):
        return [f"samples_per_iteration: '{computed}'  # of all ranks; check it where your batch is the total"]
    return _formula(draft, found)


def _question(draft: Draft, each: float, ranks: int) -> list[str]:
    """Return lines that ask whose samples were printed, with both answers."""
    batches = max(1, round(each / _batch(draft)))
    own = f"{{{draft.batch}}}" if batches == 1 else f"{{{draft.batch}}} * {batches}"
    return [
        f"# {each:.0f} samples in each iteration were printed. Are they of one rank, or of all {ranks} ranks?",
        "# Until you say so, samples/s are unknown. The first line is for one rank, the second for all ranks:",
        f"# samples_per_iteration: '{own} * {{ranks}}'",
        f"# samples_per_iteration: '{own}'",
    ]


def _formula(draft: Draft, found: Found) -> list[str]:
    """Return lines that show how a person can give the samples of an iteration."""
    if batch := _counted_in_batches(draft, found):
        return [
            f"# The count always grows by a multiple of the batch, {batch}. If it counts samples of all ranks:",
            "# samples_per_iteration: 1",
        ]
    if any(_EPOCH.search(pattern) for pattern in found.patterns):
        return [
            "# Samples/s are unknown. A counted iteration is an epoch. For an epoch of 50000 samples, write:",
            "# samples_per_iteration: 50000",
        ]
    return [
        "# Samples/s are unknown. If a counted iteration is one batch of each rank, this line gives them:",
        f"# samples_per_iteration: '{{{draft.batch}}} * {{ranks}}'",
    ]


def without_samples(patterns: Iterable[str]) -> list[str]:
    """Return patterns that match the same lines, and take no samples and no speeds from them."""
    return [re.sub(r"\(\?P<samples(?:_per_s)?>", "(?:", pattern) for pattern in patterns]


def of_one_rank(draft: Draft, found: Found, ranks: int) -> float | None:
    """Return the printed samples of an iteration if they may be those of one rank, although several ranks train.

    One batch is that of one rank, and so is one batch for each step over which the command accumulates gradients.
    As many of all ranks need no question. Any other small number may be accumulated by one rank or by all.
    """
    batch, each = _batch(draft), _samples_of_an_iteration(found)
    if ranks < 2 or each is None or not batch:
        return None
    steps = {1, *(int(one.value) for one in settings(draft.words) if _accumulates(one))}
    if any(_is_close(each / batch, own) for own in steps):
        return each
    counts_steps = found.preset is None and any("(?P<iteration>" in pattern for pattern in found.patterns)
    may_accumulate = counts_steps and draft.batch not in ENVIRONMENTS and 1 < each / batch < MOST_BATCHES
    of_all = any(_is_close(each / batch, own * ranks) for own in steps)
    return each if may_accumulate and not of_all else None


def _batch(draft: Draft) -> int:
    """Return the batch of the command's first run; 0 where it is not known."""
    batch = draft.config.get(draft.batch)
    return batch if isinstance(batch, int) else 0


def _accumulates(setting: Setting) -> bool:
    return "accum" in setting.parameter and setting.value.isdecimal()


def _is_close(batches: float, expected: float) -> bool:
    return abs(batches - expected) <= CLOSE * expected


def _samples_of_an_iteration(found: Found) -> float | None:
    first, last = found.reports[0], found.reports[-1]
    counted = last.iteration - first.iteration
    if first.samples is not None and last.samples is not None and counted:
        return (last.samples - first.samples) / counted
    speeds = [report.samples_per_s for report in found.reports if report.samples_per_s is not None]
    return fmean(speeds) * found.iteration_s if speeds and found.iteration_s else None


def _counted_in_batches(draft: Draft, found: Found) -> int | None:
    """Return the typed batch if all steps of the count are multiples of it, as in `[640/60000]`."""
    counts = [report.iteration for report in found.reports]
    batch, step = _batch(draft), gcd(*(later - count for count, later in pairwise(counts)))
    return batch if batch > 1 and step > 0 and step % batch == 0 else None
