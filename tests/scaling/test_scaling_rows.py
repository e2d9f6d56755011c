"""The scaling table: which measurements are compared with which."""

from dataclasses import replace

import pytest
from tests_scaling import point, results

from tuner.tools.scaling.results import Loss, ScalingRow, Subject, ceilings, link_table, table

BOTH = (0, 1)
MEASURED = results(
    point("single", 1000.0, size=32, error=10.0),
    point("single", 1600.0, size=64, error=10.0),
    point("beside", 1580.0, size=64, beside=2),
    point("beside", 1590.0, size=64, gpus=(1,), beside=2),
    point("joined", 1500.0, size=32, gpus=BOTH, route="nvlink", error=10.0),
    point("joined", 3000.0, size=64, gpus=BOTH, route="nvlink", error=10.0),
    point("joined", None, size=64, gpus=BOTH, route="host"),
)


def find(rows: list[ScalingRow], scaling: str, size: int) -> ScalingRow:
    (row,) = [row for row in rows if (row.scaling, row.size) == (scaling, size)]
    return row


def test_weak_scaling_compares_the_same_batch_per_gpu() -> None:
    row = find(table(MEASURED), "weak", 64)
    assert row.speed_up.value == pytest.approx(3000 / 1600)
    assert row.efficiency_pct.value == pytest.approx(93.75)
    assert row.step_ms.value == pytest.approx(1000 * 128 / 3000)
    lost = {name: loss.value for name, loss in row.losses.items()}
    assert lost[Loss.CONTENTION] == pytest.approx((64 / 1580 + 64 / 1590) / 2 * 1000 - 40)


def test_strong_scaling_compares_the_same_whole_batch() -> None:
    row = find(table(MEASURED), "strong", 64)
    assert row.speed_up.value == pytest.approx(1500 / 1600)
    lost = {name: loss.value for name, loss in row.losses.items()}
    assert lost[Loss.SERIAL] == pytest.approx(32.0 - 20.0)
    assert sum(lost.values()) == pytest.approx(row.step_ms.value - 20.0)


def test_a_failed_measurement_has_no_row_nor_has_a_rate_whose_step_is_unknown() -> None:
    unknown = replace(point("joined", 99.0, size=64, gpus=BOTH, route="p2p", error=1.0), samples_per_step=None)
    assert {row.route for row in table(replace(MEASURED, points=(*MEASURED.points, unknown)))} == {None, "nvlink"}


def test_the_bus_bandwidth_is_that_of_nccl_tests() -> None:
    links = Subject(name="allreduce", text="sums a buffer", unit="bytes")
    measured = results(
        point("joined", 2000.0, workload="allreduce", size=10**6, gpus=BOTH, route="nvlink", error=20.0, step=2),
        subjects=(links,),
    )
    (row,) = link_table(measured)
    assert (row.time_us.value, row.time_us.error) == pytest.approx((1000.0, 10.0))
    assert row.bus_gb_per_s == pytest.approx(1.0)
    four = results(
        point("joined", 4000.0, workload="allreduce", size=10**6, gpus=(0, 1, 2, 3), route="nvlink", step=4),
        subjects=(links,),
        cards=4,
    )
    assert link_table(four)[0].bus_gb_per_s == pytest.approx(1.5)
    assert table(four) == []


def test_one_gpu_shows_the_most_that_several_could_gain() -> None:
    alone = [point("single", rate, size=size, error=10.0) for size, rate in ((32, 1000.0), (64, 1600.0), (256, 2000.0))]
    found = {(one.size, gpus): gain.value for one, gpus, gain in ceilings(table(results(*alone)))}
    assert found == pytest.approx({(64, 2): 40 / 32, (256, 4): 128 / 40, (256, 8): 128 / 32})
    assert (64, 2) not in {(one.size, gpus) for one, gpus, _ in ceilings(table(MEASURED))}
