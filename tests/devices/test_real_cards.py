"""Shows on real cards what the other tests show with fakes."""

import os
import subprocess
import sys

import pynvml
import pytest
from tests_devices import check_device_source

from tuner.devices.drivers import Nvml
from tuner.devices.found import describe_machine, device_variables, links, nccl_variables, open_devices

pytestmark = pytest.mark.gpu

OURS = """
from tuner.devices.found import open_devices
print(*(device.uuid for device in open_devices("auto").devices if device.is_gpu))
"""
CUDAS = """
import torch
print(*(f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(torch.cuda.device_count())))
"""
LOAD = """
import torch
square = torch.ones(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
for _ in range(300):
    square @ square
torch.cuda.synchronize()
"""


def python(code: str, **variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def test_real_cards_keep_the_contract():
    source = open_devices("auto")
    check_device_source(source)
    assert all(device.is_gpu for device in source.devices)
    facts = describe_machine(source)
    assert facts["gpus"]
    assert facts["driver"]


def test_cards_are_in_cuda_s_order():
    cards = python(CUDAS)
    assert python(OURS) == cards
    assert python(OURS, CUDA_DEVICE_ORDER="PCI_BUS_ID") == python(CUDAS, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    for visible in (cards[-1], ",".join(reversed(cards)), str(len(cards) - 1), "0,99", "99,0"):
        assert python(OURS, CUDA_VISIBLE_DEVICES=visible) == python(CUDAS, CUDA_VISIBLE_DEVICES=visible)


def test_a_trainer_sees_the_chosen_cards_alone():
    (last,) = open_devices(str(len(Nvml().uuids()) - 1)).devices
    assert python(CUDAS, **device_variables([last])) == [last.uuid]


def test_opening_the_cards_takes_no_memory_of_them():
    nvml = Nvml()
    cards = [nvml.handle(uuid) for uuid in nvml.uuids()]
    before = [pynvml.nvmlDeviceGetMemoryInfo(card).used for card in cards]
    source = open_devices("auto")
    source.sample(0.0)
    assert [pynvml.nvmlDeviceGetMemoryInfo(card).used for card in cards] == before


def test_work_on_a_card_is_seen():
    source = open_devices("0")
    source.attach(os.getpid())
    (idle,) = source.sample(0.0)
    python(LOAD, **device_variables(source.devices))
    (busy,) = source.sample(5.0)
    assert idle.sm_pct is None
    if busy.sm_pct is None:
        pytest.skip("this card has no GPM")
    for share in (busy.sm_pct, busy.occupancy_pct, busy.tensor_pct, busy.dram_pct):
        assert share is not None
        assert 0 < share <= 100


def test_links_between_real_cards_are_known():
    devices = open_devices("auto").devices
    if len(devices) < 2:
        pytest.skip("needs two cards")
    pairs = links(devices)
    assert len(pairs) == len(devices) * (len(devices) - 1) // 2
    assert all(pair.p2p is not None and pair.nvlink is not None for pair in pairs)
    assert bool(nccl_variables("auto", pairs)) == any(not pair.p2p for pair in pairs)
