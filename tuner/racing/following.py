"""One run of a race: its limits, its scores, and when it has trained long enough."""

from collections.abc import Callable
from math import isfinite

from tuner.probe.result import ProbeResult
from tuner.probe.stop import Answer, Enough, Go, Interrupted, More
from tuner.study.spec import ProbeSpec

SAMPLE_S = 1.0
"""A run's devices are read so often, in seconds: a long run would otherwise keep very many readings."""
WINDOW_SHARE = 0.25
"""The share of a run's time that is enough to measure its samples per second."""
MANY = 10_000_000
"""The iterations that no run reaches: its time ends it."""


def run_limits(probe: ProbeSpec, seconds: float) -> ProbeSpec:
    """Return the limits of a run that trains for `seconds`: only its time ends it, and no iteration is shortened."""
    return probe.model_copy(
        update={
            "iterations": MANY,
            "window_seconds": min(probe.window_seconds, WINDOW_SHARE * seconds),
            "thin": False,
            "warm": False,
            "max_seconds": probe.max_seconds + 2.0 * seconds,
            "sample_seconds": max(SAMPLE_S, probe.sample_seconds),
        }
    )


class Following:
    """Follows a run: keeps its scores, and ends it once it has trained long enough."""

    def __init__(self, seconds: float, interrupted: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._interrupted = interrupted
        self.curve: list[tuple[float, float]] = []
        self.trained_s = 0.0
        self._seen_s = -1.0
        self._not_finite = self._most_not_finite = 0

    def __call__(self, so_far: ProbeResult | None) -> Answer:
        """Take over the newest score, and say whether the run goes on."""
        if self._interrupted():
            return Interrupted()
        if so_far is None:
            return Go()
        self.trained_s = so_far.total_s - (so_far.start_up_s or so_far.total_s)
        self.note(so_far)
        return Enough() if self.is_whole else More()

    @property
    def is_whole(self) -> bool:
        """Whether the run has trained long enough, even if its window is too short for a probe."""
        return self.trained_s >= self._seconds

    @property
    def failure(self) -> str | None:
        """Why the config cannot be ranked, as the scores of the run show; None where it can.

        A mean over episodes is not finite, either, while no episode ends. So scores that are not finite, and that are
        no more in a row than at an earlier time of the run, are no failure.
        """
        if self._not_finite > self._most_not_finite:
            return f"diverged: the last {self._not_finite} return(s) of the run are no finite numbers"
        return None

    def note(self, result: ProbeResult) -> None:
        """Take over the newest score."""
        score = result.score
        if score is None or score.t_s <= self._seen_s or result.start_up_s is None:
            return
        self._seen_s = score.t_s
        if not isfinite(score.value):
            self._not_finite += 1
            return
        self._most_not_finite = max(self._most_not_finite, self._not_finite)
        self._not_finite = 0
        self.curve.append((max(0.0, score.t_s - result.start_up_s), score.value))
