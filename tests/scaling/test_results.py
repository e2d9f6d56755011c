"""The file of results: it gives back what was written, and refuses what it cannot read with one message."""

import json
from pathlib import Path

import pytest
from tests_scaling import point, results

from tuner.devices.found import Link
from tuner.errors import TunerError
from tuner.probe.result import DeviceSummary, FailureKind
from tuner.tools.scaling.results import FORMAT, MOST_BYTES, VERSION, Measurement, Results, read, write

FULL = Results(
    written_at="2026-11-23T10:00:00+00:00",
    tuner="0.1.0",
    machine={"cpu": "a processor"},
    devices=("NVIDIA H200",) * 2,
    on_gpu=True,
    links=(Link(first=0, second=1, p2p=True, nvlink=None),),
    subjects=results().subjects,
    points=(
        point("joined", 10.5, gpus=(0, 1), route="nvlink", error=0.5),
        Measurement(
            workload="fusion",
            size=None,
            mode="single",
            gpus=(0,),
            devices=(DeviceSummary(device="cuda:0", source="nvml", util_mean_pct=50.0),),
            failure=FailureKind.GPU_OOM,
            detail="CUDA out of memory",
        ),
    ),
)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write(FULL, path)
    assert read(path) == FULL
    assert json.loads(path.read_text())[FORMAT] == VERSION


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON file"),
        (r'{"tuner_scale": 2, "tuner": "\ud800"}', "is no JSON file: .*surrogates not allowed"),
        ("[" * 100_000, "is no JSON file: maximum recursion depth"),
        (" " * (MOST_BYTES + 1), "is no JSON file: it is larger than 64 MiB"),
        ("[]", "is no result of `tuner scale`"),
        ('{"a": 1}', "is no result of `tuner scale`"),
        ('{"tuner_scale": 9}', "its 'tuner_scale' is 9, and this tuner reads 2"),
        ('{"tuner_scale": 2}', "is damaged at"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(TunerError, match=said):
        read(path)


@pytest.mark.parametrize(
    ("part", "number"),
    [
        ("samples_per_s", "0.0"),
        ("samples_per_s", "NaN"),
        ("samples_per_s", "1e-320"),
        ("samples_per_s_se", "1e999"),
        ("samples_per_s_se", "-1"),
        ("samples_per_step", "Infinity"),
        ("beside", "0"),
        ("gpus", "[]"),
    ],
)
def test_a_number_that_nothing_measures_is_damage(part: str, number: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write(FULL, path)
    body = json.loads(path.read_text())
    body["points"][0][part] = "HERE"
    path.write_text(json.dumps(body).replace('"HERE"', number))
    with pytest.raises(TunerError, match=rf"is damaged at points\.0\.{part}: .*; measure again"):
        read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=r"nowhere\.json cannot be read"):
        read(tmp_path / "nowhere.json")
