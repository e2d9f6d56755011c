import pytest
from tests_devices import FakeGpu, FakeNvml

from tuner.devices.drivers import Nvml, NvmlSource
from tuner.devices.found import Link, links, nccl_variables
from tuner.probe.probe_plan import Device

WITHOUT = {"NCCL_P2P_DISABLE": "1"}


def link(*, p2p: bool | None) -> Link:
    return Link(first=0, second=1, p2p=p2p, nvlink=False)


def test_asks_about_every_pair_of_cards():
    cards = [FakeGpu(uuid=f"GPU-{letter}") for letter in "abc"]
    library = FakeNvml(*cards, without_p2p={(0, 2)}, nvlinks={(0, 1)})
    source = NvmlSource(Nvml(library), ["GPU-c", "GPU-a", "GPU-b"])
    assert links(source.devices, lambda: Nvml(library)) == (
        Link(first=0, second=1, p2p=False, nvlink=False),
        Link(first=0, second=2, p2p=True, nvlink=False),
        Link(first=1, second=2, p2p=True, nvlink=True),
    )


def test_what_the_driver_does_not_report_is_unknown():
    cards = [FakeGpu(uuid=f"GPU-{letter}", errors={"nvmlDeviceGetP2PStatus": 3}) for letter in "ab"]
    library = FakeNvml(*cards)
    found = links(NvmlSource(Nvml(library), ["GPU-a", "GPU-b"]).devices, lambda: Nvml(library))
    assert found == (Link(first=0, second=1, p2p=None, nvlink=None),)


def test_without_two_cards_nobody_is_asked():
    def connect() -> Nvml:
        raise AssertionError("connected without need")

    assert links([Device(name=f"cpu:{rank}", model="cpu") for rank in range(2)], connect) == ()
    assert links([Device(name="cuda:0", model="card", uuid="GPU-a")], connect) == ()


@pytest.mark.parametrize(("p2p", "variables"), [(True, {}), (None, {}), (False, WITHOUT)])
def test_auto_switches_direct_access_off_only_where_a_pair_lacks_it(p2p: bool | None, variables: dict[str, str]):
    assert nccl_variables("auto", [link(p2p=True), link(p2p=p2p)]) == variables


@pytest.mark.parametrize("pairs", [[], [link(p2p=True)], [link(p2p=False)]])
def test_the_study_s_word_counts_more_than_the_topology(pairs: list[Link]):
    assert nccl_variables("off", pairs) == WITHOUT
    assert nccl_variables("on", pairs) == {}
