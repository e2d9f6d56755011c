import pynvml
import pytest
from tests_devices import FakeGpu, FakeNvml

from tuner.devices.cards import Cards, Clocks, Occupancy, Occupant, obstacles
from tuner.devices.drivers import Nvml, NvmlSource
from tuner.errors import DeviceError
from tuner.probe.probe_plan import Device


def opened(*gpus: FakeGpu) -> Cards:
    nvml = Nvml(FakeNvml(*gpus))
    return Cards(NvmlSource(nvml, [gpu.uuid for gpu in gpus]).devices, lambda: nvml)


def test_occupancy_is_read_in_the_named_units() -> None:
    held = {4711: 2048, 4712: None}
    (first, second) = opened(FakeGpu(uuid="GPU-a", processes=held, util_pct=97), FakeGpu(uuid="GPU-b")).occupancy()
    assert first.occupants == (Occupant(pid=4711, mem_mib=2048.0), Occupant(pid=4712))
    assert (first.device.name, first.util_pct, first.mem_used_mib) == ("cuda:0", 97.0, 615.0)
    assert (second.device.name, second.util_pct, second.occupants) == ("cuda:1", 0.0, ())


def test_a_card_is_free_with_what_its_driver_keeps_also_where_a_study_limits_its_memory() -> None:
    nvml = Nvml(FakeNvml(FakeGpu(uuid="GPU-a")))  # its driver keeps 615 MiB
    limited = NvmlSource(nvml, ["GPU-a"], memory_mib=2500.0).devices
    (now,) = Cards(limited, lambda: nvml).occupancy()
    assert obstacles([now], [now]) == []


def test_clocks_are_read_with_what_slows_them() -> None:
    for reasons, slowed_by in [
        (pynvml.nvmlClocksThrottleReasonNone, ()),
        (pynvml.nvmlClocksThrottleReasonGpuIdle, ()),
        (pynvml.nvmlClocksThrottleReasonSwPowerCap, ("power limit",)),
        (
            pynvml.nvmlClocksThrottleReasonHwSlowdown | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
            ("hardware slowdown", "heat (hardware)"),
        ),
    ]:
        (clocks,) = opened(FakeGpu(uuid="GPU-a", sm_mhz=345, slowed_by=reasons)).clocks()
        assert (clocks.sm_mhz, clocks.sm_max_mhz, clocks.slowed_by) == (345, 1980, slowed_by)


def test_what_a_card_does_not_offer_is_unknown() -> None:
    calls = ("MemoryInfo", "UtilizationRates", "ComputeRunningProcesses", "ClockInfo", "CurrentClocksThrottleReasons")
    errors = {f"nvmlDeviceGet{call}": pynvml.NVML_ERROR_NOT_SUPPORTED for call in calls}
    cards = opened(FakeGpu(uuid="GPU-a", errors=errors))
    device = Device(name="cuda:0", model="NVIDIA Fake", uuid="GPU-a")
    assert cards.occupancy() == (Occupancy(device=device),)
    assert cards.clocks() == (Clocks(device=device, sm_max_mhz=1980),)


def test_a_lost_card_is_an_error_that_names_it() -> None:
    gpu = FakeGpu(uuid="GPU-a")
    cards = opened(gpu)
    gpu.lost = True
    with pytest.raises(DeviceError, match="cuda:0"):
        cards.occupancy()


def test_without_gpus_nobody_is_asked() -> None:
    def connect() -> Nvml:
        raise AssertionError("connected without need")

    cards = Cards([Device(name="cpu:0", model="cpu")], connect)
    assert (cards.occupancy(), cards.clocks()) == ((), ())
