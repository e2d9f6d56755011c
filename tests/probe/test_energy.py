"""Energy and money for samples: what measured them, and how sure they are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_probe import READINGS, iterations, probe

from tuner.probe import measured
from tuner.probe.probe_plan import Device, LinePatterns
from tuner.probe.result import DeviceSample, DeviceSummary, Thin
from tuner.probe.summaries import SAMPLED, summarise
from tuner.probe.window import Mark, Window


def summary(samples: list[DeviceSample], name: str = "cuda:0", marks: tuple[Mark, ...] | None = None) -> DeviceSummary:
    marks = marks or tuple(Mark(iteration=number, t_s=10.0 + number) for number in range(11))
    return summarise(samples, Window(marks), Device(name=name, model="x"), "nvml")


@given(st.floats(50.0, 700.0), st.floats(50.0, 700.0), st.sampled_from([0.02, 0.1, 0.2, 5.0]))
def test_the_counter_holds_what_power_between_two_readings_misses(low_w: float, high_w: float, every_s: float) -> None:
    """The card takes `high_w` in every second half of a second; every power reading shows `low_w`."""
    times_s = [place * every_s for place in range(int(25 / every_s) + 1)]

    def counter_j(t_s: float) -> float:
        whole = int(t_s)
        return whole * (low_w + high_w) / 2 + low_w * min(t_s - whole, 0.5) + high_w * max(t_s - whole - 0.5, 0.0)

    samples = [DeviceSample(t_s=t_s, device=0, power_w=low_w, energy_j=counter_j(t_s)) for t_s in times_s]
    found = summary(samples)
    assert found.energy_source == "counter"
    assert found.energy_j == pytest.approx(10.0 * (low_w + high_w) / 2, rel=1e-6)
    assert found.power_mean_w == pytest.approx(low_w)


@pytest.mark.parametrize("counter", [lambda _: None, lambda _: 5.0, lambda t_s: 900.0 - t_s])
def test_without_a_counter_that_moves_sampled_power_stands_in_and_says_so(counter) -> None:
    samples = [DeviceSample(t_s=t_s / 10, device=0, power_w=200.0, energy_j=counter(t_s)) for t_s in range(250)]
    found = summary(samples)
    assert (found.energy_j, found.energy_source) == (pytest.approx(2000.0), SAMPLED)


def test_a_cpu_s_energy_is_that_of_its_own_counter_or_unknown() -> None:
    counted = summary([DeviceSample(t_s=t_s / 10, device=0, energy_j=3.0 * t_s) for t_s in range(250)], "cpu:0")
    assert (counted.energy_j, counted.energy_source) == (pytest.approx(300.0), "rapl")
    unknown = summary([DeviceSample(t_s=t_s / 10, device=0, util_pct=50.0) for t_s in range(250)], "cpu:0")
    assert (unknown.energy_j, unknown.energy_source) == (None, None)


def test_energy_of_a_thin_window_is_that_of_the_whole_training() -> None:
    """Two seconds of rollout at 100 W, then a tenth of 20 s of updates at 400 W."""
    marks = (Mark(iteration=0, t_s=0.0), Mark(iteration=1, t_s=4.0, thin=Thin(2.0, 10.0)))
    counter = [
        DeviceSample(t_s=t / 10, device=0, energy_j=10.0 * min(t, 20) + 40.0 * max(t - 20, 0)) for t in range(41)
    ]
    assert summary(counter, marks=marks).energy_j == pytest.approx(2 * 100 + 20 * 400)


def test_samples_for_a_joule_and_for_money_are_those_of_all_devices() -> None:
    lines = [(t_s, f"{text} samples {256 * number}") for number, (t_s, text) in enumerate(iterations(50))]
    patterns = LinePatterns(patterns=(r"it (?P<iteration>\S+) samples (?P<samples>\S+)",))
    readings = tuple(replace(reading, power_w=300.0) for reading in READINGS)
    result, _ = probe(lines, patterns=patterns, readings=readings, price_per_hour=7.2)
    assert result.samples_per_s is not None
    numbers = measured(result)
    assert numbers["joules_per_sample"] == pytest.approx(600.0 / result.samples_per_s)
    assert numbers["samples_per_joule"] == pytest.approx(1 / (numbers["joules_per_sample"] or 1.0))
    assert numbers["cost_per_million_samples"] == pytest.approx(7.2 / 3600 / result.samples_per_s * 1e6)
    assert (numbers["samples_per_joule_se"] or 0.0) > 0.0
    assert any("sampled power" in note for note in result.notes)
