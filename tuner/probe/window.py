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


GROW_IN_A_ROW, GROWN = 6, 0.02
"""Printed speeds count as averages since the start if so many or more grow in a row, by more than this share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The moment at which every rank had finished an iteration."""

    iteration: int
    t_s: float
    samples: int | None = None
    """The number of samples of all ranks together so far."""
    samples_per_s: float | None = None
    """The speed of all ranks together since the mark before, as the trainer prints it."""
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

        The total number of samples decides if the trainer reports it. Otherwise it is the mean of the printed speeds,
        each weighted by the time since the mark before. None where neither is known, and where the speeds grow
        throughout.
        """
        return self._counted_rate() or (None if self._speeds_grow else self._printed_rate())

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
        """Return the samples per second of each span, or nothing when `samples_per_s` is unknown."""
        if self.samples_per_s is None:
            return []
        rate = Window._counted_rate if self._counted_rate() else Window._printed_rate
        return [Block(span.trained_s, found) for span in self.spans() if (found := rate(span)) is not None]

    def _counted_rate(self) -> float | None:
        """Return the rate by the totals at both ends; 0 means that the trainer reports each iteration's own samples."""
        if self.first.samples is None or self.last.samples is None:
            return None
        return (self.last.samples - self.first.samples) / self.trained_s

    def _printed_rate(self) -> float | None:
        speeds = [(later.t_s - mark.t_s, later.samples_per_s) for mark, later in pairwise(self.marks)]
        known = [(seconds, speed) for seconds, speed in speeds if speed is not None]
        return sum(seconds * speed for seconds, speed in known) / self.seconds if len(known) == len(speeds) else None

    @property
    def _speeds_grow(self) -> bool:
        """Whether the printed speeds look like averages since the trainer's start, which hold its slow beginning.

        Of six independent speeds, one order in 720 grows throughout.
        """
        speeds = [mark.samples_per_s or 0.0 for mark in self.marks[1:]]
        grow = all(later > earlier for earlier, later in pairwise(speeds))
        return len(speeds) >= GROW_IN_A_ROW and grow and speeds[-1] > (1 + GROWN) * speeds[0]


def marks(progress: Sequence[Progress], ranks: int) -> list[Mark]:
    """Return a mark for each iteration that all ranks have finished.

    If ranks report for themselves, an iteration is finished once all `ranks` have reported it. Its mark has the time of
    the last report. Reports without a rank are then ignored.
    """
    by_rank = [report for report in progress if report.rank is not None and report.rank < ranks]
    if not by_rank:
        return [
            Mark(
                iteration=report.iteration,
                t_s=report.t_s,
                samples=report.samples,
                samples_per_s=report.samples_per_s,
                thin=report.thin,
            )
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
            speeds = [one.samples_per_s for one in closed if one.samples_per_s is not None]
            whole.append(
                Mark(
                    iteration=report.iteration,
                    t_s=max(one.t_s for one in closed),
                    samples=sum(counts) if len(counts) == ranks else None,
                    samples_per_s=sum(speeds) if len(speeds) == ranks else None,
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
