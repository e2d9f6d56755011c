"""What share of a card's peak a training uses."""

import re
from collections.abc import Sequence

from tuner.probe.probe_plan import Device

BF16_TFLOPS = {
    "H200 NVL": 835.5,
    "H200": 989.4,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.5,
    "H100": 989.4,
    "H800": 989.4,
    "GH200": 989.4,
    "B200": 2250.0,
    "A100": 312.0,
    "A800": 312.0,
    "A30": 165.0,
    "A40": 149.7,
    "L40S": 362.1,
    "L40": 181.1,
    "L4": 121.0,
    "A10G": 70.0,
    "A10": 125.0,
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
    "RTX A6000": 154.8,
}
"""A part of a card's name → its peak in bf16 without sparsity, in TFLOP/s, from NVIDIA's data sheets and white papers.

The first whole words that fit count: an RTX A4000 is no A40.
"""
TERA = 1e12


def mfu_pct(samples_per_s: float | None, flops_per_sample: float | None, devices: Sequence[Device]) -> float | None:
    """Return the share of the devices' bf16 peak that a training uses, in percent; None where one is unknown.

    Args:
        samples_per_s: the samples of all ranks in a second.
        flops_per_sample: the floating-point operations of a training step for each of its samples.
        devices: the devices of the ranks.
    """
    peaks = [_peak(device.model) for device in devices]
    if samples_per_s is None or flops_per_sample is None or not peaks or None in peaks:
        return None
    return 100.0 * samples_per_s * flops_per_sample / (TERA * sum(peak or 0.0 for peak in peaks))


def _peak(model: str) -> float | None:
    return next((peak for part, peak in BF16_TFLOPS.items() if re.search(rf"\b{part}\b", model)), None)
