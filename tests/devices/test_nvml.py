import inspect
from collections.abc import Iterator
from threading import Event

import pynvml
import pytest
from tests_devices import FakeGpu, FakeNvml, check_device_source

from tuner.devices.drivers import NoDriverError, Nvml, NvmlSource
from tuner.errors import DeviceError, DeviceLostError


def two_cards() -> tuple[FakeGpu, FakeGpu]:
    return FakeGpu(uuid="GPU-a", name="NVIDIA A", power_w=126.5, energy_j=8123.456), FakeGpu(
        uuid="GPU-b", name="NVIDIA B", util_pct=72
    )


def test_keeps_the_contract():
    gpm_pct = {pynvml.NVML_GPM_METRIC_SM_UTIL: 21.8}
    check_device_source(NvmlSource(Nvml(FakeNvml(*two_cards())), ["GPU-a", "GPU-b"]))
    check_device_source(NvmlSource(Nvml(FakeNvml(FakeGpu(uuid="GPU-a", gpm_pct=gpm_pct))), ["GPU-a"]))


def test_names_cards_by_position_and_finds_them_by_uuid():
    source = NvmlSource(Nvml(FakeNvml(*two_cards())), ["GPU-b", "GPU-a"])
    assert source.label == "nvml"
    assert [(card.name, card.model, card.uuid) for card in source.devices] == [
        ("cuda:0", "NVIDIA B", "GPU-b"),
        ("cuda:1", "NVIDIA A", "GPU-a"),
    ]
    assert source.devices[0].mem_total_mib == 24_564


def test_utilisation_memory_and_power_are_measured_in_the_named_units():
    source = NvmlSource(Nvml(FakeNvml(*two_cards())), ["GPU-a", "GPU-b"])
    first, second = source.sample(3.5)
    assert (first.t_s, first.device, first.util_pct, first.mem_used_mib, first.power_w) == (3.5, 0, 0.0, 615.0, 126.5)
    assert (first.energy_j, second.energy_j) == (8123.456, 0.0)
    assert (second.t_s, second.device, second.util_pct, second.mem_total_mib) == (3.5, 1, 72.0, 24_564.0)
    assert first.sm_pct is None


def test_what_a_card_does_not_offer_is_unknown() -> None:
    for call, field in [
        ("nvmlDeviceGetUtilizationRates", "util_pct"),
        ("nvmlDeviceGetMemoryInfo", "mem_used_mib"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
        ("nvmlGpmQueryDeviceSupport", "sm_pct"),
    ]:
        card = FakeGpu(uuid="GPU-a", gpm_pct={}, errors={call: pynvml.NVML_ERROR_NOT_SUPPORTED})
        source = NvmlSource(Nvml(FakeNvml(card)), ["GPU-a"])
        source.sample(0.0)
        (sample,) = source.sample(0.5)
        assert getattr(sample, field) is None


def test_a_lost_card_is_an_error_that_names_it():
    first, second = two_cards()
    source = NvmlSource(Nvml(FakeNvml(first, second)), ["GPU-a", "GPU-b"])
    second.lost = True
    with pytest.raises(DeviceError, match=r"cuda:1 does not answer nvmlDeviceGetUtilizationRates"):
        source.sample(0.0)


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, True),
        (pynvml.NVML_ERROR_RESET_REQUIRED, True),
        (pynvml.NVML_ERROR_UNKNOWN, False),
        (pynvml.NVML_ERROR_TIMEOUT, False),
    ],
)
def test_a_lost_card_is_distinguished_from_a_card_that_may_answer_again(code: int, gone: bool):
    card, other = two_cards()
    source = NvmlSource(Nvml(FakeNvml(card, other)), ["GPU-a", "GPU-b"])
    card.errors = {"nvmlDeviceGetPowerUsage": code}
    with pytest.raises(DeviceError, match=r"cuda:0 does not answer nvmlDeviceGetPowerUsage") as caught:
        source.sample(0.0)
    assert isinstance(caught.value, DeviceLostError) == gone
    card.errors = {}
    assert source.sample(0.1)[0].power_w == 126.5


@pytest.fixture
def hang() -> Iterator[Event]:
    """Return the event that a hanging call waits for."""
    hang = Event()
    yield hang
    hang.set()


def test_a_call_that_hangs_is_an_error_that_names_its_card_and_may_pass(hang: Event):
    card, other = two_cards()
    source = NvmlSource(Nvml(FakeNvml(card, other), answer_s=0.5), ["GPU-a", "GPU-b"])
    other.hangs["nvmlDeviceGetPowerUsage"] = hang
    for _ in range(3):
        with pytest.raises(
            DeviceError, match="cuda:1 does not answer nvmlDeviceGetPowerUsage: the call hangs"
        ) as caught:
            source.sample(0.0)
        assert not isinstance(caught.value, DeviceLostError)


def test_a_driver_that_hangs_as_it_starts_is_not_waited_for(hang: Event):
    with pytest.raises(DeviceError, match="the NVIDIA driver hangs as it starts") as caught:
        Nvml(FakeNvml(init_hangs=hang), open_s=0.01)
    assert not isinstance(caught.value, NoDriverError)


def test_a_card_that_is_not_there_is_an_error_that_names_it():
    with pytest.raises(DeviceError, match="GPU-z"):
        NvmlSource(Nvml(FakeNvml(*two_cards())), ["GPU-z"])


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_a_machine_without_a_driver_is_recognised(code: int):
    with pytest.raises(NoDriverError):
        Nvml(FakeNvml(init_error=code))


def test_a_driver_that_does_not_start_is_not_taken_for_none():
    with pytest.raises(DeviceError, match="does not start") as caught:
        Nvml(FakeNvml(init_error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    assert not isinstance(caught.value, NoDriverError)


def test_lists_cards_in_the_driver_s_order_and_its_versions():
    nvml = Nvml(FakeNvml(*two_cards()))
    assert nvml.uuids() == ["GPU-a", "GPU-b"]
    assert nvml.versions() == {"driver": "580.1", "cuda": "13.1"}


def test_the_fake_has_only_calls_of_the_real_library_with_as_many_arguments():
    calls = {name: call for name, call in vars(FakeNvml).items() if name.startswith("nvml")}
    assert len(calls) > 10
    for name, call in calls.items():
        real = inspect.signature(getattr(pynvml, name)).parameters.values()
        required = [parameter for parameter in real if parameter.default is inspect.Parameter.empty]
        assert len(required) == len(inspect.signature(call).parameters) - 1, name
