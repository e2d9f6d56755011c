"""The file with what the devices of a probe showed over time."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample
from tuner.probe.series import MOST_ROWS, SERIES_FILE, read_series, write_series
from tuner.probe.window import Mark, Window

CARDS = (Device(name="cuda:0", model="x"), Device(name="cuda:1", model="x"))
MARKS = tuple(Mark(iteration=number, t_s=2.0 + number) for number in range(6))


def samples(count: int) -> list[DeviceSample]:
    return [
        DeviceSample(t_s=tick / 10, device=card, util_pct=50.0 + card, mem_used_mib=float(tick))
        for tick in range(count)
        for card in range(2)
    ]


def test_a_reader_finds_devices_iterations_and_window(tmp_path: Path) -> None:
    write_series(tmp_path, samples(80), CARDS, marks=MARKS, window=Window(MARKS[1:]))
    series = read_series(tmp_path)
    assert series is not None
    assert series.devices == ("cuda:0", "cuda:1")
    assert series.marks_s == pytest.approx([mark.t_s for mark in MARKS], abs=0.11)
    assert series.window_s == pytest.approx((3.0, 7.0), abs=0.11)
    assert set(series.curve("cuda:1", "util_pct")[1]) == {51.0}
    assert series.curve("cuda:0", "sm_pct") == ([], [])


def test_a_long_probe_keeps_its_peak_of_memory_and_few_rows(tmp_path: Path) -> None:
    write_series(tmp_path, samples(10 * MOST_ROWS), CARDS, marks=MARKS, window=None)
    series = read_series(tmp_path)
    assert series is not None
    assert len(series.curve("cuda:0", "util_pct")[0]) == MOST_ROWS
    assert max(series.curve("cuda:0", "mem_used_mib")[1]) == 10 * MOST_ROWS - 1
    assert series.window_s is None
    assert (tmp_path / SERIES_FILE).stat().st_size < 150_000


def test_what_cannot_be_written_or_was_never_measured_leaves_no_file(tmp_path: Path) -> None:
    write_series(tmp_path / "nowhere", samples(3), CARDS, marks=(), window=None)
    write_series(tmp_path, [], CARDS, marks=(), window=None)
    assert list(tmp_path.iterdir()) == []
    assert read_series(tmp_path) is None


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_link_that_a_trainer_has_put_there_leads_nowhere(tmp_path: Path, link: str) -> None:
    (tmp_path / "thesis.csv").write_text("three weeks of work")
    (tmp_path / "probe").mkdir()
    getattr(tmp_path / "probe" / SERIES_FILE, link)(tmp_path / "thesis.csv")
    write_series(tmp_path / "probe", samples(8), CARDS, marks=MARKS, window=None)
    assert (tmp_path / "thesis.csv").read_text() == "three weeks of work"
    assert read_series(tmp_path / "probe") is not None


def test_neither_does_the_whole_folder_lead_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / SERIES_FILE).write_text("three weeks of work")
    (tmp_path / "probe").symlink_to(tmp_path / "thesis")
    write_series(tmp_path / "probe", samples(8), CARDS, marks=MARKS, window=None)
    assert (tmp_path / "thesis" / SERIES_FILE).read_text() == "three weeks of work"


def test_a_pipe_in_place_of_the_file_ends_no_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / SERIES_FILE)
    assert read_series(tmp_path) is None


@pytest.mark.parametrize("spoilt", ["x" * 200_000, '"' + "x\n" * 200_000])
def test_a_line_that_the_tuner_has_not_written_hides_no_other(tmp_path: Path, spoilt: str) -> None:
    write_series(tmp_path, samples(8), CARDS, marks=MARKS, window=Window(MARKS))
    series = read_series(tmp_path)
    with (tmp_path / SERIES_FILE).open("a") as file:
        file.write(spoilt)
    assert series is not None
    assert read_series(tmp_path) == series


@given(cut=st.integers(0, 3000), noise=st.binary(max_size=40))
def test_half_a_file_gives_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    write_series(folder, samples(60), CARDS, marks=MARKS, window=Window(MARKS))
    whole = read_series(folder)
    content = (folder / SERIES_FILE).read_bytes()
    (folder / SERIES_FILE).write_bytes(content[:cut] + noise)
    half = read_series(folder)
    assert whole is not None
    assert half is None or len(half.readings) <= len(whole.readings) + noise.count(b"\n") + 1
