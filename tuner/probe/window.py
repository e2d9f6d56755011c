"""The window: the whole iterations of a probe that are evaluated, and how much training they stand for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from tuner.probe.result import Progress, Thin
from tuner.probe.steady import Block

LEAST_SPAN_S = 0.5
"""The shortest span in seconds over which utilisation is averaged; shorter iterations are joined.

Utilisation is measured every tenth of a second or less often, so a shorter span would contain too few values.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The moment at which every rank had finished an iteration."""

    iteration: int
    t_s: float
    samples: int | None = None
    """The number of samples of all ranks together so far."""
    thin: Thin | None = None
    """The part of the iteration that was shortened on all ranks at the same time, if there was one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a window in which every second stands for the same amount of training."""

    begin_s: float
    end_s: float
    by: float
    """The seconds of training that one second of the piece stands for."""

    @property
    def trained_s(self) -> float:
        """The seconds of training that the whole piece stands for."""
        return self.by * (self.end_s - self.begin_s)


@dataclass(frozen=True, slots=True)
class Window:
    """The whole iterations from the first mark to the last mark."""

    marks: tuple[Mark, ...]

    @property
    def first(self) -> Mark:
        """The mark at which the window begins."""
        return self.marks[0]

    @property
    def last(self) -> Mark:
        """The mark at which the window ends."""
        return self.marks[-1]

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return self.last.t_s - self.first.t_s

    @property
    def trained_s(self) -> float:
        """The seconds that the iterations take in ordinary training, where no iteration is thin."""
        return sum(piece.trained_s for piece in self.pieces())

    @property
    def iterations(self) -> int:
        """The number of whole iterations, counted by marks: a trainer may print only every hundredth step."""
        return len(self.marks) - 1

    @property
    def samples_per_s(self) -> float | None:
        """The samples of all ranks per second of training.

        None unless the trainer reports the total number of samples since its start.
        """
        return self._rate() or None  # 0 means that the trainer reports the samples of each iteration, not the total

    def pieces(self) -> list[Piece]:
        """Split the window where a thin part begins or ends. A window without thin parts is one piece."""
        pieces: list[Piece] = []
        begin_s = self.first.t_s
        for mark in self.marks[1:]:
            if mark.thin is not None:
                pieces += [Piece(begin_s, mark.thin.from_s, 1.0), Piece(mark.thin.from_s, mark.t_s, mark.thin.by)]
                begin_s = mark.t_s
        return pieces if begin_s == self.last.t_s else [*pieces, Piece(begin_s, self.last.t_s, 1.0)]

    def spans(self) -> list["Window"]:
        """Split the window at marks into spans of at least `LEAST_SPAN_S`. The last span includes the rest."""
        cuts = [0]
        for place, mark in enumerate(self.marks):
            if mark.t_s - self.marks[cuts[-1]].t_s >= LEAST_SPAN_S:
                cuts.append(place)
        ends = [*cuts[:-1], len(self.marks) - 1] if len(cuts) > 1 else [0, len(self.marks) - 1]
        return [Window(self.marks[begin : end + 1]) for begin, end in pairwise(ends)]

    def rates(self) -> list[Block]:
        """Return the samples per second of each span, or nothing when the trainer does not report samples."""
        if self.samples_per_s is None:
            return []
        return [Block(span.trained_s, rate) for span in self.spans() if (rate := span._rate()) is not None]

    def _rate(self) -> float | None:
        if self.first.samples is None or self.last.samples is None:
            return None
        return (self.last.samples - self.first.samples) / self.trained_s


def marks(progress: Sequence[Progress], ranks: int) -> list[Mark]:
    """Return a mark for each iteration that all ranks have finished.

    If ranks report for themselves, an iteration is finished once all `ranks` have reported it. Its mark has the time of
    the last report. Reports without a rank are then ignored.
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


def counted(marks: Sequence[Mark], samples_per_iteration: float | None) -> list[Mark]:
    """Return the marks with samples counted by their iterations, if the trainer counts no samples itself.

    The iteration of a mark is the number that the trainer prints. Iterations between two marks therefore count, too.
    """
    if samples_per_iteration is None or any(mark.samples is not None for mark in marks):
        return list(marks)
    return [replace(mark, samples=round(mark.iteration * samples_per_iteration)) for mark in marks]


def _thin_on_all(parts: Sequence[Thin | None]) -> Thin | None:
    """Return the part that is thin on all ranks. It begins when the last rank reaches its thin part.

    Until then the other ranks wait for the last one.
    """
    known = [thin for thin in parts if thin is not None]
    return max(known, key=attrgetter("from_s")) if len(known) == len(parts) else None


def find_window(marks: Sequence[Mark], *, warmup_iterations: int, ran_out: bool) -> Window | None:
    """Return the window from the end of warm-up to the last mark, or None when it would be empty.

    If the trainer ended by itself (`ran_out`), the last iteration includes work at the end of training (in MimicKit, a
    test rollout). The window then leaves out that iteration.
    """
    inside = marks[warmup_iterations - 1 : len(marks) - 1 if ran_out else None]
    if len(inside) < 2 or inside[-1].t_s <= inside[0].t_s:
        return None
    return Window(tuple(inside))
