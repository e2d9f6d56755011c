"""What a live view learns about the devices of a running probe."""

from tuner.probe.probe_plan import Device
from tuner.probe.recorder import Metered
from tuner.probe.result import DeviceSample


class Two:
    """Two devices with known readings; a `DeviceSource`."""

    label = "known"
    devices = (Device(name="cuda:0", model="x"), Device(name="cuda:1", model="x"))

    def __init__(self, *readings: tuple[float | None, float | None]) -> None:
        self._readings = iter(readings)

    def attach(self, pid: int) -> None: ...

    def sample(self, t_s: float) -> list[DeviceSample]:
        return [DeviceSample(t_s=t_s, device=at, util_pct=share) for at, share in enumerate(next(self._readings))]


def test_each_device_s_mean_since_the_last_look_is_told() -> None:
    source = Metered(Two((20.0, None), (40.0, 90.0), (50.0, None)))
    assert source.taken() == ()
    samples = [source.sample(0.0), source.sample(0.1)]
    assert [len(one) for one in samples] == [2, 2]
    assert source.taken() == (30.0, 90.0)
    source.sample(0.2)
    assert source.taken() == (50.0, None)
    assert source.taken() == ()
