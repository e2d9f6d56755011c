"""Real recordings, replayed through the real watch, window and failure classification."""

from pathlib import Path

import pytest
from tests_devices import load_recording
from tests_replays import replay

from tuner.probe.metrics import value
from tuner.probe.probe_plan import LinePatterns
from tuner.probe.result import FailureKind
from tuner.study.spec import ProbeSpec
from tuner.trainers.command_options import PRESETS

DATA = Path(__file__).parents[1] / "data"
RECORDINGS = DATA / "recordings"
PROGRESS = LinePatterns(patterns=PRESETS["mimickit"].progress)


@pytest.mark.parametrize(
    "log", sorted((DATA / "failures").glob("*/*.log")), ids=lambda log: f"{log.parent.name}/{log.stem}"
)
@pytest.mark.parametrize("exit_code", [None, 1], ids=["hangs", "exits"])
def test_a_log_is_named_by_its_folder(log: Path, exit_code: int | None) -> None:
    result = replay(log, PROGRESS, exit_code=exit_code)
    assert result.failure is not None
    assert result.failure.kind == log.parent.name


def test_a_rank_out_of_memory_while_building_is_named_within_seconds() -> None:
    recording = load_recording(RECORDINGS / "oom_rank1_e1024.json")
    result = replay(DATA / "failures/gpu_oom/oom_rank1_e1024.log", PROGRESS, recording=recording)
    assert result.failure is not None
    assert result.failure.kind is FailureKind.GPU_OOM
    assert result.failure.rank == 1
    assert result.failure.overshoot_mib == pytest.approx(355123200 / 2**20)
    assert recording.error_s is not None
    assert result.total_s - recording.error_s < 6.0


def test_the_other_card_s_utilisation_after_a_rank_has_died_is_no_result() -> None:
    recording = load_recording(RECORDINGS / "oom_late_rank0_e1024.json")
    result = replay(DATA / "failures/gpu_oom/oom_late_rank0_e1024.log", PROGRESS, recording=recording)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.rank) == (FailureKind.GPU_OOM, 0)
    assert value(result, "min_avg_util") is None
    assert recording.error_s is not None
    assert result.total_s - recording.error_s < 6.0


def test_a_healthy_probe_measures_what_its_iterations_show() -> None:
    recording = load_recording(RECORDINGS / "ok_hiutil_e1024.json")
    result = replay(DATA / "healthy/ok_hiutil_e1024.log", PROGRESS, recording=recording, exit_code=0)
    assert result.failure is None
    assert [device.util_mean_pct for device in result.devices] == pytest.approx([63.7, 62.8], abs=0.1)
    assert [device.sm_mean_pct for device in result.devices] == pytest.approx([21.8, 21.7], abs=0.1)
    assert [device.mem_peak_mib for device in result.devices] == [6097, 5573]
    assert result.samples_per_s == pytest.approx(18964.5, abs=0.1)
    assert result.start_up_s == 48.25


def test_a_healthy_log_on_two_cpu_ranks_is_no_failure() -> None:
    limits = ProbeSpec(window_seconds=0.5)  # the lines of this log have no times
    assert replay(DATA / "healthy/ok_cpu2.log", PROGRESS, exit_code=0, limits=limits).failure is None
