"""AMD cards, on answers in the form that AMD documents: no such card was at hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from tests_devices import FakeGpu, FakeNvml, check_device_source

from tuner.devices.cards import Cards
from tuner.devices.drivers import Amd, AmdSource, NoDriverError, Nvml, visible_names
from tuner.devices.found import device_variables, links, open_devices
from tuner.errors import DeviceError


class FakeAmdError(Exception):
    """A call that failed with the AMD SMI status `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"AMD SMI error {code}")
        self._code = code

    def get_error_code(self) -> int:
        return self._code


@dataclass(eq=False, kw_only=True)
class FakeAmdGpu:
    """One AMD card: what each call answers, in the form that AMD documents for an MI300X."""

    asic: dict[str, Any] = field(
        default_factory=lambda: {"market_name": "AMD Instinct MI300X", "asic_serial": "0x4B2C1A9F8D3E6F7A"}
    )
    activity: dict[str, Any] = field(
        default_factory=lambda: {"gfx_activity": 72, "umc_activity": 11, "mm_activity": "N/A"}
    )
    vram: dict[str, Any] = field(default_factory=lambda: {"vram_total": 196_592, "vram_used": 285})
    power: dict[str, Any] = field(
        default_factory=lambda: {"current_socket_power": 140, "average_socket_power": "N/A", "power_limit": 750}
    )
    energy: dict[str, Any] = field(
        default_factory=lambda: {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1}
    )
    errors: dict[str, int] = field(default_factory=dict)
    """Call → the status with which it fails on this card."""


class FakeAmdsmi(ModuleType):
    """A fake AMD SMI with the cards `gpus`."""

    AmdSmiException = FakeAmdError

    def __init__(self, *gpus: FakeAmdGpu, init_error: int | None = None, handles_error: int | None = None) -> None:
        super().__init__("amdsmi")
        self._gpus, self._init_error, self._handles_error = gpus, init_error, handles_error
        for name, part in {
            "amdsmi_get_gpu_asic_info": "asic",
            "amdsmi_get_gpu_activity": "activity",
            "amdsmi_get_gpu_vram_usage": "vram",
            "amdsmi_get_power_info": "power",
            "amdsmi_get_energy_count": "energy",
        }.items():
            setattr(self, name, self._answering(name, part))

    def amdsmi_init(self) -> None:
        if self._init_error is not None:
            raise FakeAmdError(self._init_error)

    def amdsmi_get_processor_handles(self) -> list[FakeAmdGpu]:
        if self._handles_error is not None:
            raise FakeAmdError(self._handles_error)
        return list(self._gpus)

    def _answering(self, name: str, part: str) -> Callable[[FakeAmdGpu], dict[str, Any]]:
        def call(gpu: FakeAmdGpu) -> dict[str, Any]:
            if name in gpu.errors:
                raise FakeAmdError(gpu.errors[name])
            return getattr(gpu, part)

        call.__name__ = name
        return call


NO_DRIVER = 9
"""NVML_ERROR_DRIVER_NOT_LOADED."""
NAMES = ["GPU-4b2c1a9f8d3e6f7a", "GPU-00000000000000b5"]


def pair() -> tuple[FakeAmdGpu, FakeAmdGpu]:
    return FakeAmdGpu(), FakeAmdGpu(asic={"market_name": "AMD Instinct MI300X", "asic_serial": "0xb5"})


def amd(*gpus: FakeAmdGpu, init_error: int | None = None, handles_error: int | None = None) -> Amd:
    return Amd(lambda: FakeAmdsmi(*gpus, init_error=init_error, handles_error=handles_error))


def test_keeps_the_contract_and_measures_in_the_named_units() -> None:
    source = AmdSource(amd(*pair()), NAMES)
    check_device_source(source)
    assert [(card.name, card.model, card.uuid) for card in source.devices] == [
        (f"cuda:{place}", "AMD Instinct MI300X", name) for place, name in enumerate(NAMES)
    ]
    (sample, _) = source.sample(1.0)
    assert (sample.util_pct, sample.mem_used_mib, sample.mem_total_mib) == (72.0, 285.0, 196_592.0)
    assert (sample.power_w, sample.energy_j) == (140.0, pytest.approx(30.6))


def test_answers_of_an_older_rocm_are_read_and_what_it_does_not_know_is_unknown() -> None:
    old = FakeAmdGpu(
        activity={"gfx_activity": "N/A"},
        power={"current_socket_power": 65_535, "average_socket_power": 90},
        energy={"power": 1000, "counter_resolution": 15.3},
        errors={"amdsmi_get_gpu_vram_usage": 2},
    )
    (sample,) = AmdSource(amd(old), NAMES[:1]).sample(0.0)
    assert (sample.util_pct, sample.mem_used_mib) == (None, None)
    assert (sample.power_w, sample.energy_j) == (90.0, pytest.approx(0.0153))


def test_a_card_that_does_not_answer_is_named() -> None:
    source = AmdSource(amd(broken := FakeAmdGpu()), NAMES[:1])
    broken.errors["amdsmi_get_gpu_activity"] = 8
    with pytest.raises(DeviceError, match="cuda:0 does not answer amdsmi_get_gpu_activity"):
        source.sample(0.0)


def test_auto_takes_amd_s_cards_where_there_is_no_nvidia_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    without = partial(Nvml, FakeNvml(init_error=NO_DRIVER))
    found = open_devices("auto", without, connect_amd=lambda: amd(*pair()))
    assert (found.label, [card.uuid for card in found.devices]) == ("amdsmi", NAMES)
    second = open_devices("1", without, connect_amd=lambda: amd(*pair()))
    assert [(card.name, card.uuid) for card in second.devices] == [("cuda:0", NAMES[1])]
    assert device_variables(second.devices) == {"ROCR_VISIBLE_DEVICES": NAMES[1], "HIP_VISIBLE_DEVICES": "0"}
    assert (Cards(found.devices).occupancy(), links(found.devices)) == ((), ())
    with pytest.raises(DeviceError, match=r"no card cuda:2 here; .*MI300X"):
        open_devices("2", without, connect_amd=lambda: amd(*pair()))
    nvidia = open_devices(
        "auto", partial(Nvml, FakeNvml(FakeGpu(uuid="GPU-a"))), list, connect_amd=lambda: amd(*pair())
    )
    assert nvidia.label == "nvml"


def test_cards_that_rocm_hides_are_left_out() -> None:
    for environment, left in [
        ({}, NAMES),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "0"}, NAMES[1:]),
        ({"ROCR_VISIBLE_DEVICES": NAMES[1].upper()}, NAMES[1:]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, NAMES[:1]),
        ({"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}, NAMES[1:]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ]:
        assert visible_names(NAMES, environment) == left


def test_a_card_that_is_hidden_by_an_unknown_name_is_refused() -> None:
    with pytest.raises(DeviceError, match="HIP_VISIBLE_DEVICES=7"):
        visible_names(NAMES, {"HIP_VISIBLE_DEVICES": "7"})


def test_without_package_driver_or_card_there_are_no_amd_cards() -> None:
    def absent() -> ModuleType:
        raise NoDriverError("there is no AMD SMI on this machine")

    for connect in (lambda: Amd(absent), lambda: amd(init_error=34), lambda: amd(handles_error=31), amd):
        with pytest.raises(NoDriverError):
            connect()
    with pytest.raises(DeviceError, match="does not start") as refusal:
        amd(init_error=8)
    assert not isinstance(refusal.value, NoDriverError)
    with pytest.raises(DeviceError, match="does not start"):  # no permission
        amd(handles_error=10)
