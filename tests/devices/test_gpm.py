import gc
import math

import pynvml
import pytest
from tests_devices import FakeGpu, FakeNvml

from tuner.devices.drivers import GpmReader, Nvml, NvmlSource, has_gpm

SM, OCCUPANCY, TENSOR, DRAM = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)


@pytest.fixture
def card() -> FakeGpu:
    return FakeGpu(uuid="GPU-a", gpm_pct={SM: 21.8, OCCUPANCY: 3.7, TENSOR: 0.0, DRAM: 1.3})


def test_the_first_reading_only_begins_the_interval(card: FakeGpu):
    reader = GpmReader(card, FakeNvml(card))
    assert reader.read() == {}
    assert reader.read() == {"sm_pct": 21.8, "occupancy_pct": 3.7, "tensor_pct": 0.0, "dram_pct": 1.3}
    assert reader.read()


def test_after_a_restart_a_new_interval_begins(card: FakeGpu):
    reader = GpmReader(card, FakeNvml(card))
    reader.read()
    reader.restart()
    assert reader.read() == {}


def test_a_reading_that_fails_leaves_the_interval_as_it_was(card: FakeGpu):
    nvml = FakeNvml(card)
    reader = GpmReader(card, nvml)
    reader.read()
    for _ in range(3):
        card.errors = {"nvmlGpmSampleGet": pynvml.NVML_ERROR_UNKNOWN}
        with pytest.raises(nvml.NVMLError):
            reader.read()
        card.errors = {}
        assert reader.read()


def test_a_metric_without_a_value_is_unknown(card: FakeGpu):
    card.gpm_pct = {SM: 21.8, DRAM: math.nan}
    reader = GpmReader(card, FakeNvml(card))
    reader.read()
    assert {name for name, share in reader.read().items() if share is not None} == {"sm_pct"}


def test_samples_are_allocated_once_and_freed_with_the_reader(card: FakeGpu):
    nvml = FakeNvml(card)
    reader = GpmReader(card, nvml)
    for _ in range(5):
        reader.read()
    assert len(nvml.gpm_samples) == 2
    del reader
    gc.collect()
    assert nvml.gpm_samples == []


def test_cards_with_gpm_are_distinguished_from_others(card: FakeGpu):
    other = FakeGpu(uuid="GPU-b")
    nvml = FakeNvml(card, other)
    assert has_gpm(card, nvml)
    assert not has_gpm(other, nvml)


def test_the_source_reads_gpm_five_times_a_second_and_afresh_for_each_probe(card: FakeGpu):
    source = NvmlSource(Nvml(FakeNvml(card)), ["GPU-a"])
    for pid in (1, 2):
        source.attach(pid)
        known = [t_s for t_s in (0.02, 0.12, 0.41, 0.504, 0.61, 0.98, 1.001, 1.1) if source.sample(t_s)[0].sm_pct]
        assert known == [0.41, 0.61, 0.98, 1.001]
