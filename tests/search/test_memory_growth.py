"""How memory rose, and how far it may rise in a longer run."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.result import DeviceSample, DeviceSummary
from tuner.probe.summaries import memory_parts, memory_rises
from tuner.search.memory_growth import PILING_UP, PROVOKED, USUAL, MemoryRise, RecordPrior, forecast_memory

TOTAL_MIB = 1000.0
values = st.lists(st.floats(1.0, TOTAL_MIB), min_size=3, max_size=40)


def samples(mib: list[float]) -> list[DeviceSample]:
    return [
        DeviceSample(t_s=float(at), device=0, mem_used_mib=one, mem_total_mib=TOTAL_MIB) for at, one in enumerate(mib)
    ]


def device(mib: list[float]) -> DeviceSummary:
    """Return the summary of a device whose memory was read once a second, the first time at the first mark."""
    return DeviceSummary(
        device="cuda:0",
        source="nvml",
        util_mean_pct=None,
        mem_total_mib=TOTAL_MIB,
        mem_rises=memory_rises(samples(mib), 0.0),
        mem_floors=tuple(map(min, memory_parts(samples(mib), 0.0, len(mib)))),
        mem_tops=tuple(map(max, memory_parts(samples(mib), 0.0, len(mib)))),
    )


@given(values)
def test_rises_are_the_running_maximum_and_end_with_the_largest_value(mib: list[float]) -> None:
    found = memory_rises(samples(mib), 0.0)
    assert [t_s for t_s, _ in found] == sorted(t_s for t_s, _ in found)
    assert [one for _, one in found] == sorted(one for _, one in found)
    assert found[0] == (0.0, mib[0])
    assert found[-1] == (len(mib) - 1.0, max(mib))


@given(values, st.floats(1.0, 1e4), st.floats(1.0, 10.0))
def test_a_longer_training_never_needs_less(mib: list[float], seconds: float, times: float) -> None:
    rise = MemoryRise.of(device(mib))
    assert rise is not None
    shorter, longer = rise.future_rises_mib(seconds), rise.future_rises_mib(seconds * times)
    assert shorter[0] >= 0.0
    assert list(shorter) == sorted(shorter)
    assert longer.mean() >= 0.9 * shorter.mean() - 0.1


def test_memory_that_stays_flat_lasts() -> None:
    found = forecast_memory((device([700.0] * 100),), 0.3)
    assert found is not None
    assert found.rise.kind == "flat"
    assert found.chance > 0.98
    assert 700.0 <= found.most_mib < 800.0


def test_growth_that_a_short_run_cannot_show_may_fill_the_memory_of_a_long_training() -> None:
    short, long, growing = (
        forecast_memory((device(mib),), 24.0)
        for mib in ([700.0] * 100, [700.0] * 1000, [500.0 + second for second in range(200)])
    )
    assert short is not None
    assert long is not None
    assert growing is not None
    assert short.filled_h == pytest.approx(295.0 / short.rise.hidden_mib_per_h)
    assert long.filled_h == pytest.approx(10.0 * short.filled_h, rel=0.1)
    assert growing.rise.hidden_mib_per_h == 0.0
    assert growing.filled_h == float("inf")


def test_memory_that_grows_all_the_time_lasts_no_longer_than_it_does() -> None:
    growing = device([500.0 + second for second in range(200)])
    rise = MemoryRise.of(growing)
    assert rise is not None
    assert rise.kind == "slope"
    assert rise.sure_mib_per_h == pytest.approx(3600.0, rel=0.2)
    soon, late = forecast_memory((growing,), 300 / 3600), forecast_memory((growing,), 1000 / 3600)
    assert soon is not None
    assert soon.chance > 0.95
    assert soon.most_mib == pytest.approx(800.0, rel=0.1)
    assert late is not None
    assert late.chance < 0.01


def test_where_few_readings_see_the_least_memory_growth_is_still_told_from_none() -> None:
    missed = [0.0, 90.0, 0.0, 0.0, 60.0, 0.0, 0.0, 40.0, 0.0, 0.0, 70.0, 0.0]

    def rise(growth: float) -> MemoryRise | None:
        found = device([900.0] * 240)
        return MemoryRise.of(
            replace(found, mem_floors=tuple(500.0 + growth * at + one for at, one in enumerate(missed)))
        )

    flat, growing = rise(0.0), rise(5.0)
    assert flat is not None
    assert growing is not None
    assert flat.kind == "flat"
    assert flat.grows < 0.05 < growing.grows
    assert growing.future_rises_mib(480.0)[-400] > 50.0


def test_a_run_that_provokes_the_worst_needs_no_room_for_more_unless_more_came() -> None:
    flat, late = device([700.0] * 100), device([*[700.0] * 60, *[720.0] * 40])
    rises = [
        found.most_mib - found.rise.now_mib
        for one in (flat, late)
        for expected in (PROVOKED, USUAL)
        if (found := forecast_memory((one,), 1000 / 3600, expected))
    ]
    assert rises[0] < 9.5
    assert min(rises[1:]) > 10.0


def test_later_records_are_as_large_as_those_seen_and_only_freed_blocks_come_more_than_once_in_e_fold_time() -> None:
    steps = [500.0 + 20.0 * sum(second >= at for at in (22, 27, 33, 41)) for second in range(100)]
    found, piling_up = (forecast_memory((device(steps),), 1000 / 3600, expected) for expected in (PROVOKED, PILING_UP))
    assert found is not None
    assert found.rise.kind == "steps"
    assert (
        4 * 20.0 <= found.most_mib - found.rise.now_mib <= 6 * 20.0
    )  # of 2.3 that are expected, 5 come in 97 % of runs
    assert piling_up is not None
    assert 8 * 20.0 <= piling_up.most_mib - piling_up.rise.now_mib <= 13 * 20.0  # 5.4 are expected, as often as before


def test_where_small_steps_were_seen_later_ones_are_small_unless_something_worse_may_come() -> None:
    small = device([500.0 + sum(second >= at for at in (22, 27, 33, 41)) for second in range(100)])
    told, untold = (forecast_memory((small,), 1000 / 3600, expected) for expected in (PROVOKED, USUAL))
    assert told is not None
    assert untold is not None
    assert 4.0 <= told.most_mib - told.rise.now_mib <= 10.0
    assert untold.most_mib - untold.rise.now_mib > 20.0


def test_growth_since_a_peak_at_the_beginning_counts_because_the_peak_may_come_again() -> None:
    grows = [500.0 + 0.3 * second for second in range(300)]
    found = forecast_memory((device([700.0, 700.0, *grows[2:]]),), 600.0 / 3600.0, PROVOKED)
    assert found is not None
    assert 700.0 + 0.3 * 600.0 <= found.most_mib < 900.0


def test_growth_that_uses_up_free_memory_first_is_as_steep_as_where_it_shows() -> None:
    late = forecast_memory(
        (device([500.0 + 0.2 * max(0, second - 40) for second in range(100)]),), 1000 / 3600, PROVOKED
    )
    assert late is not None
    assert late.rise.kind == "slope"
    assert 500.0 + 0.2 * (1000.0 - 40.0) <= late.most_mib < 730.0


def test_a_longer_batch_near_the_end_of_a_probe_is_no_sure_growth() -> None:
    """As a probe of random lengths read it on an H200, whose blocks are of 20 MiB each."""
    level = [1667.9, *[1747.9] * 7, *[1767.9] * 4]
    probed = replace(
        device([1.0, 1.0]),
        mem_total_mib=2500.0,
        mem_rises=((0.0, 1667.9), (0.1, 1747.9), (0.7, 1767.9), (1.05, 1847.9), (1.3, 1847.9)),
        mem_floors=tuple(level),
    )
    rise = MemoryRise.of(probed)
    assert rise is not None
    assert rise.sure_mib_per_h == 0.0
    assert rise.grows > 0.5, "a soak still leaves room for it"


def steps(*at: tuple[int, float]) -> DeviceSummary:
    """Return a device whose memory is 500 MiB, and from each second on so much more."""
    return device([500.0 + sum(by for begin, by in at if second >= begin) for second in range(100)])


def test_a_few_unequal_steps_are_no_growth_and_equal_ones_may_be() -> None:
    unequal, equal = (MemoryRise.of(steps((30, 60.0), (55, by), (80, 60.0))) for by in (45.0, 60.0))
    blocks = MemoryRise.of(steps(*((second, 10.0) for second in range(5, 100, 12))))
    assert unequal is not None
    assert equal is not None
    assert blocks is not None
    assert unequal.grows < 0.01
    assert equal.grows > 0.1
    assert blocks.kind == "slope"


def test_floors_that_move_between_steps_are_growth() -> None:
    floors = tuple(500.0 + 0.8 * part + (7 * part % 5 - 2) for part in range(12))
    rise = MemoryRise.of(replace(device([900.0] * 240), mem_floors=floors))
    assert rise is not None
    assert rise.kind == "slope"


def test_steps_beside_growth_are_expected_again() -> None:
    even = [500.0 + 0.5 * second for second in range(200)]
    stepped = [one + (15.0 if at >= 90 else 0.0) + (20.0 if at >= 170 else 0.0) for at, one in enumerate(even)]
    rooms = [
        found.most_mib - found.rise.now_mib
        for one in (even, stepped)
        if (found := forecast_memory((device(one),), 400.0 / 3600.0)) and found.rise.kind == "slope"
    ]
    assert rooms[1] > rooms[0] + 30.0


def test_records_that_become_rarer_are_no_growth() -> None:
    records = [500.0 + 10.0 * second.bit_length() for second in range(400)]
    rise = MemoryRise.of(device(records))
    assert rise is not None
    assert rise.kind == "steps"
    assert rise.sure_mib_per_h == 0.0


def test_the_device_with_the_least_room_decides_and_unknown_memory_says_nothing() -> None:
    found = forecast_memory((device([400.0] * 50), device([990.0] * 50)), 24.0)
    assert found is not None
    assert found.rise.now_mib == 990.0
    assert forecast_memory((), 24.0) is None
    assert forecast_memory((device([500.0]),), 24.0) is None


def validating(epochs: int, *, at: int = 53, grows: float = 0.0, heights: float = 0.0) -> DeviceSummary:
    """Return a training of 73 MiB that validates with 777 after each epoch, whose memory climbs for two seconds.

    It `grows` by so many MiB a second, and each validation needs so many MiB more than the one before.
    """
    climb = [73.0 + 704.0 * tenth / 20 for tenth in range(1, 21)]
    more = [*[73.0] * at, *climb]
    level = [grows * place / 10 + base for place, base in enumerate(more * epochs)]
    tall = [one + heights * (place // len(more)) * (one > 400.0) for place, one in enumerate(level)]
    read = [
        DeviceSample(t_s=place / 10, device=0, mem_used_mib=one, mem_total_mib=1500.0) for place, one in enumerate(tall)
    ]
    end_s = len(read) / 10
    return replace(
        device([1.0, 1.0]),
        mem_total_mib=1500.0,
        mem_rises=memory_rises(read, 0.0),
        mem_floors=tuple(map(min, memory_parts(read, 0.0, end_s))),
        mem_tops=tuple(map(max, memory_parts(read, 0.0, end_s))),
    )


@pytest.mark.parametrize("prior", [PROVOKED, PILING_UP])
def test_the_climb_to_what_comes_in_each_epoch_is_one_jump_and_neither_records_nor_growth(
    prior: RecordPrior,
) -> None:
    found = forecast_memory((validating(4),), 24.0, prior)
    assert found is not None
    assert (found.rise.kind, found.chance > 0.95) == ("flat", True)
    assert 777.0 <= found.most_mib < 1100.0


def test_growth_below_what_comes_in_each_epoch_is_still_seen() -> None:
    found = forecast_memory((validating(8, grows=1.0),), 24.0, PROVOKED)
    assert found is not None
    assert (found.rise.kind, found.chance < 0.05) == ("slope", True)


def test_what_needs_more_each_time_makes_records() -> None:
    found = forecast_memory((validating(8, heights=60.0),), 1.0, PILING_UP)
    assert found is not None
    assert found.rise.kind != "flat"
    assert found.most_mib > 777.0 + 7 * 60.0 + 100.0


def test_what_came_once_may_come_larger() -> None:
    once = forecast_memory((validating(1, at=60),), 24.0, PROVOKED)
    assert once is not None
    assert once.most_mib > 1000.0
