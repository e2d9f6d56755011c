"""The marks at which all ranks had finished an iteration, and the window between marks that is evaluated. Pure.

- Thin: a session may do only a share of the end of an iteration, where all of that work is alike. Each second of this
  thin part stands for several seconds of training. `trained_s` are seconds of training, with what was left out.
- Pause: the seconds of an iteration in which something else was done, such as an evaluation. They count as no training.
- Level: iterations in a row of about the same length. A training may change to another level, as after a warm-up.
- Queue: the batches that the workers of a data loader have ready before the trainer asks for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, stdev
from typing import ClassVar, NamedTuple

from tuner.probe.quantities import Block, last_level
from tuner.probe.result import Change, Pause, Progress, Thin


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The moment at which every rank had finished an iteration."""

    iteration: int
    t_s: float
    samples: int | None = None
    """The number of samples of all ranks together so far."""
    thin: Thin | None = None
    """The part of the iteration that was shortened on all ranks at the same time, if there was one."""
    pause: Pause | None = None
    """What else the trainer may have done in the iteration; None if no output says so."""
    pause_s: float = 0.0
    """The seconds at the beginning of the iteration in which nothing was trained."""


class Marks:
    """Turns the reports of ranks into marks: one for each iteration that all ranks have finished.

    If ranks report for themselves, an iteration is finished once all of them have reported it. Its mark has the time of
    the last report. Reports without a rank are then ignored.
    """

    def __init__(self, ranks: int, samples_per_iteration: float | None = None) -> None:
        """Make a mark of each iteration that all ranks have reported.

        Args:
            ranks: The number of ranks that must report an iteration.
            samples_per_iteration: The samples of an iteration, for a trainer that counts none; None if unknown. The
                samples up to a mark are this times the number of its iteration, because a trainer may print only every
                tenth iteration.
        """
        self._ranks = ranks
        self._given_samples_per_iteration = samples_per_iteration
        self._samples_per_iteration = samples_per_iteration
        """None once the trainer counts samples itself."""
        self._reported: dict[int, list[Progress]] = {}
        """Iteration → the reports of its ranks."""
        self.complete: list[Mark] = []
        """The marks so far, in the order of their times."""

    def add(self, report: Progress) -> None:
        """Take the report of an iteration into account; it makes a mark once all ranks have reported the iteration."""
        if report.rank is None:
            if not self._reported:
                self._append(_mark([report], 1))
        elif report.rank < self._ranks:
            if not self._reported:  # the first report of a rank: those without a rank count no more
                self.complete, self._samples_per_iteration = [], self._given_samples_per_iteration
            reports = self._reported.setdefault(report.iteration, [])
            reports.append(report)
            if len(reports) == self._ranks:
                self._append(_mark(reports, self._ranks))

    def _append(self, mark: Mark) -> None:
        """Append a mark. Where the trainer counts no samples, they are computed from the iteration.

        Once the trainer counts samples itself, none are computed any more, and those of earlier marks are forgotten:
        the two counts may differ.
        """
        if self._samples_per_iteration is not None:
            if mark.samples is None:
                mark = replace(mark, samples=round(mark.iteration * self._samples_per_iteration))
            else:
                self._samples_per_iteration = None
                self.complete = [replace(earlier, samples=None) for earlier in self.complete]
        self.complete.append(mark)


def _mark(reports: Sequence[Progress], ranks: int) -> Mark:
    """Return the mark of an iteration that its ranks have reported; it has samples only if all ranks report them."""
    counts = [report.samples for report in reports if report.samples is not None]
    thin_parts = [report.thin for report in reports if report.thin is not None]
    return Mark(
        iteration=reports[0].iteration,
        t_s=max(report.t_s for report in reports),
        samples=sum(counts) if len(counts) == ranks else None,
        # a part is thin once the last rank has reached it: until then the other ranks wait
        thin=max(thin_parts, key=attrgetter("from_s")) if len(thin_parts) == len(reports) else None,
        pause=next((report.pause for report in reports if report.pause), None),
    )


LEAST_SPAN_S = 0.5
"""The shortest span in seconds over which utilisation is averaged; shorter iterations are joined.

Utilisation is measured every tenth of a second or less often, so a shorter span would contain too few values.
"""


