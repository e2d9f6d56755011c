"""Thin iterations, read as NVML and GPM read: the summary tells what a device does in ordinary training."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample, DeviceSummary, Thin
from tuner.probe.summaries import MeanReading, mean_readings, piece_mean, summarise
from tuner.probe.window import Mark, Piece, Window

NVML_S = 0.2
GPM_S = 0.2


@dataclass(frozen=True)
class Part:
    """A part of an iteration in which a device is equally busy all the time."""

    seconds: float
    util_pct: float
    sm_pct: float


ROLLOUT = Part(3.0, 62.0, 20.0)
UPDATES = (Part(9.0, 99.0, 95.0), Part(19.0, 96.0, 84.0))
"""The critic trains first and keeps the device busier than the actor. The times are those of amp_humanoid on H200s."""


def truth(field: str) -> float:
    """Return the exact mean over an iteration of ordinary training."""
    parts = (ROLLOUT, *UPDATES)
    return sum(part.seconds * getattr(part, field) for part in parts) / sum(part.seconds for part in parts)


class Timeline:
    """What a device does in thin iterations, with the exact mean over any interval."""

    def __init__(self, iterations: int, by: float) -> None:
        self.marks = [Mark(iteration=0, t_s=5.0)]
        self._parts: list[tuple[float, float, Part]] = [(0.0, 5.0, ROLLOUT)]
        for iteration in range(1, iterations + 1):
            from_s = self._add(ROLLOUT, 1.0)
            end_s = [self._add(part, by) for part in UPDATES][-1]
            self.marks.append(Mark(iteration=iteration, t_s=end_s, thin=Thin(from_s, by)))
        self._add(ROLLOUT, 1.0)

    def _add(self, part: Part, by: float) -> float:
        begin_s = self._parts[-1][1]
        self._parts.append((begin_s, begin_s + part.seconds / by, part))
        return self._parts[-1][1]

    def mean(self, field: str, begin_s: float, end_s: float) -> float:
        shared = ((min(end_s, end) - max(begin_s, begin), part) for begin, end, part in self._parts)
        return sum(max(0.0, seconds) * getattr(part, field) for seconds, part in shared) / (end_s - begin_s)

    def samples(self, phase_s: float) -> Iterator[DeviceSample]:
        """Yield samples ten times a second.

        NVML takes a mean over 0.2 s every 0.2 s and shows it until the next; GPM averages since the sample before.
        """
        gpm_s = 0.45
        for tick in range(5, int((self._parts[-1][1] - 0.1) * 10)):
            t_s = tick / 10
            taken_s = phase_s + NVML_S * int((t_s - phase_s) / NVML_S)
            sm_pct = None
            if t_s - gpm_s >= GPM_S:
                sm_pct, gpm_s = self.mean("sm_pct", gpm_s, t_s), t_s
            yield DeviceSample(
                t_s=t_s, device=0, util_pct=self.mean("util_pct", taken_s - NVML_S, taken_s), sm_pct=sm_pct
            )


def summary(iterations: int, by: float, phase_s: float = 0.0) -> DeviceSummary:
    timeline = Timeline(iterations, by)
    window = Window(tuple(timeline.marks))
    return summarise(list(timeline.samples(phase_s)), window, Device(name="cuda:0", model="x"), "nvml")


@pytest.mark.parametrize("by", [4.0, 7.0, 10.0])
@pytest.mark.parametrize("phase_s", [0.0, 0.03, 0.07, 0.11, 0.19])
def test_thin_iterations_tell_what_training_does(by: float, phase_s: float) -> None:
    found = summary(3, by, phase_s)
    assert found.util_mean_pct == pytest.approx(truth("util_pct"), abs=0.3)
    assert found.sm_mean_pct == pytest.approx(truth("sm_pct"), abs=0.6)


@pytest.mark.parametrize("by", [4.0, 10.0, 18.7])
def test_the_truth_lies_within_twice_the_claimed_error(by: float) -> None:
    for phase_s in (0.0, 0.05, 0.1, 0.15):
        found = summary(3, by, phase_s)
        assert abs((found.util_mean_pct or 0.0) - truth("util_pct")) <= 2 * (found.util_se_pct or 0.0)
        assert abs((found.sm_mean_pct or 0.0) - truth("sm_pct")) <= 2 * (found.sm_se_pct or 0.0)


def test_the_ends_of_a_piece_count_the_more_the_more_it_stands_for() -> None:
    errors = [summary(3, by).sm_se_pct or 0.0 for by in (2.0, 5.0, 10.0, 20.0)]
    assert errors == sorted(errors)


def test_more_iterations_reduce_all_of_the_error_but_the_part_of_the_ends() -> None:
    few, many = summary(3, 10.0), summary(30, 10.0)
    assert many.util_edge_pct == pytest.approx(few.util_edge_pct, rel=0.5)
    assert many.util_edge_pct > 0.5 * (many.util_se_pct or 0.0)
    assert many.sm_edge_pct > 0.5 * (many.sm_se_pct or 0.0)


PIECE = Piece(10.0, 12.0, 5.0)


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0.05, 0.5), st.floats(0, 0.5))
def test_a_piece_of_one_level_is_known_exactly_whatever_lies_around_it(
    inside_pct: float, outside_pct: float, step_s: float, shift_s: float
) -> None:
    cuts = [9.0 - shift_s + step_s * count for count in range(int(5 / step_s))]
    known = []
    for begin_s, end_s in pairwise(cuts):
        share = max(0.0, min(end_s, PIECE.end_s) - max(begin_s, PIECE.begin_s)) / (end_s - begin_s)
        known.append(MeanReading(begin_s, end_s, share * inside_pct + (1 - share) * outside_pct))
    found = piece_mean(known, PIECE)
    assert found is not None
    assert found.value == pytest.approx(inside_pct, abs=1e-6)
    assert found.edge_error == pytest.approx(0.0, abs=1e-6)


def test_each_moment_of_a_piece_takes_the_nearest_reading_inside() -> None:
    known = [
        MeanReading(9.9, 10.1, 0.0),
        MeanReading(10.1, 10.3, 90.0),
        MeanReading(11.5, 11.7, 60.0),
        MeanReading(11.9, 12.1, 0.0),
    ]
    found = piece_mean(known, PIECE)
    assert found is not None
    assert found.value == pytest.approx((0.9 * 90 + 1.1 * 60) / 2)


def test_a_piece_without_a_reading_of_its_own_takes_those_in_its_middle() -> None:
    known = [MeanReading(9.0, 11.4, 80.0), MeanReading(11.4, 13.0, 60.0), MeanReading(13.0, 14.0, 0.0)]
    found = piece_mean(known, PIECE)
    assert found is not None
    assert found.value == 80.0
    assert piece_mean(known[2:], PIECE) is None


def test_a_mean_since_the_value_before_begins_there() -> None:
    chance = random.Random(1)
    times_s = sorted(chance.uniform(0, 10) for _ in range(20))
    samples = [DeviceSample(t_s=t_s, device=0, sm_pct=None if place % 2 else 5.0) for place, t_s in enumerate(times_s)]
    found = mean_readings(samples, lambda sample: sample.sm_pct, None)
    assert [(one.begin_s, one.end_s) for one in found] == list(pairwise(times_s[::2]))
