"""The part of a probe that counts: whole iterations, and how much training they stand for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from tuner.probe.result import Progress, Thin
from tuner.probe.steady import Block

LEAST_SPAN_S = 0.5
"""Shorter iterations are taken together: utilisation is read in steps of a tenth of a second and coarser."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The moment at which every rank had finished an iteration."""

    iteration: int
    t_s: float
    samples: int | None = None
    """Of all ranks together."""
    thin: Thin | None = None
    """The part of the iteration that the ranks did not run in full: all of them reached it, none has left it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a window of which each second stands for as much training."""

    begin_s: float
    end_s: float
    by: float
    """Seconds of training that a second stands for."""

    @property
    def trained_s(self) -> float:
        """Seconds of training that it stands for."""
        return self.by * (self.end_s - self.begin_s)


@dataclass(frozen=True, slots=True)
class Window:
    """Whole iterations: from the first of its marks to the last."""

    marks: tuple[Mark, ...]

    @property
    def first(self) -> Mark:
        """Where it begins."""
        return self.marks[0]

    @property
    def last(self) -> Mark:
        """Where it ends."""
        return self.marks[-1]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.last.t_s - self.first.t_s

    @property
    def trained_s(self) -> float:
        """How long its iterations take in training."""
        return sum(piece.trained_s for piece in self.pieces())

    @property
    def iterations(self) -> int:
        """How many whole iterations it holds, counted by marks: a trainer may print every hundredth step alone."""
        return len(self.marks) - 1

    @property
    def samples_per_s(self) -> float | None:
        """Samples of all ranks per second; None where the trainer does not count all of them, from its start on."""
        return self._rate() or None  # a count of each iteration's own stands still

    def pieces(self) -> list[Piece]:
        """Cut it where iterations begin and end to be thin; one piece where none is."""
        pieces: list[Piece] = []
        begin_s = self.first.t_s
        for mark in self.marks[1:]:
            if mark.thin is not None:
                pieces += [Piece(begin_s, mark.thin.from_s, 1.0), Piece(mark.thin.from_s, mark.t_s, mark.thin.by)]
                begin_s = mark.t_s
        return pieces if begin_s == self.last.t_s else [*pieces, Piece(begin_s, self.last.t_s, 1.0)]

    def spans(self) -> list["Window"]:
        """Cut it at marks into spans of at least `LEAST_SPAN_S`; what is left over goes to the last."""
        cuts = [0]
        for place, mark in enumerate(self.marks):
            if mark.t_s - self.marks[cuts[-1]].t_s >= LEAST_SPAN_S:
                cuts.append(place)
        ends = [*cuts[:-1], len(self.marks) - 1] if len(cuts) > 1 else [0, len(self.marks) - 1]
        return [Window(self.marks[begin : end + 1]) for begin, end in pairwise(ends)]

    def rates(self) -> list[Block]:
        """Give samples per second, span by span; empty where the trainer does not count samples."""
        if self.samples_per_s is None:
            return []
        return [Block(span.trained_s, rate) for span in self.spans() if (rate := span._rate()) is not None]

    def _rate(self) -> float | None:
        if self.first.samples is None or self.last.samples is None:
            return None
        return (self.last.samples - self.first.samples) / self.trained_s


def marks(progress: Sequence[Progress], ranks: int) -> list[Mark]:
    """Give the iterations that are complete everywhere.

    Where ranks report for themselves, an iteration counts once all `ranks` have closed it, at the time of the last;
    what one of them says for all of them does not count beside that.
    """
    by_rank = [report for report in progress if report.rank is not None and report.rank < ranks]
    if not by_rank:
        return [
            Mark(iteration=report.iteration, t_s=report.t_s, samples=report.samples, thin=report.thin)
            for report in progress
            if report.rank is None
        ]
    whole: list[Mark] = []
    waiting: dict[int, list[Progress]] = {}
    for report in by_rank:
        closed = waiting.setdefault(report.iteration, [])
        closed.append(report)
        if len(closed) == ranks:
            counts = [one.samples for one in closed if one.samples is not None]
            whole.append(
                Mark(
                    iteration=report.iteration,
                    t_s=max(one.t_s for one in closed),
                    samples=sum(counts) if len(counts) == ranks else None,
                    thin=_thin_on_all([one.thin for one in closed]),
                )
            )
    return whole


def _thin_on_all(parts: Sequence[Thin | None]) -> Thin | None:
    """Give what is thin on all ranks: since the last of them got there, for which the others waited till then."""
    known = [thin for thin in parts if thin is not None]
    return max(known, key=attrgetter("from_s")) if len(known) == len(parts) else None


def find_window(marks: Sequence[Mark], *, warmup_iterations: int, ran_out: bool) -> Window | None:
    """Cut the window out of the marks: after warm-up, up to the last mark.

    When the trainer ended by itself (`ran_out`), its last iteration holds its wind-down (MimicKit: a test rollout) and
    is left out. None when nothing is left.
    """
    inside = marks[warmup_iterations - 1 : len(marks) - 1 if ran_out else None]
    if len(inside) < 2 or inside[-1].t_s <= inside[0].t_s:
        return None
    return Window(tuple(inside))
