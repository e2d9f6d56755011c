"""What configs that were never probed will need and make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.result import DeviceSummary
from tuner.records.trial import COMPLETE, ProbeRecord, TrialRecord
from tuner.search.resource_model import expected_resources
from tuner.study.space import Parameter, Space

RUNGS = (16, 32, 64, 128, 256)
SPACE = Space((Parameter(name="num_envs", values=RUNGS),))


def trial(
    rung: int, fixed_mib: float, each_mib: float, fixed_s: float, each_s: float, *, hides: bool = False
) -> TrialRecord:
    """Return a trial whose memory and seconds have a fixed part, and a part for each environment.

    `hides`: whether the shorter part runs beside the longer one, as on a GPU that waits for its host.
    """
    used = DeviceSummary(
        device="cuda:0",
        source="nvml",
        util_mean_pct=50.0,
        mem_peak_mib=fixed_mib + rung * each_mib,
        mem_total_mib=10_000.0,
    )
    speed = rung / (max(fixed_s, rung * each_s) if hides else fixed_s + rung * each_s)
    probe = ProbeRecord(status="ok", samples_per_s=speed, devices=(used,))
    return TrialRecord(state=COMPLETE, config={"num_envs": rung}, values=(1.0,), probe=probe)


@given(st.floats(500, 3000), st.floats(2, 20), st.floats(0.5, 2.0), st.floats(0.001, 0.05))
def test_two_probes_foretell_a_straight_line(fixed_mib: float, each_mib: float, fixed_s: float, each_s: float) -> None:
    parts = fixed_mib, each_mib, fixed_s, each_s
    (found,) = expected_resources(SPACE, [trial(16, *parts), trial(128, *parts)], [{"num_envs": 64}])
    true = trial(64, *parts)
    assert found.memory_share is not None
    assert found.samples_per_s is not None
    assert 100 * found.memory_share.mean == pytest.approx(true.memory_share_pct, rel=0.05)
    assert 100 * found.memory_share.low <= (true.memory_share_pct or 0.0) <= 100 * found.memory_share.high
    assert found.samples_per_s.low <= (true.samples_per_s or 0.0) <= found.samples_per_s.high


@pytest.mark.parametrize("hides", [True, False])
def test_whether_the_fixed_time_hides_behind_the_rest_or_not_speed_is_foretold(hides: bool) -> None:
    ends = [trial(rung, 1000.0, 10.0, 0.064, 0.001, hides=hides) for rung in (16, 256)]
    (found,) = expected_resources(SPACE, ends, [{"num_envs": 128}])
    true = trial(128, 1000.0, 10.0, 0.064, 0.001, hides=hides).samples_per_s
    assert found.samples_per_s is not None
    assert found.samples_per_s.mean == pytest.approx(true, rel=0.3)
    assert found.samples_per_s.low <= (true or 0.0) <= found.samples_per_s.high


def test_without_a_probe_nothing_is_foreseen_and_one_probe_leaves_more_doubt_than_two() -> None:
    (nothing,) = expected_resources(SPACE, [], [{"num_envs": 64}])
    assert nothing.memory_share is None
    assert nothing.samples_per_s is None
    parts = 1000.0, 10.0, 1.0, 0.01
    widths = [
        found.memory_share.high / found.memory_share.low
        for probes in ((16,), (16, 128))
        for found in expected_resources(SPACE, [trial(rung, *parts) for rung in probes], [{"num_envs": 256}])
        if found.memory_share
    ]
    assert widths[0] > widths[1]