class Piece(NamedTuple):
    """A part of a window in which every second stands for the same amount of training: usual, thin, or a pause."""

    begin_s: float
    end_s: float
    trained_per_s: float
    """The seconds of training that one second of the piece stands for: 1, more if thin, or 0 in a pause."""

    @property
    def trained_s(self) -> float:
        """The seconds of training that the whole piece stands for."""
        return self.trained_per_s * (self.end_s - self.begin_s)


@dataclass(frozen=True)  # without slots, so that what is worked out once can be kept
class Window:
    """The whole iterations from the first mark to the last mark, which a probe evaluates; or a part of them."""

    LEAST_SPANS: ClassVar = 4
    """The fewest spans that show a usual speed, and the fewest iterations that show a usual length (chosen)."""

    marks: tuple[Mark, ...]
    last_level_from: int = 0
    """The position in `marks` at which the iterations change to their last level; 0 if they do not change."""
    round_iterations: int = 1
    """The iterations in which each batch of the loader's queue is used once, if batches come in bursts; otherwise 1."""
    is_queued: bool = False
    """Whether some batches may come from the queue that the loader filled before the first iteration."""
    change: Change | None = None
    """The change of the speed at which the window begins; None if it begins for another reason."""
    origin: Mark | None = None
    """The trainer's first mark, which lies before the window; None if it is unknown."""

    @property
    def last_level(self) -> "Window | None":
        """The part after the last change of level; None if the iterations do not change."""
        return Window(self.marks[self.last_level_from :], origin=self.origin) if self.last_level_from else None

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

    @cached_property
    def trained_s(self) -> float:
        """The seconds that the iterations take in ordinary training, without pauses and with nothing left out."""
        return sum(piece.trained_s for piece in self.pieces)

    @property
    def iterations(self) -> int:
        """The number of whole iterations, counted by marks: a trainer may print only every hundredth step."""
        return len(self.marks) - 1

    @property
    def iterations_per_s(self) -> float | None:
        """The iterations per second of training, as the trainer numbers them; None if they take no time."""
        seconds = self.trained_s
        return (self.last.iteration - self.first.iteration) / seconds if seconds > 0 else None

    @property
    def samples_per_s(self) -> float | None:
        """The samples of all ranks per second of training; None unless their total since the start is known.

        A trainer may report the samples of each iteration, such as 512, 512, 510, in place of their total. This shows:
        a total after N iterations is about N times its growth in an iteration, and those numbers are far more. The
        factor 2.25 (chosen) leaves room, because a trainer may number its iterations from 0 or from 1, and its first
        iteration may have more samples than others.
        """
        part = self._part_with_samples
        if not part._samples:
            return None
        begin = self.origin if self.origin and self.origin.samples is not None else part.first
        growth = part._samples / max(part.last.iteration - part.first.iteration, 1)
        is_total = (begin.samples or 0) <= 2.25 * max(begin.iteration, 1) * growth
        return part._samples / part.trained_s if is_total else None

    @property
    def counts_samples(self) -> bool:
        """Whether any samples are known: the trainer counts them, or the study says how many an iteration has."""
        return any(mark.samples is not None for mark in self.marks)

    @property
    def _part_with_samples(self) -> "Window":
        """The longest part whose first and last mark have samples, so that its number of samples is known.

        A mark may have no samples, as in reinforcement learning when no episode ends. A part that is shorter than 80 %
        of the window (chosen) says too little about the window. Then the whole window is returned, whose samples are
        unknown.
        """
        places = [place for place, mark in enumerate(self.marks) if mark.samples is not None]
        if not places:
            return self
        part = Window(
            self.marks[places[0] : places[-1] + 1], round_iterations=self.round_iterations, origin=self.origin
        )
        return part if part.seconds >= 0.8 * self.seconds else self

    @property
    def _samples(self) -> int | None:
        """The samples of all ranks in the window; None if its first or last mark has none."""
        before, after = self.first.samples, self.last.samples
        return None if before is None or after is None else after - before

    @cached_property
    def pieces(self) -> Sequence[Piece]:
        """The pieces of the window, cut where a thin part or a pause begins or ends; one piece without any."""
        pieces: list[Piece] = []
        begin_s = self.first.t_s
        for before, mark in pairwise(self.marks):
            if mark.pause_s:  # it is taken to be the beginning of the iteration
                pause_end_s = before.t_s + mark.pause_s
                pieces += [Piece(begin_s, before.t_s, 1.0), Piece(before.t_s, pause_end_s, 0.0)]
                begin_s = pause_end_s
            if mark.thin is not None:
                pieces += [
                    Piece(begin_s, mark.thin.from_s, 1.0),
                    Piece(mark.thin.from_s, mark.t_s, mark.thin.trained_per_s),
                ]
                begin_s = mark.t_s
        return pieces if begin_s == self.last.t_s else [*pieces, Piece(begin_s, self.last.t_s, 1.0)]

    def spans(self, may_cut: Callable[[Mark], bool] = lambda _: True) -> list["Window"]:
        """Cut the window into spans, whose means show how much a quantity scatters; return them in their order.

        A span goes from a mark to a later one. It ends at the first mark that keeps these rules:

        - It lasts at least `LEAST_SPAN_S`, and longer than the pause at its last mark.
        - It has at least `round_iterations`.
        - Of several marks at the same time, only the last one ends it.

        The last span goes on to the end of the window.

        Args:
            may_cut: Returns whether a span may end at a mark.
        """
        cuts = [0]
        for place, mark in enumerate(self.marks):
            begin = self.marks[cuts[-1]]
            span_s = mark.t_s - begin.t_s
            comes_with_next = place + 1 < len(self.marks) and self.marks[place + 1].t_s <= mark.t_s
            is_whole_round = mark.iteration - begin.iteration >= self.round_iterations
            is_long = span_s >= LEAST_SPAN_S and span_s > mark.pause_s
            if is_long and is_whole_round and not comes_with_next and may_cut(mark):
                cuts.append(place)
        # the last whole span goes on over what is left behind it, to the last mark
        cuts = [*(cuts[:-1] or [0]), len(self.marks) - 1]
        return [Window(self.marks[begin : end + 1]) for begin, end in pairwise(cuts)]

    def sample_rates(self) -> list[Block]:
        """Return the spans, each with its samples per second; empty if `samples_per_s` is unknown."""
        if self.samples_per_s is None:
            return []
        spans = self._part_with_samples.spans(lambda mark: mark.samples is not None)
        return [Block(span.trained_s, (span._samples or 0) / span.trained_s) for span in spans]


