"""Gains and speeds that are told on a busy machine hold within their errors."""

import random
from dataclasses import replace

import pytest

from tuner.export.case_view import CaseView
from tuner.export.gain_in_words import gain_text
from tuner.export.speed_gain import doubts, gain
from tuner.export.summary import summary
from tuner.probe.metrics import SAMPLES_PER_S
from tuner.probe.result import Change, DeviceSummary
from tuner.records.case_record import CaseRecord
from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.search.standing import all_measured
from tuner.study import launch_digest


def measured(
    number: int, config: str, speed: float, delayed: float | None, others_pct: float | None = None
) -> TrialRecord:
    """Return a reading of a config whose rank waited for a share `delayed` of the time for a processor."""
    delayed_pct = None if delayed is None else 100.0 * delayed
    device = DeviceSummary(
        device="cpu:0", source="process_cpu", delayed_mean_pct=delayed_pct, others_mean_pct=others_pct
    )
    error = 0.015 * speed
    digest = launch_digest({"x": config})
    probe = ProbeRecord(digest=digest, status="ok", samples_per_s=speed, samples_per_s_se=error, devices=(device,))
    return TrialRecord(number=number, config={"x": config}, values=(speed,), error=error, probe=probe)


@pytest.mark.parametrize("readings", [1, 2, 4])
def test_two_standard_errors_hold_the_truth_if_all_readings_are_disturbed_alike(readings: int) -> None:
    """Waits cost each config another share of what they may cost at most; what is told must hold in nine of ten."""
    holds: list[tuple[bool, bool]] = []
    for seed in range(200):
        draw = random.Random(seed)
        delayed = draw.uniform(0.05, 0.8)
        shares = {config: draw.triangular(0.0, 1.0, 1.0) for config in ("own", "best")}
        trials = [
            measured(
                number,
                config,
                truth / (1.0 + shares[config] * delayed / (1.0 - delayed)) * draw.gauss(1.0, 0.015),
                delayed,
            )
            for number, (config, truth) in enumerate([("own", 100.0), ("best", 1000.0)] * readings)
        ]
        _, best = all_measured(trials)
        record = CaseRecord(objective=SAMPLES_PER_S, defaults=({"x": "own"},))
        gained = gain(CaseView(name="walk", record=record, trials=trials))
        assert gained
        assert gained.times
        assert gained.error
        assert best.widened_error
        holds.append(
            (abs(gained.times - 10.0) <= 2.0 * gained.error, abs(best.value - 1000.0) <= 2.0 * best.widened_error)
        )
    assert all(sum(told) >= 180 for told in zip(*holds, strict=True))


CHANGE = Change(150, 8.0, 3.0)


@pytest.mark.parametrize(
    ("own", "best", "change", "least"),
    [
        # the command's speed, the share of its waits, and the use of other programs; then those of the best
        ((100.0, 0.5, 95.0), (1000.0, 0.0, 5.0), None, 4.7),  # without waits, the command may be twice as fast
        ((100.0, 0.0, 5.0), (500.0, 0.5, 95.0), None, 4.7),  # the best may only be faster than it was
        ((100.0, 0.5, 95.0), (180.0, 0.0, 5.0), None, None),
        ((100.0, None, 95.0), (1000.0, 0.0, 5.0), None, None),  # how long the command waited is unknown
        ((100.0, 0.95, 95.0), (9000.0, 0.0, 5.0), None, None),  # it hardly ran
        ((100.0, 0.5, 95.0), (1000.0, 0.0, 5.0), CHANGE, None),  # only the best ran so long that it changed
    ],
)
def test_a_large_gain_beside_busy_programs_is_told_by_its_lower_bound(
    own: tuple[float, float | None, float],
    best: tuple[float, float, float],
    change: Change | None,
    least: float | None,
) -> None:
    of_best = measured(1, "best", *best)
    of_best = replace(of_best, probe=replace(of_best.probe, change=change))
    record = CaseRecord(objective=SAMPLES_PER_S, defaults=({"x": "own"},), trainer={"name": "command"})
    view = CaseView(name="walk", record=record, trials=[measured(0, "own", *own), of_best])
    row, doubt = summary(view), next(doubts(view))
    assert row.gain is None
    assert row.least_gain == least
    assert gain_text(row) == (f"at least {least} times as fast" if least else "unknown")
    told = f"; the best is probably at least {least} times as fast: " if least else ": "
    assert doubt.startswith(f"the gain is unknown{told}")


@pytest.mark.parametrize(("objective", "least"), [("iterations_per_s", 4.7), ("min_avg_util", 1.4)])
def test_the_lower_bound_is_of_the_speed_that_the_study_compares(objective: str, least: float) -> None:
    trials = [measured(0, "own", 100.0, 0.5, 95.0), measured(1, "best", 1000.0, 0.0, 5.0)]
    trials[1] = replace(trials[1], probe=replace(trials[1].probe, samples_per_s=300.0, samples_per_s_se=4.5))
    record = CaseRecord(objective=objective, defaults=({"x": "own"},), trainer={"name": "command"})
    assert summary(CaseView(name="walk", record=record, trials=trials)).least_gain == least
