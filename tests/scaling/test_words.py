"""What the results say in words."""

from dataclasses import replace

from tests_scaling import point, results

from tuner.devices.found import Link
from tuner.probe import Quantity
from tuner.probe.result import DeviceSummary, FailureKind
from tuner.tools.scaling.comparing import CPU_NOTE, scaling_sentences, short, topology
from tuner.tools.scaling.results import Measurement, Results, table

BOTH = (0, 1)


def said(measured: Results) -> list[str]:
    return list(scaling_sentences(measured, table(measured)))


def shared(one: Measurement, others_pct: float) -> Measurement:
    device = DeviceSummary(device="cpu:0", source="busy_share", util_mean_pct=50.0, others_mean_pct=others_pct)
    return replace(one, devices=(device,))


def test_it_names_the_losses_that_stand_out() -> None:
    measured = results(
        point("single", 1000.0, error=4.0),
        point("joined", 1500.0, gpus=BOTH, route="nvlink", error=10.0),
    )
    assert said(measured) == [
        "fusion 64 (weak): 2 cards over NVLink make 1.500 ± 0.012 times the samples of one. "
        "Of 85.33 ms per step are lost: communication and synchronisation 21.3 ± 0.6 ms",
    ]


def test_losses_within_their_errors_are_not_told() -> None:
    measured = results(
        point("single", 1000.0, error=50.0), point("joined", 1980.0, gpus=BOTH, route="nvlink", error=100.0)
    )
    assert said(measured)[0].endswith("No loss is clearly above 0")


def test_cpu_figures_and_a_busy_machine_are_called_so() -> None:
    single, beside = point("single", 10.0), point("beside", 9.0, beside=2)
    assert said(results(shared(single, 3.0), shared(beside, 60.0), on_gpu=False)) == [CPU_NOTE]
    busy = said(results(shared(single, 30.0), on_gpu=False))
    assert busy[1].startswith("Other processes used up to 30 % of the processors")


def test_the_topology_has_a_line_for_each_kind_of_connection() -> None:
    links = [
        Link(first=0, second=1, p2p=True, nvlink=True),
        Link(first=0, second=2, p2p=True, nvlink=False),
        Link(first=1, second=2, p2p=False, nvlink=False),
        Link(first=2, second=3, p2p=True, nvlink=True),
    ]
    assert list(topology(links)) == [
        "NVLink between the cards 0-1, 2-3",
        "PCIe between the cards 0-2",
        "no direct access between the cards 1-2",
    ]


def test_what_failed_is_said_at_the_end() -> None:
    failed = replace(point("single", None, size=128), failure=FailureKind.GPU_OOM, detail="out of memory")
    assert said(results(point("single", 1000.0), failed))[-1] == (
        "not measured: fusion 128 single on 0: gpu_oom: out of memory"
    )


def test_large_numbers_are_shown_in_thousands_millions_and_billions() -> None:
    for value, error, shown in [
        (7_740.0, 80.0, "7.74 ± 0.08 k"),
        (1_048e6, 11e6, "1.048 ± 0.011 G"),
        (330.0, 12.0, "330 ± 12"),
        (41_607_423.0, None, "41.6 M"),
    ]:
        assert short(Quantity(value, error)) == shown
