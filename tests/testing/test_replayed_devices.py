from pathlib import Path
from statistics import mean

import pytest
from tests_devices import RecordedProbe, ReplayedSource, check_device_source, load_recording

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))


def recording(name: str) -> RecordedProbe:
    return load_recording(RECORDINGS / f"{name}.json")


def test_every_recording_is_a_device_source() -> None:
    for name in NAMES:
        source = ReplayedSource(recording(name))
        check_device_source(source)
        assert [device.name for device in source.devices] == ["cuda:0", "cuda:1"]


def test_reads_the_format_with_gpm():
    ok = recording("ok_hiutil_e1024")
    early = [sample for sample in ok.samples if sample.t_s == 0.43]
    assert [(sample.util_pct, sample.mem_used_mib, sample.power_w, sample.sm_pct) for sample in early] == [
        (0, 615, 79, 0.0),
        (0, 615, 80, 0.0),
    ]
    assert ok.samples[0].sm_pct is None
    assert (ok.marks_s[0], ok.total_s, ok.exit_code) == (48.25, 78.0, 0)


def test_reads_the_older_flat_format():
    old = recording("deepmimic_pi_plus_ppo_hiutil_e256_d2")
    first, second = old.samples[:2]
    assert (first.t_s, first.device, first.util_pct, first.mem_used_mib, first.power_w) == (0.01, 0, 0, 615, 126)
    assert (second.device, second.power_w, second.sm_pct) == (1, 78, None)
    assert len(old.marks_s) == 8


def test_means_between_the_first_and_the_last_mark_are_those_of_the_recorded_run() -> None:
    for field, expected in [
        ("util_pct", (63.7, 62.8)),
        ("sm_pct", (21.8, 21.7)),
        ("occupancy_pct", (3.7, 3.7)),
        ("tensor_pct", (0.0, 0.0)),
        ("dram_pct", (1.3, 1.3)),
    ]:
        ok = recording("ok_hiutil_e1024")
        inside = [sample for sample in ok.samples if ok.marks_s[0] <= sample.t_s <= ok.marks_s[-1]]
        for device in range(2):
            values = [getattr(sample, field) for sample in inside if sample.device == device]
            assert mean(value for value in values if value is not None) == pytest.approx(expected[device], abs=0.06)


def test_a_probe_that_was_ended_from_outside_says_so():
    assert recording("oom_rank1_e1024").exit_code == -9
    assert recording("oom_rank1_e1024").marks_s == ()


def test_replays_the_last_row_at_or_before_the_time():
    source = ReplayedSource(recording("ok_hiutil_e1024"))
    late = source.sample(1e6)
    assert [(sample.t_s, sample.mem_used_mib) for sample in late] == [(1e6, 5565), (1e6, 618)]
    assert source.sample(0.129)[0].power_w == source.sample(0.02)[0].power_w == 79
    assert source.sample(0.43)[0].sm_pct == 0.0
    assert source.sample(0.429)[0].sm_pct is None


def test_before_the_first_row_nothing_is_known():
    samples = ReplayedSource(recording("ok_hiutil_e1024")).sample(0.0)
    assert [(sample.device, sample.util_pct, sample.mem_used_mib) for sample in samples] == [
        (0, None, None),
        (1, None, None),
    ]
