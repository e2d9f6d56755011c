"""What is known of a command's samples, and what a person has to check. Pure."""

import re
from collections.abc import Iterable
from itertools import pairwise
from math import gcd
from statistics import fmean

from tuner.drafting.draft import Draft
from tuner.drafting.progress import Found

CLOSE = 0.25
"""Samples of an iteration are those of a batch if they differ from it by at most this share of the batch."""


def said(draft: Draft, found: Found, ranks: int) -> str:
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


def lines(draft: Draft, found: Found, ranks: int) -> list[str]:
    """Return the lines of a study file's options that count samples, or that say how samples can be counted."""
    if (each := of_one_rank(draft, found, ranks)) is not None:
        return [
            f"# {each:.0f} samples in each iteration were printed. Are they of one rank, or of all {ranks} ranks?",
            "# Until you say so, samples/s are unknown. The first line is for one rank, the second for all ranks:",
            f"# samples_per_iteration: '{{{draft.batch}}} * {{ranks}}'",
            f"# samples_per_iteration: '{{{draft.batch}}}'",
        ]
    if found.counts_samples:
        return []
    if computed := draft.samples_per_iteration(found.preset):
        return [f"samples_per_iteration: '{computed}'  # of all ranks; check it where your batch is the total"]
    if batch := _counted_in_batches(draft, found):
        return [
            f"# The count always grows by a multiple of the batch, {batch}. If it counts samples of all ranks:",
            "# samples_per_iteration: 1",
        ]
    return [
        "# Samples/s are unknown. If a counted iteration is one batch of each rank, this line gives them:",
        f"# samples_per_iteration: '{{{draft.batch}}} * {{ranks}}'",
    ]


def without_samples(patterns: Iterable[str]) -> list[str]:
    """Return patterns that match the same lines, and take no samples and no speeds from them."""
    return [re.sub(r"\(\?P<samples(?:_per_s)?>", "(?:", pattern) for pattern in patterns]


def of_one_rank(draft: Draft, found: Found, ranks: int) -> float | None:
    """Return the printed samples of an iteration if they are one batch, although several ranks take one batch each.

    Such samples are those of one rank, unless the command divides its batch among the ranks.
    """
    batch, each = draft.config.get(draft.batch), _samples_of_an_iteration(found)
    if ranks < 2 or each is None or not isinstance(batch, int):
        return None
    return each if abs(each - batch) <= CLOSE * batch else None


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
    batch, step = draft.config.get(draft.batch), gcd(*(later - count for count, later in pairwise(counts)))
    return batch if isinstance(batch, int) and batch > 1 and step > 0 and step % batch == 0 else None
