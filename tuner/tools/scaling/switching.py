"""Whether a training that runs on one card is worth a move to several, for which it has to wait in a queue. Pure.

The training goes on until the job on several cards starts. The job goes on from the training's last checkpoint.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from tuner.probe import HOUR_S


def printed_step_s(lines: Iterable[str]) -> float | None:
    """Return the seconds per step by a training's progress bar, such as `2.5it/s`; None without such a bar.

    It is the median over the later half of the output's `lines`: the first steps are often slow.
    """
    form = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>it/s|s/it)\b")  # of tqdm, Lightning and transformers
    steps_s: list[float] = []
    for rate in (rate for line in lines for rate in form.finditer(line)):
        if number := float(rate["number"]):
            steps_s.append(number if rate["unit"] == "s/it" else 1 / number)
    return median(steps_s[len(steps_s) // 2 :]) if steps_s else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A training on one card, and the job on several cards that may go on with it."""

    steps_done: int
    steps_left: int
    step_s: float
    """The seconds that a step takes on one card."""
    cards: int
    speed_up: float
    """The samples per second on all cards, in multiples of those of one card."""
    queue_h: float
    """Hours until the job starts; the training goes on until then."""
    start_up_s: float = 0.0
    """Seconds from the start of the job until it trains."""
    checkpoint_steps: int = 1
    """The number of steps between two checkpoints."""

    @property
    def stay_h(self) -> float:
        """The hours left on one card."""
        return self.steps_left * self.step_s / HOUR_S

    @property
    def in_time(self) -> bool:
        """Whether the job starts before the training ends on one card."""
        return self.queue_h < self.stay_h

    @property
    def from_step(self) -> int:
        """The step of the last checkpoint before the job starts, 0 without one; the job goes on there."""
        reached = self.steps_done + math.floor(self.queue_h * HOUR_S / self.step_s)
        return reached // self.checkpoint_steps * self.checkpoint_steps

    @property
    def move_h(self) -> float:
        """The hours left with the move, the queue included."""
        return self.queue_h + self.job_h

    @property
    def job_h(self) -> float:
        """The hours that the job takes."""
        steps = self.steps_done + self.steps_left - self.from_step
        return (self.start_up_s + steps * self.step_s / self.speed_up) / HOUR_S

    @property
    def saved_h(self) -> float:
        """The hours that the move saves; negative where it costs hours, and 0 where the job starts too late."""
        return self.stay_h - self.move_h if self.in_time else 0.0

    @property
    def latest_h(self) -> float:
        """The longest queue, in hours, after which the move still saves time; 0 where none does.

        The move costs the start-up and, on average, half of the steps between two checkpoints again. Each hour that one
        card would train after the queue takes `1 / speed_up` hours on all cards, so the move saves the difference.
        """
        if self.speed_up <= 1.0:
            return 0.0
        repeated_s = self.checkpoint_steps / 2 * self.step_s / self.speed_up
        cost_h = (self.start_up_s + repeated_s) / HOUR_S
        least_left_h = cost_h / (1.0 - 1.0 / self.speed_up)  # with as much training left, nothing is saved
        return max(0.0, self.stay_h - least_left_h)


def advice(move: Move) -> Iterator[str]:
    """Yield how long the training takes with and without the move, and until when the move saves time."""
    yield f"one card: {move.steps_left:,} steps left, {_hours(move.stay_h)}"
    if not move.in_time:
        yield f"stay: the training ends before a job starts in {_hours(move.queue_h)}"
        return
    yield (
        f"{move.cards} cards, {move.speed_up:.3g} times as fast: the job starts in {_hours(move.queue_h)}, goes on "
        f"from step {move.from_step:,} and takes {_hours(move.job_h)}; {_hours(move.move_h)} in all"
    )
    # in card-hours: one card until the job starts, then all of them, instead of one card to the end
    added_h = move.queue_h + move.cards * move.job_h - move.stay_h
    cost = f"for {abs(added_h):.1f} {'more' if added_h >= 0 else 'fewer'} card-hours"
    if move.saved_h > 0:
        yield f"move: it saves {_hours(move.saved_h)} {cost}; submit the job now, and keep training until it starts"
    else:
        yield f"stay: the move costs {_hours(abs(move.saved_h))}"
    if move.latest_h:
        yield f"a move saves time if the job starts within {_hours(move.latest_h)}"


def _hours(hours: float) -> str:
    """Return a number of hours in words: in minutes below one."""
    return f"{hours:.1f} h" if hours >= 1.0 else f"{60 * hours:.0f} min"
