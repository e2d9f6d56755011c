from collections.abc import Iterable
from dataclasses import replace

import pytest

from tuner.devices.cards import Clocks, Occupancy, Occupant
from tuner.devices.found import Link
from tuner.probe.probe_plan import Device
from tuner.study.spec import EnvironmentSpec
from tuner.tools.checkup import Finding, Severity
from tuner.tools.checkup.checks import check_clocks, check_links, check_machine, check_nccl, check_occupancy

CARD = Device(name="cuda:0", model="NVIDIA A", uuid="GPU-a", mem_total_mib=24_000.0)
FREE = Occupancy(device=CARD, mem_used_mib=600.0, util_pct=0.0)
FACTS = {"cpu": "EPYC", "cores": "2", "memory": "16 GiB", "kernel": "Linux 6"}
NVLINK = Link(first=0, second=1, p2p=True, nvlink=True)
PCIE = Link(first=0, second=2, p2p=True, nvlink=False)
APART = Link(first=1, second=2, p2p=False, nvlink=False)
UNKNOWN = Link(first=0, second=1, p2p=None, nvlink=None)


def levels(findings: Iterable[Finding]) -> list[Severity]:
    return [finding.level for finding in findings]


def test_cards_are_named_with_their_driver() -> None:
    facts = {**FACTS, "gpus": "1 x NVIDIA A", "driver": "580.1", "cuda": "13.1"}
    devices, machine = check_machine([CARD], facts)
    assert devices.text == "1 x NVIDIA A; driver 580.1, CUDA up to 13.1"
    assert machine.text == "EPYC, 2 cores, 16 GiB of memory, Linux 6"


@pytest.mark.parametrize(("ranks", "level"), [(2, Severity.OK), (3, Severity.WARNING)])
def test_without_a_gpu_it_says_so_and_counts_cores(ranks: int, level: Severity) -> None:
    devices, _ = check_machine([Device(name=f"cpu:{rank}", model="EPYC") for rank in range(ranks)], FACTS)
    assert devices.level is level
    assert f"no GPU: {ranks} CPU ranks on 2 cores" in devices.text


def test_the_memory_of_a_free_card_is_reported() -> None:
    (memory,) = check_occupancy([FREE])
    assert (memory.subject, memory.level, memory.text) == (
        "cuda:0 (GPU-a) memory",
        Severity.OK,
        "23,400 of 24,000 MiB free",
    )


def test_a_held_card_is_a_problem_that_names_the_process() -> None:
    held = replace(FREE, mem_used_mib=20_600.0, occupants=(Occupant(pid=4711, mem_mib=20_000.0),), util_pct=99.0)
    *problems, memory = check_occupancy([held])
    assert levels(problems) == [Severity.PROBLEM] * 3
    assert "pid 4711 (20,000 MiB)" in problems[0].text
    assert "--devices" in problems[0].text
    assert memory.text == "3,400 of 24,000 MiB free"


def test_a_small_quiet_process_is_worth_a_warning() -> None:
    shared = replace(FREE, occupants=(Occupant(pid=10, mem_mib=300.0),))
    process, _ = check_occupancy([shared])
    assert process.level is Severity.WARNING
    assert "pid 10 (300 MiB)" in process.text


def test_memory_that_the_driver_does_not_report_is_a_warning() -> None:
    assert levels(check_occupancy([replace(FREE, mem_used_mib=None)])) == [Severity.WARNING]


@pytest.mark.parametrize(
    ("clocks", "level", "words"),
    [
        (Clocks(device=CARD, sm_mhz=345, sm_max_mhz=1980, slowed_by=()), Severity.OK, "345 of 1980 MHz"),
        (
            Clocks(device=CARD, sm_mhz=900, sm_max_mhz=1980, slowed_by=("power limit",)),
            Severity.WARNING,
            "by power limit",
        ),
        (Clocks(device=CARD), Severity.OK, "does not report them"),
    ],
)
def test_clocks_that_are_held_back_are_worth_a_warning(clocks: Clocks, level: Severity, words: str) -> None:
    (finding,) = check_clocks([clocks])
    assert finding.level is level
    assert words in finding.text


def test_pairs_with_the_same_connection_are_reported_together() -> None:
    (alike,) = check_links([NVLINK, replace(NVLINK, second=2)])
    assert (alike.level, alike.text) == (Severity.OK, "P2P over NVLink: every pair")


def test_each_kind_of_link_is_reported_with_its_pairs() -> None:
    found = list(check_links([NVLINK, PCIE, APART]))
    assert levels(found) == [Severity.OK, Severity.OK, Severity.WARNING]
    assert found[1].text == "P2P over PCIe: cuda:0-cuda:2"
    assert "cuda:1-cuda:2" in found[2].text


def test_nccl_settings_are_reported_with_the_reason() -> None:
    for policy, link, level, words in [
        ("auto", NVLINK, Severity.OK, "nothing set: no pair"),
        ("auto", UNKNOWN, Severity.OK, "nothing set: no pair"),
        ("auto", APART, Severity.OK, "NCCL_P2P_DISABLE=1: cuda:1-cuda:2 without P2P"),
        ("off", APART, Severity.OK, "NCCL_P2P_DISABLE=1: the study says nccl_p2p: off"),
        ("off", NVLINK, Severity.WARNING, "auto suits these cards better"),
        ("on", NVLINK, Severity.OK, "nothing set: the study says nccl_p2p: on"),
        ("on", APART, Severity.WARNING, "auto suits these cards better"),
    ]:
        (finding,) = check_nccl([link], EnvironmentSpec.model_validate({"nccl_p2p": policy}), {"PATH": "/bin"})
        assert finding.level is level
        assert words in finding.text


def test_nccl_variables_from_elsewhere_are_reported() -> None:
    environment = EnvironmentSpec(variables={"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "1"})
    _, study, inherited = check_nccl([NVLINK], environment, {"NCCL_P2P_DISABLE": "1"})
    assert study.text == "NCCL_DEBUG=WARN from the study"
    assert inherited.text == "NCCL_P2P_DISABLE=1 from the environment"
