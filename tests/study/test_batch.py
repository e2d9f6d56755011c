"""The batch size that fits a card: which sizes are probed, and which size follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.study.batch import MEASURABLE_MIB, MOST, SAFETY, Tried, first_size, fit, next_size

H200_MIB = 143_771.0


def probed(
    *, base_mib: float, per_sample_mib: float, total_mib: float, samples: int | None = None, most: int = MOST
) -> list[Tried]:
    """Probe a card until enough is known."""
    tried: list[Tried] = []
    while size := next_size(tried, samples=samples, most=most):
        used_mib = base_mib + per_sample_mib * size
        fits = used_mib <= total_mib
        tried.append(Tried(size=size, used_mib=used_mib if fits else None, fits=fits))
        assert len({one.size for one in tried}) == len(tried)
    return tried


def test_two_small_probes_show_large_samples() -> None:
    tried = probed(base_mib=3000.0, per_sample_mib=2.0, total_mib=H200_MIB)
    assert [one.size for one in tried] == [48, 384]
    made = fit(tried, total_mib=H200_MIB)
    assert made is not None
    assert (made.size, made.per_sample_mib, made.free_mib) == (32768, 2.0, H200_MIB - 3000.0)
    assert str(made) == (
        "32768, the largest power of two within 0.7 * 140771 MiB free / 2 MiB per sample = 49269; "
        "samples at hand unknown; at most 65536"
    )


def test_sizes_grow_until_small_samples_can_be_measured() -> None:
    tried = probed(base_mib=3000.0, per_sample_mib=0.04, total_mib=H200_MIB, samples=524_288)
    assert [one.size for one in tried] == [48, 384, 3072, 24576]
    made = fit(tried, total_mib=H200_MIB, samples=524_288)
    assert made is not None
    assert (made.size, made.by_memory) == (MOST, 2_463_492)


def test_samples_too_small_to_be_measured_count_with_the_most_that_they_may_take() -> None:
    made = fit(probed(base_mib=100.0, per_sample_mib=0.0, total_mib=1000.0, samples=4096), total_mib=1000.0)
    assert made is not None
    assert made.per_sample_mib == MEASURABLE_MIB / (3072 - 48)
    assert "at most 0.08466 MiB per sample" in str(made)


@pytest.mark.parametrize(("samples", "most", "size"), [(1000, MOST, 512), (None, 3000, 2048), (4, MOST, 2)])
def test_the_samples_at_hand_and_the_most_bound_it(samples: int | None, most: int, size: int) -> None:
    tried = probed(base_mib=0.0, per_sample_mib=0.1, total_mib=H200_MIB, samples=samples, most=most)
    made = fit(tried, total_mib=H200_MIB, samples=samples, most=most)
    assert made is not None
    assert made.size == size


def test_without_known_memory_only_the_bounds_count() -> None:
    made = fit([Tried(size=48), Tried(size=384)], total_mib=None, samples=5000)
    assert made is not None
    assert (made.size, made.by_memory) == (4096, None)


def test_after_running_out_of_memory_it_goes_down() -> None:
    tried = probed(base_mib=23_000.0, per_sample_mib=50.0, total_mib=24_564.0)
    assert [(one.size, one.fits) for one in tried] == [(48, False), (24, True), (12, True)]
    made = fit(tried, total_mib=24_564.0)
    assert made is not None
    assert made.size == 16


def test_an_iteration_of_many_samples_begins_with_larger_batches() -> None:
    assert [first_size(count) for count in (None, 10, 3072, 32_768, 524_288)] == [48, 3, 48, 768, 12288]
    assert next_size([], first=first_size(32_768), samples=32_768) == 768


def test_a_probe_that_failed_for_another_reason_says_nothing() -> None:
    slow = Tried(size=48, fits=None)
    assert next_size([slow]) == 384
    assert fit([slow, Tried(size=384, used_mib=900.0)], total_mib=H200_MIB) is None
    tried = [slow, Tried(size=384, used_mib=900.0), Tried(size=3072, used_mib=2000.0)]
    assert next_size(tried) is None
    made = fit(tried, total_mib=H200_MIB)
    assert made is not None
    assert made.size == MOST


def test_a_single_probe_never_decides() -> None:
    assert fit([Tried(size=48, used_mib=3000.0)], total_mib=H200_MIB) is None


def test_a_card_on_which_nothing_runs_has_no_size() -> None:
    tried = probed(base_mib=5000.0, per_sample_mib=1.0, total_mib=4000.0)
    assert {one.fits for one in tried} == {False}
    assert fit(tried, total_mib=4000.0) is None


@given(
    base_mib=st.floats(0.0, 30_000.0),
    per_sample_mib=st.floats(0.0, 60.0),
    total_mib=st.floats(4_000.0, 150_000.0),
    samples=st.none() | st.integers(1, 1_000_000),
    most=st.integers(1, MOST),
)
def test_a_size_that_is_chosen_fits(
    base_mib: float, per_sample_mib: float, total_mib: float, samples: int | None, most: int
) -> None:
    tried = probed(base_mib=base_mib, per_sample_mib=per_sample_mib, total_mib=total_mib, samples=samples, most=most)
    made = fit(tried, total_mib=total_mib, samples=samples, most=most)
    if made is None:
        return
    smallest = min(one.size for one in tried if one.fits)
    assert made.size & (made.size - 1) == 0
    assert made.size <= max(min(most, samples or most), 1)
    assert base_mib + per_sample_mib * made.size <= total_mib
    within_safety = per_sample_mib * made.size <= SAFETY * (total_mib - base_mib) * 1.001
    assert within_safety or made.size <= smallest
