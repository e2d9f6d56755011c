import json
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.probe_plan import ProgressFile
from tuner.probe.progress_files import ProgressFileReader

COLUMNS = {"iteration": "step", "samples": "seen"}


class Bench:
    """A progress file that grows, and its reader."""

    def __init__(
        self,
        folder: Path,
        form: Literal["csv", "jsonl"] = "csv",
        columns: dict[str, str] = COLUMNS,
        pattern: str = "metrics",
        most_bytes: int = 1 << 20,
    ) -> None:
        self.path = folder / "metrics"
        file = ProgressFile(folder=folder, pattern=pattern, format=form, columns=columns)
        self._reader = ProgressFileReader(file, most_bytes)

    def write(self, text: str) -> "Bench":
        with self.path.open("a") as file:
            file.write(text)
        return self

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self._reader.read()]

    def iterations(self) -> list[tuple[float, float]]:
        return [(one["iteration"], one["samples"]) for one in self.read() if one["type"] == "iteration"]

    def said(self) -> list[str]:
        return [one["detail"] for one in self.read() if one["type"] == "unread"]


def test_rows_are_reports_as_they_appear(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.said() == ["progress_file metrics: it has not appeared"]
    assert bench.write("loss,step,seen\n").read() == []
    assert bench.write("0.5,1,64\n").read() == [{"type": "iteration", "iteration": 1, "samples": 64}]
    assert bench.write("0.4,2,1.28e+02\n0.3,3").iterations() == [(2, 128)]
    assert bench.read() == []
    assert bench.write(",192\n").iterations() == [(3, 192)]


def test_rows_that_appear_together_are_one_iteration(tmp_path: Path) -> None:
    bench = Bench(tmp_path, columns={"samples": "seen"})
    (report,) = bench.write("seen,fps\n64,100\n128,200\n192,300\n").read()
    assert report == {"type": "iteration", "iteration": 3, "samples": 192}
    assert bench.write("256,100\n").iterations() == [(4, 256)]


def test_a_row_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, columns={"samples": "seen"}).write("seen,text\n64,a\n")
    assert bench.iterations() == [(1, 64)]
    assert bench.write("128,b\n" + "c" * 200_000 + ",d\n256,e\n").iterations() == [(4, 256)]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, form: Literal["csv", "jsonl"]) -> None:
    rows = (
        ('"step",seen\n1,64\n', "2,128\n")
        if form == "csv"
        else ('{"step": 1, "seen": 64}\n', '{"step": 2, "seen": 128}\n')
    )
    bench = Bench(tmp_path, form)
    assert [bench.write(text).iterations() for text in ("\ufeff" + rows[0], rows[1])] == [[(1, 64)], [(2, 128)]]


@pytest.mark.parametrize("steps", [(1, 2, 3), (50, 100, 150, 200)])
def test_rows_whose_count_starts_again_each_epoch_go_on(tmp_path: Path, steps: tuple[int, ...]) -> None:
    bench = Bench(tmp_path, columns={"iteration": "step"}).write("step\n")
    found = [one["iteration"] for _ in range(3) for step in steps for one in bench.write(f"{step}\n").read()]
    assert found == sorted(set(found))
    assert len(found) == 3 * len(steps)


def test_samples_that_start_again_are_doubted_and_a_count_beside_samples_is_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path).write("step,seen\n")
    told = [one.get("doubt") for row in ("1,64", "2,128", "1,192") for one in bench.write(f"{row}\n").read()]
    assert told == [None, None, None]
    (last,) = bench.write("2,64\n").read()
    assert "fell from 192 to 64" in last["doubt"]


def test_while_rows_come_faster_than_they_are_read_speeds_are_unknown(tmp_path: Path) -> None:
    bench = Bench(tmp_path, columns={"samples": "seen"}, most_bytes=40).write("seen\n")
    bench.write("".join(f"{64 * row}\n" for row in range(1, 40)))
    reports = [report for _ in range(9) for report in bench.read()]
    assert "faster than they are read" in reports[0]["doubt"]
    assert reports[-1]["samples"] == 64 * 39


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_the_last_row_counts_however_the_bytes_arrive(
    sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = Bench(tmp_path_factory.mktemp("rows"), "jsonl")
    text = "".join(json.dumps({"step": step, "seen": 64 * step}) + "\n" for step in range(1, 9))
    found: list[tuple[float, float]] = []
    for size in sizes:
        bench.write(text[:size])
        text = text[size:]
        found += bench.iterations()
    found += bench.write(text).iterations()
    assert found == sorted(set(found))
    assert found[-1] == (8, 512)
    assert all(seen == 64 * step for step, seen in found)


def test_a_file_that_is_written_anew_with_more_columns_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, columns={"samples": "seen"})
    assert bench.write("seen\n64\n128\n").iterations() == [(2, 128)]
    bench.path.write_text("seen,loss\n64,\n128,\n192,0.5\n")
    assert bench.iterations() == [(3, 192)]


def test_rows_without_all_columns_do_not_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.write("step,seen\n1,\n2,128\n,192\n").iterations() == [(2, 128)]
    assert bench.read() == []


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("csv", "step,count\n1,64\n", "it has no column 'seen'; found: step, count"),
        ("csv", "step,seen\nabc,64\n", "row 1: 'abc' in column 'step' is no number"),
        ("csv", "step,seen\n-3,64\n", "row 1: '-3' in column 'step' is no number"),
        ("csv", 'step,seen\n"1,64\n', "row 1: '1,64' in column 'step' is no number"),
        ("csv", "\0\n\xff\n", "it has no column 'step'; found: "),
        ("csv", "x" * 9999 + "\n1\n", "found: xxxx"),
        ("jsonl", '{"step": 1}\n', "it has no column 'seen'; found: step"),
        ("jsonl", "not json\n", "it has no column 'step'; found: no columns"),
        ("jsonl", "[1, 2]\n", "it has no column 'step'; found: no columns"),
        ("jsonl", '{"step": [3], "seen": 4}\n', "row 1: [3] in column 'step' is no number"),
    ],
)
def test_rows_that_cannot_be_used_are_reported_once(
    tmp_path: Path, form: Literal["csv", "jsonl"], text: str, said: str
) -> None:
    bench = Bench(tmp_path, form).write(text)
    (detail,) = bench.said()
    assert said in detail
    assert len(detail) < 500
    assert bench.write(text).iterations() == []


def test_a_line_that_does_not_fit_is_skipped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "jsonl", most_bytes=64).write("x" * 200 + "\n" + '{"step": 3, "seen": 5}\n')
    assert [one for _ in range(6) for one in bench.iterations()] == [(3, 5)]


def test_a_path_that_is_no_file_is_reported(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.path.mkdir()
    assert "Is a directory" in bench.said()[0]
    assert bench.read() == []


def test_the_first_match_that_appears_is_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, pattern="**/version_*/m*.csv")
    assert bench.said() == ["progress_file **/version_*/m*.csv: it has not appeared"]
    (tmp_path / "logs/version_0").mkdir(parents=True)
    (tmp_path / "logs/version_0/m.csv").write_text("step,seen\n1,64\n")
    assert bench.iterations() == [(1, 64)]