def _lengths_s(marks: Sequence[Mark]) -> list[float]:
    """Return the seconds of training from each mark to the next.

    Marks at the same time, as of a buffered output, share the time before them equally.
    """
    lengths_s: list[float] = []
    begin = 0
    while begin + 1 < len(marks):
        end = _last_at_same_time(marks, begin + 1)
        seconds = Window(tuple(marks[begin : end + 1])).trained_s
        lengths_s += [seconds / (end - begin)] * (end - begin)
        begin = end
    return lengths_s


def first_mark(marks: Sequence[Mark], warmup_iterations: int, queue: int = 0) -> int | None:
    """Return the position of the first mark at which a window may begin; None if there is no such mark yet.

    Two things must be over: the warm-up, and the batches that the loader had ready before the first iteration, on which
    training may be faster than later. These batches count as used up after a minute, however few have been taken.

    Args:
        marks: All marks of the probe so far.
        warmup_iterations: The first iterations that never count.
        queue: The batches that the loader had ready.
    """
    begin = warmup_iterations - 1  # the mark at which the warm-up ends
    if queue and marks:
        first = marks[0]
        after_queue = (
            place
            for place, mark in enumerate(marks)
            if mark.iteration - first.iteration >= queue or mark.t_s - first.t_s >= 60.0  # seconds
        )
        begin = max(begin, next(after_queue, len(marks)))
    return begin if begin < len(marks) else None


def _last_at_same_time(marks: Sequence[Mark], begin: int) -> int:
    """Return the position of the last mark that has the time of mark `begin`.

    Several marks have one time where a trainer's output was buffered.
    """
    later = (place for place in range(begin, len(marks)) if marks[place].t_s > marks[begin].t_s)
    return next(later, len(marks)) - 1


