"""`tuner compare`: a verdict and one document from the files of several machines; what cannot be read is refused."""

import json
import os
from pathlib import Path

import pytest
from tests_cli import Tuner
from tests_docs import ROOT
from tests_scaling import point, results

from tuner.tools.scaling.results import write


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Return the names of two files of results in the working directory."""
    both = point("joined", 1900.0, gpus=(0, 1), route="nvlink", error=10.0)
    write(results(point("single", 1000.0, error=10.0), both), tmp_path / "pair.json")
    write(results(point("single", 900.0, error=10.0), cards=1), tmp_path / "lone.json")
    return ["pair.json", "lone.json"]


def test_two_machines_make_a_verdict_and_one_document(tuner: Tuner, files: list[str]) -> None:
    code, out, _ = tuner("compare", *files)
    assert code == 0
    assert "pair with 2 x NVIDIA H200 over NVLink is the fastest" in out
    code, out, _ = tuner("compare", *files, "--json")
    document = json.loads(out)
    assert [(row["machine"], row["row"]["gpus"]) for row in document["rows"]] == [("pair", 1), ("pair", 2), ("lone", 1)]
    assert document["rows"][1]["row"]["speed_up"]["value"] == pytest.approx(1.9)
    assert "pair with 2 x NVIDIA H200 over NVLink is the fastest" in document["sentences"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pair.json nowhere.json", "nowhere.json cannot be read"),
        ("pair.json pair.json", "a file is named twice"),
        ("pair.json old.json", "its 'tuner_scale' is 0, and this tuner reads 2"),
        ("empty.json", "no baseline of a single device"),
        ("pair.json pipe", "pipe cannot be read: it is no regular file"),
        ("pair.json no_cards.json", "no_cards.json is damaged at devices"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    words: str, said: str, tuner: Tuner, files: list[str], tmp_path: Path
) -> None:
    (tmp_path / "old.json").write_text('{"tuner_scale": 0}')
    write(results(), tmp_path / "empty.json")
    os.mkfifo(tmp_path / "pipe")
    body = json.loads((tmp_path / "pair.json").read_text())
    (tmp_path / "no_cards.json").write_text(json.dumps(body | {"devices": []}))
    code, out, err = tuner("compare", *words.split())
    assert code == 2
    assert said in err.replace("\n", " ")
    assert "Traceback" not in out + err


def test_the_recorded_results_of_two_machines_are_compared(tuner: Tuner) -> None:
    recorded = ROOT / "benchmarks/results/scaling"
    code, out, _ = tuner("compare", recorded / "one_h200.json", recorded / "two_cpu_ranks.json")
    assert code == 0
    assert "one_h200: measured on one NVIDIA H200 alone" in out
    assert "one_h200: ppo 4,096 (strong): 2 devices can make at most 1.76 ± 0.04 times the samples of one" in out
    assert "These are CPU figures" in out
