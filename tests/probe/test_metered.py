"""What a live view learns about the devices of a running probe."""

from tuner.probe.result import DeviceSample
from tuner.probe.series import busy_pct


def readings(*shares: tuple[float | None, float | None]) -> list[DeviceSample]:
    return [DeviceSample(t_s=0.0, device=at, util_pct=one) for pair in shares for at, one in enumerate(pair)]


def test_each_device_s_mean_is_told() -> None:
    assert busy_pct((), 2) == ()
    assert busy_pct(readings((20.0, None), (40.0, 90.0)), 2) == (30.0, 90.0)
    assert busy_pct(readings((50.0, None)), 2) == (50.0, None)
