from collections.abc import Sequence
from functools import partial

import pytest
from tests_devices import FakeGpu, FakeNvml, check_device_source

from tuner.devices.cpu import usable_cores
from tuner.devices.drivers import Nvml
from tuner.devices.found import (
    MOST_RANKS_PER_CORE,
    cards_to_name,
    describe_machine,
    device_variables,
    named_devices,
    open_devices,
    part_of,
    spare_cards,
)
from tuner.errors import DeviceError

DRIVER_NOT_LOADED = 9


def two_cards() -> Nvml:
    return Nvml(FakeNvml(FakeGpu(uuid="GPU-a", name="NVIDIA A"), FakeGpu(uuid="GPU-b", name="NVIDIA B")))


def no_driver() -> Nvml:
    return Nvml(FakeNvml(init_error=DRIVER_NOT_LOADED))


def backwards(uuids: Sequence[str]) -> list[str]:
    return list(reversed(uuids))


open_here = partial(open_devices, connect=two_cards, cuda_order=backwards)


def test_auto_takes_every_card_in_cuda_s_order():
    source = open_here("auto")
    check_device_source(source)
    assert [device.uuid for device in source.devices] == ["GPU-b", "GPU-a"]


@pytest.mark.parametrize(("spec", "taken", "spare"), [("auto:1", 1, 1), ("auto:2", 2, 0), ("auto:4", 2, 0)])
def test_a_study_that_wants_some_cards_leaves_the_others(spec: str, taken: int, spare: int):
    assert len(open_here(spec).devices) == taken
    assert spare_cards(spec, two_cards, backwards) == spare
    assert len(open_devices(spec, connect=no_driver).devices) == 2
    assert spare_cards(spec, no_driver) == 0
    assert spare_cards("auto", two_cards, backwards) == 0


def test_indices_are_cuda_s_and_are_counted_anew_for_the_trainer():
    (device,) = open_here("1").devices
    assert (device.name, device.uuid) == ("cuda:0", "GPU-a")
    assert [device.uuid for device in open_here("1,0").devices] == ["GPU-a", "GPU-b"]


def test_a_part_of_a_source_is_a_source_of_its_own():
    (card,) = part_of(open_here("auto"), [1], connect=two_cards).devices
    assert (card.name, card.uuid) == ("cuda:0", "GPU-a")
    assert [device.name for device in part_of(open_devices("cpu:3"), [0, 2]).devices] == ["cpu:0", "cpu:1"]


@pytest.mark.parametrize(("spec", "ranks"), [("cpu", 2), ("cpu:1", 1), ("cpu:3", 3)])
def test_cpu_ranks_need_no_driver(spec: str, ranks: int):
    source = open_devices(spec, connect=no_driver)
    assert source.label == "process_cpu"
    assert [device.name for device in source.devices] == [f"cpu:{rank}" for rank in range(ranks)]


def test_far_more_cpu_ranks_than_cores_are_refused():
    most = MOST_RANKS_PER_CORE * usable_cores()
    assert len(open_devices(f"cpu:{most}").devices) == most
    with pytest.raises(DeviceError, match=rf"{most + 1} ranks on {usable_cores()} core.*name cpu:{most} at most"):
        open_devices(f"cpu:{most + 1}")


def test_auto_without_a_driver_or_a_visible_card_takes_two_cpu_ranks():
    assert len(open_devices("auto", connect=no_driver).devices) == 2
    assert not any(device.is_gpu for device in open_devices("auto", two_cards, lambda uuids: []).devices)


def test_auto_does_not_hide_a_driver_that_is_broken():
    with pytest.raises(DeviceError, match="does not start"):
        open_devices("auto", connect=lambda: Nvml(FakeNvml(init_error=18)))


def test_a_card_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(DeviceError, match=r"no card cuda:2, cuda:5 here; CUDA shows cuda:0 \(NVIDIA B\), cuda:1"):
        open_here("0,2,5")
    with pytest.raises(DeviceError, match="CUDA shows none"):
        open_devices("0", two_cards, lambda uuids: [])


def test_cards_without_a_driver_are_refused_with_what_would_do():
    with pytest.raises(DeviceError, match=r"no NVIDIA driver.*`cpu:2`"):
        open_devices("0,1", connect=no_driver)


@pytest.mark.parametrize(
    "spec", ["", "gpu", "cpu:", "cpu:0", "cpu:-1", "0,", "0, 1", "-1", "auto,0", "cuda:0", "9" * 5000]
)
def test_other_words_are_refused_with_those_that_are_known(spec: str):
    with pytest.raises(DeviceError, match="is none of: auto, auto:CARDS, cpu, cpu:RANKS"):
        open_here(spec)


def test_a_card_named_twice_is_refused():
    with pytest.raises(DeviceError, match="0,0 names a card twice"):
        open_here("0,0")


def test_a_trainer_is_shown_the_cards_by_uuid():
    assert device_variables(open_here("1,0").devices) == {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    every = usable_cores()
    assert device_variables(open_here(f"cpu:{every + 1}").devices) == {"OMP_NUM_THREADS": "1"}
    assert device_variables(open_here("cpu:1").devices) == {"OMP_NUM_THREADS": str(every)}


def test_the_machine_is_described_with_its_cards_and_driver():
    facts = describe_machine(open_here("auto"), connect=two_cards)
    assert facts["gpus"] == "1 x NVIDIA B, 1 x NVIDIA A"
    assert (facts["driver"], facts["cuda"]) == ("580.1", "13.1")


def test_the_machine_is_described_without_cards_too():
    facts = describe_machine(open_here("cpu"), connect=no_driver)
    assert set(facts) == {"cpu", "cores", "memory", "kernel"}
    assert all(facts.values())
    assert int(facts["cores"]) >= 1


def test_a_training_names_its_cards_unless_it_takes_them_by_itself() -> None:
    for devices, exported, named in [
        ("2,3", None, "2,3"),
        ("1", "", "1"),
        ("1,0", None, "1,0"),
        ("2,3", "4,5,6,7", "6,7"),
        ("0,1", "4,5", ""),
        ("auto", None, ""),
        ("auto:2", None, ""),
        ("cpu:2", None, ""),
    ]:
        assert cards_to_name(devices, exported) == named


@pytest.mark.parametrize(("cards", "exported", "devices"), [("2,3", None, "2,3"), ("2,3", "4, 2, 3", "1,2")])
def test_a_study_names_typed_cards_by_their_places(cards: str, exported: str | None, devices: str) -> None:
    assert named_devices(cards, exported) == devices
    assert cards_to_name(devices, exported) == cards
