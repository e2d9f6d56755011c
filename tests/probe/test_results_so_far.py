"""How often a probe that runs gives its result so far."""

import math
from itertools import pairwise

import pytest
from tests_probe import READINGS, iterations, probe

from tuner.probe.probe_plan import Answer, Next
from tuner.probe.result import ProbeResult


class Listener:
    """A `stop` that keeps how long each result had trained, and answers another thing from a time on."""

    def __init__(self, usual: Answer, later: Answer | None = None, from_s: float = math.inf) -> None:
        self.trained_s: list[float] = []
        self._usual, self._later, self._from_s = usual, later or usual, from_s

    def __call__(self, so_far: ProbeResult | None) -> Answer:
        if so_far is None:
            return Answer(Next.GO)
        self.trained_s.append(round(so_far.total_s - (so_far.start_up_s or 0.0), 3))
        return self._later if self.trained_s[-1] >= self._from_s else self._usual


def long_probe(stop: Listener, seconds: int, *, usual_iterations: int = 8) -> ProbeResult:
    """Probe a trainer that ends after so many seconds of training; each iteration takes one."""
    lines = iterations(seconds + 1, step_s=1.0)
    exit_at_s = lines[-1][0] + 0.1
    return probe(lines, stop=stop, readings=READINGS[:20], exit_at_s=exit_at_s, iterations=usual_iterations)[0]


def test_results_become_as_rare_as_the_training_is_long_and_none_is_missing_at_first() -> None:
    stop = Listener(Answer(Next.MORE))
    assert long_probe(stop, 240).iterations == 239  # it goes on between results, too
    assert stop.trained_s[:60] == [float(second) for second in range(60)]
    doublings = [sum(begin < at_s <= 2 * begin for at_s in stop.trained_s) for begin in (60.0, 120.0)]
    assert max(doublings) <= math.log(2) / math.log(1.02)  # of 60 and of 120 iterations
    assert all(later <= 1.02 * earlier + 1.0 for earlier, later in pairwise(stop.trained_s))


def test_the_iteration_after_an_announced_last_one_gives_a_result() -> None:
    stop = Listener(Answer(Next.MORE), Answer(Next.LAST_ITERATION), from_s=80.0)
    assert long_probe(stop, 100, usual_iterations=1000).ok
    announced_s, ended_s = stop.trained_s[-2:]
    assert ended_s == announced_s + 1.0


@pytest.mark.parametrize(("next_result_s", "expected"), [(81.5, {82.0}), (0.0, set(range(101)))])
def test_a_result_that_an_answer_asks_for_comes_in_time(next_result_s: float, expected: set[float]) -> None:
    stop = Listener(Answer(Next.MORE, next_result_s=next_result_s))
    long_probe(stop, 100)
    assert expected <= set(stop.trained_s)