def with_pauses(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks with the seconds of their pauses: ends of epochs, evaluations and checkpoints.

    An iteration is usual if the output says nothing about a pause in it. Any other iteration counts as paused if it
    takes more than 1.5 times as long as the longest usual one, and half a second more than the usual mean (chosen). Its
    pause is what it takes beyond this mean. With less than twice as many usual iterations as others, it is unknown what
    is usual, and the marks are returned as they are.
    """

    def iterations(before: Mark, mark: Mark) -> int:
        """Return the iterations between two marks: a trainer may print only every tenth."""
        return max(1, mark.iteration - before.iteration)

    pairs = list(pairwise(marks))
    usual_s = [(mark.t_s - before.t_s) / iterations(before, mark) for before, mark in pairs if mark.pause is None]
    pauses = len(pairs) - len(usual_s)
    if not pauses or len(usual_s) < max(Window.LEAST_SPANS, 2 * pauses):
        return list(marks)
    result = [marks[0]]
    for before, mark in pairs:
        count, seconds = iterations(before, mark), mark.t_s - before.t_s
        pause_s = seconds - count * fmean(usual_s)
        is_long = pause_s >= 0.5 and seconds > 1.5 * count * max(usual_s)
        result.append(replace(mark, pause_s=pause_s) if mark.pause and is_long else mark)
    return result


def find_window(
    marks: Sequence[Mark],
    *,
    warmup_iterations: int,
    ran_out: bool,
    least_s: float = 0.0,
    least_iterations: int = 1,
    queue: int = 0,
) -> Window | None:
    """Return the window that a probe evaluates, from the end of warm-up to the last mark; None if it would be empty.

    1. The window begins once the loader's `queue` is used up. If the rest is shorter than `least_s` or
       `least_iterations`, the window begins before, and `is_queued` says so. If several marks came at the same time, as
       out of a buffer, it begins at the last of them.
    2. If the iterations change to another level, the window begins after the change. If the rest is too short, the
       window begins as before, and its `last_level_from` says where the change is.
    3. If batches come in bursts, the window has whole rounds of the queue.

    Args:
        marks: All marks of the probe.
        warmup_iterations: The first iterations that never count.
        ran_out: Whether the trainer ended by itself. The last iteration is then left out, because it includes work at
            the end of training (in MimicKit, a test rollout).
        least_s: The shortest window in seconds.
        least_iterations: The fewest iterations of a window.
        queue: The batches that a loader has ready before the first iteration.
    """
    complete = marks[: len(marks) - 1 if ran_out else None]

    def is_long_enough(marks: Sequence[Mark]) -> bool:
        """Return whether a window of these marks has the least length and iterations."""
        return marks[-1].t_s - marks[0].t_s >= least_s and len(marks) > least_iterations

    begin = first_mark(complete, warmup_iterations, queue)  # 1
    is_queued = queue > 0 and (begin is None or not is_long_enough(complete[begin:]))
    if is_queued:
        begin = first_mark(complete, warmup_iterations)
    inside = with_pauses(complete[_last_at_same_time(complete, begin) :]) if begin is not None else []
    if len(inside) < 2 or inside[-1].t_s <= inside[0].t_s:
        return None
    lengths_s = _lengths_s(inside)
    place = last_level(lengths_s)  # 2
    last_level_from = _last_at_same_time(inside, place) if place else 0
    if last_level_from >= len(lengths_s):  # no iteration comes after the change, so there is no other level yet
        last_level_from = 0
    window = Window(tuple(inside), last_level_from=last_level_from, is_queued=is_queued, origin=marks[0])
    after_change = window.last_level
    if after_change is not None:
        times = fmean(lengths_s[:last_level_from]) / fmean(lengths_s[last_level_from:])
        change = Change(after_change.first.iteration, after_change.first.t_s - marks[0].t_s, times)
        return replace(after_change, change=change) if is_long_enough(after_change.marks) else window
    # 3: where the lengths scatter by 30 % (chosen), several batches come at once and then none for a while
    in_bursts = queue > 1 and len(lengths_s) > 1 and stdev(lengths_s) >= 0.3 * fmean(lengths_s)
    if not in_bursts:
        return window
    end = 0  # the mark at which the last whole round ends; a round has as many iterations as the queue
    for place, mark in enumerate(window.marks):
        if mark.iteration - window.marks[end].iteration >= queue:
            end = place
    rounds = window.marks[: end + 1]
    return replace(window, marks=rounds if is_long_enough(rounds) else window.marks, round_iterations=queue)
