"""The contract of device sources, as a check for fakes and real sources alike."""

import os

from tuner.probe.protocols import DeviceSource
from tuner.probe.result import DeviceSample


def check_device_source(source: DeviceSource) -> None:
    """Check a source of devices with two measurements whose time stamps lie a second apart. Raises AssertionError."""
    devices = source.devices
    _require(bool(source.label), "label is empty")
    _require(bool(devices), "there are no devices")
    names = [device.name for device in devices]
    kind = "cuda" if devices[0].is_gpu else "cpu"
    _require(names == [f"{kind}:{rank}" for rank in range(len(devices))], f"devices are named {names}")
    source.attach(os.getpid())
    for t_s in (0.25, 1.25):
        samples = source.sample(t_s)
        _require([sample.device for sample in samples] == list(range(len(devices))), f"not one reading each: {samples}")
        for sample in samples:
            _require(sample.t_s == t_s, f"not stamped with {t_s}: {sample}")
            _check_values(sample)
    _require(source.devices == devices, "devices changed while reading")


def _check_values(sample: DeviceSample) -> None:
    shares = (sample.util_pct, sample.sm_pct, sample.occupancy_pct, sample.tensor_pct, sample.dram_pct)
    _require(all(share is None or 0 <= share <= 100 for share in shares), f"a share is beyond 0 to 100: {sample}")
    used_mib, total_mib = sample.mem_used_mib, sample.mem_total_mib
    _require(used_mib is None or used_mib > 0, f"memory in use is not positive: {sample}")
    _require(total_mib is None or total_mib >= (used_mib or 0), f"more memory in use than there is: {sample}")
    _require(sample.power_w is None or sample.power_w >= 0, f"power is negative: {sample}")


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)
