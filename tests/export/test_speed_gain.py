"""Gains and speeds that are told on a busy machine hold within their errors."""

import random

import pytest

from tuner.export.case_view import CaseView
from tuner.export.speed_gain import gain
from tuner.probe.metrics import SAMPLES_PER_S
from tuner.probe.result import DeviceSummary
from tuner.records.case_record import CaseRecord
from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.search.standing import all_measured


def measured(number: int, config: str, speed: float, delayed: float) -> TrialRecord:
    """Return a reading of a config whose rank waited for a share `delayed` of the time for a processor."""
    device = DeviceSummary(device="cpu:0", source="process_cpu", delayed_mean_pct=100.0 * delayed)
    error = 0.015 * speed
    probe = ProbeRecord(digest=config, status="ok", samples_per_s=speed, samples_per_s_se=error, devices=(device,))
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
        own, best = all_measured(trials)
        view = CaseView(name="walk", record=CaseRecord(objective=SAMPLES_PER_S), trials=trials)
        gained = gain(view, own)
        assert gained
        assert gained.times
        assert gained.error
        assert best.widened_error
        holds.append(
            (abs(gained.times - 10.0) <= 2.0 * gained.error, abs(best.value - 1000.0) <= 2.0 * best.widened_error)
        )
    assert all(sum(told) >= 180 for told in zip(*holds, strict=True))
