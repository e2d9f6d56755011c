"""The share of a card's peak."""

import pytest

from tuner.probe.metrics import mfu_pct
from tuner.probe.probe_plan import Device


def test_the_share_of_the_peak_is_that_of_all_cards() -> None:
    for models, share in [
        (["NVIDIA H200"], 44.0),
        (["NVIDIA H200"] * 2, 22.0),
        (["NVIDIA H100 PCIe"], 44.0 * 989.4 / 756.0),
        (["a CPU"], None),
        (["NVIDIA H200", "a card of tomorrow"], None),
        (["NVIDIA RTX A4000"], None),
    ]:
        devices = [Device(name=f"cuda:{place}", model=model) for place, model in enumerate(models)]
        found = mfu_pct(100.0, 0.44 * 989.4e12 / 100.0, devices)
        assert found == (None if share is None else pytest.approx(share))


def test_without_a_speed_or_a_count_there_is_no_share() -> None:
    devices = [Device(name="cuda:0", model="NVIDIA H200")]
    assert mfu_pct(None, 1e9, devices) is mfu_pct(100.0, None, devices) is None
