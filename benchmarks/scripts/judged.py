"""What a training script has written down as the truth, and how far a told speed is from it. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

CLOSE_PCT = 3.0
"""A told speed is right if it differs from the true one by at most this percentage."""
TWO = 2.0
"""A told speed is right, too, if it differs by at most so many of its own standard errors."""
VAGUE_PCT = 20.0
"""A standard error above this percentage of the told speed excuses nothing, and the speed is not told in silence."""
MOST_TIMES = 2.0
"""A speed that is so many times the true one, or the inverse, is wrong, however large its error."""
NEAR_S = 0.25
"""The window of a probe is known to a tenth of a second, and a step is written down just before it is printed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """The lines of a side file; see `truth_file.py`."""

    samples: dict[int, tuple[tuple[float, int], ...]]
    """Process → the second and the samples so far, after each step."""
    began_s: dict[int, float]
    """Process → the second at which it started: the training processes and their ancestors."""
    parents: dict[int, int]
    other: tuple[tuple[float, float, str], ...]
    """When work that trained nothing began and ended, and its name."""

    @property
    def first_s(self) -> float:
        """When the first step of any process ended. Raises ValueError where there is none."""
        return min(rows[0][0] for rows in self.samples.values())

    @property
    def last_s(self) -> float:
        """When the last step of any process ended. Raises ValueError where there is none."""
        return max(rows[-1][0] for rows in self.samples.values())

    def rate(self, begin_s: float, end_s: float) -> float:
        """Return the samples per second of all processes between two moments.

        A step that ended within `NEAR_S` or half a usual step of a moment is taken for the moment itself. Raises
        ValueError if no process has trained between them.
        """
        total = 0.0
        for rows in self.samples.values():
            (first_s, before), (last_s, after) = (_at(rows, at_s) for at_s in (begin_s, end_s))
            if after > before:
                total += (after - before) / (last_s - first_s)
        if not total:
            raise ValueError(f"no step was written down between {begin_s:.1f} s and {end_s:.1f} s")
        return total

    def training_rate(self, begin_s: float, end_s: float) -> float:
        """Return the samples per second of all processes, without the steps in which something else was done.

        Raises ValueError if no process has trained between the two moments.
        """
        total = 0.0
        for rows in self.samples.values():
            inside = [one for one in pairwise(rows) if begin_s - NEAR_S <= one[0][0] and one[1][0] <= end_s + NEAR_S]
            steps = [
                (later[1] - before[1], later[0] - before[0])
                for before, later in inside
                if not any(begun_s < later[0] and ended_s > before[0] for begun_s, ended_s, _ in self.other)
            ]
            if steps:
                total += sum(samples for samples, _ in steps) / sum(seconds for _, seconds in steps)
        if not total:
            raise ValueError(f"no step was written down between {begin_s:.1f} s and {end_s:.1f} s")
        return total

    def share_of_other(self, begin_s: float, end_s: float) -> float:
        """Return the share of the time that went to evaluation, checkpoints and preparation, of one process."""
        inside = (min(end_s, end) - max(begin_s, begin) for begin, end, _ in self.other)
        trains = sum(rows[0][0] <= end_s and rows[-1][0] >= begin_s for rows in self.samples.values())
        return sum(max(0.0, one) for one in inside) / (end_s - begin_s) / max(1, trains)


def _at(rows: Sequence[tuple[float, int]], at_s: float) -> tuple[float, int]:
    """Return a moment and the samples by then: those of the nearest step, or of all steps that ended before."""
    nearest = min(rows, key=lambda row: abs(row[0] - at_s))
    usual_s = median(after[0] - before[0] for before, after in pairwise(rows)) if len(rows) > 1 else 0.0
    if abs(nearest[0] - at_s) <= max(NEAR_S, usual_s / 2):
        return nearest
    return at_s, max((samples for t_s, samples in rows if t_s <= at_s), default=0)


def read_truth(text: str) -> Truth:
    """Read a side file. A last line that is not whole is left out."""
    samples: dict[int, list[tuple[float, int]]] = {}
    began_s: dict[int, float] = {}
    parents: dict[int, int] = {}
    open_s: dict[tuple[int, str], float] = {}
    other: list[tuple[float, float, str]] = []
    lines: dict[int, list[int]] = {}
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        t_s, pid, what, value = line.rstrip("\n").split("\t")
        if what == "samples":
            samples.setdefault(int(pid), []).append((float(t_s), int(value)))
        elif what == "ancestor":
            one, at_s = value.split(":")
            began_s[int(one)] = float(at_s)
            lines.setdefault(int(pid), []).append(int(one))
        elif what == "begin":
            open_s[int(pid), value] = float(t_s)
        else:
            other.append((open_s.pop((int(pid), value), float(t_s)), float(t_s), value))
    for line_of_descent in lines.values():
        parents.update(pairwise(line_of_descent))
    return Truth(
        samples={pid: tuple(rows) for pid, rows in samples.items()},
        began_s=began_s,
        parents=parents,
        other=tuple(other),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What `tuner try` told of the samples per second."""

    value: float | None
    error: float | None
    why: str
    """The line that says why they are unknown; empty where they are known."""


def reason(shown: str) -> str:
    """Return the line of a report or an error that says most: about samples, else an error, else the last one."""
    lines = [" ".join(line.split()) for line in shown.splitlines() if line.strip()]
    ranked: Sequence[str] = [
        *(one for one in lines if re.match(r"(?:note|to change): .*samples", one)),
        *(one for one in lines if one.startswith(("error", "Error", "tuner:", "the next probe takes"))),
        *lines[-1:],
    ]
    return ranked[0] if ranked else "nothing was printed"


def verdict(told: Told, true_per_s: float | None, tokens: int = 0) -> str:
    """Return whether a told speed is right. With `tokens` in a sample, a speed in tokens is right and says so."""
    if told.value is None:
        return f"unknown: {told.why}"
    if true_per_s is None:
        return "told, but the truth is missing"
    if is_right(told, true_per_s):
        return "right"
    if tokens and is_right(told, tokens * true_per_s):
        return "right, in tokens"
    error_pct = 100 * (told.error or 0.0) / told.value if told.value else 0.0
    if error_pct > VAGUE_PCT and 1 / MOST_TIMES < told.value / true_per_s < MOST_TIMES:
        return f"vague: told with an error of {error_pct:.0f} %"
    return "WRONG IN SILENCE"


def is_right(told: Told, true_per_s: float) -> bool:
    """Return whether a told speed is close to the true one, or within two of its errors if these are not vague."""
    value, error = told.value or 0.0, told.error or 0.0
    allowed = TWO * error if 100 * error <= VAGUE_PCT * value else 0.0
    return abs(value - true_per_s) <= max(CLOSE_PCT / 100 * true_per_s, allowed)


def off_pct(told: Told, true_per_s: float | None) -> float | None:
    """Return the difference of a told from the true speed, in percent of the true one; None where one is unknown."""
    if told.value is None or true_per_s is None:
        return None
    return 100 * (told.value / true_per_s - 1)


def hints(study: str, answer: str) -> list[str]:
    """Return versions of a study file, each with a line on samples that it shows as a comment.

    Of several lines, a person who knows the script takes the one that says `answer`; of several such lines, the first.
    """
    found = list(re.finditer(r"^( *)# (samples_per_iteration: .*)$", study, re.MULTILINE))
    fitting = [one for one in found if answer in one[2]][:1] if len(found) > 1 else found
    return [study[: one.start()] + one[1] + one[2] + study[one.end() :] for one in fitting]
