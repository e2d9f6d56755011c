"""How long a training's threads have waited for a processor that other programs used."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """What a thread has done so far, in seconds."""

    ran_s: float = 0.0
    waited_s: float = 0.0
    """The time in which it could have run, and no processor was free."""


def thread_times(pid: int, root: Path = Path("/")) -> dict[str, ThreadTimes]:
    """Return the times of a process's threads (Documentation/scheduler/sched-stats); empty where they are unknown."""
    threads: dict[str, ThreadTimes] = {}
    with suppress(OSError):
        for folder in (root / f"proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):
                ran, waited, _ = (folder / "schedstat").read_text(encoding="utf-8").split()
                threads[folder.name] = ThreadTimes(int(ran) / 1e9, int(waited) / 1e9)
    return threads


class Delays:
    """Measures how long others make the ranks of a training wait for a processor."""

    def __init__(self, read: Callable[[int], Mapping[str, ThreadTimes]] = thread_times) -> None:
        """`read` returns the times of a process's threads."""
        self._read = read
        self._before: tuple[float, dict[int, Mapping[str, ThreadTimes]]] = -math.inf, {}
        """When threads were read last, and their times then, by process."""
        self._trainer_s = 0.0
        """The processors' time that the training has used since threads were read last."""
        self._others_s = 0.0
        """The processors' time that all other programs have used since then."""
        self._shares: dict[int, float] = {}
        """The last answer."""

    def shares_pct(
        self, t_s: float, owners: Mapping[int, int], *, trainer_s: float, others_s: float | None
    ) -> Mapping[int, float]:
        """Return rank → the percentage of the time in which others made it wait, as of the last whole second.

        The thread of a rank with the longest wait counts. Threads of the training wait for each other, too. So others
        cause the part of a thread's waiting that is their part of the time that all other threads have used.

        Args:
            t_s: the time now.
            owners: process → the rank that it works for.
            trainer_s: the processors' time that all processes of the training used since the last call.
            others_s: the processors' time that all other programs used since then; None where it is unknown.
        """
        before_s, before = self._before
        self._trainer_s += trainer_s
        self._others_s += max(0.0, others_s or 0.0)
        if t_s - before_s < 1.0:  # second: reading 31 threads takes half a millisecond
            return self._shares
        now = {pid: self._read(pid) for pid in owners}
        shares: dict[int, float] = {}
        for pid in now.keys() & before.keys() if others_s is not None else ():
            waits_s = [
                _caused_s(before[pid].get(thread, ThreadTimes()), times, self._trainer_s, self._others_s)
                for thread, times in now[pid].items()
            ]
            # at most 99 %: clocks that are read one after the other may show more than there is
            share_pct = min(99.0, 100.0 * max(waits_s, default=0.0) / (t_s - before_s))
            shares[owners[pid]] = max(share_pct, shares.get(owners[pid], 0.0))
        self._before, self._shares, self._trainer_s, self._others_s = (t_s, now), shares, 0.0, 0.0
        return shares


def _caused_s(before: ThreadTimes, now: ThreadTimes, trainer_s: float, others_s: float) -> float:
    """Return the part of a thread's waiting that other programs have caused, in seconds."""
    other_threads_s = max(0.0, trainer_s - (now.ran_s - before.ran_s))
    waited_s = now.waited_s - before.waited_s
    return waited_s * others_s / (others_s + other_threads_s) if others_s > 0.0 else 0.0
