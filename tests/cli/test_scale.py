"""`tuner scale`: what cannot be measured is refused with one message before anything starts."""

from pathlib import Path

import pytest
from tests_cli import Tuner


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gpus 2 --devices cpu:1", "--gpus 2 asks for 2, and tuner sees 1 CPU rank(s)"),
        ("--split --devices cpu:1", "--split divides work among cards, and tuner sees 1 CPU rank(s)"),
        ("--split --gpus 2 --devices cpu:2", "leave out --gpus 2"),
        ("--gpus 1,x --devices cpu:2", "--gpus '1,x': write whole numbers"),
        ("nonsense --devices cpu:2", "'nonsense' is unknown; known: ppo, fusion, voxelize, pipeline, allreduce"),
        ("fusion voxelize --sizes 8 --devices cpu:2", "--sizes belong to one workload"),
        ("fusion --study reference --devices cpu:2", "leave out fusion"),
        ("--study nowhere --devices cpu:2", "nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: str, said: str, tuner: Tuner) -> None:
    code, out, err = tuner("scale", *words.split())
    assert code == 2
    assert said in err.replace("\n", " ")
    assert "Traceback" not in out + err


def test_earlier_results_are_not_overwritten(tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    code, _, err = tuner("scale", "fusion", "--devices", "cpu:2", "--out", "mine.json")
    assert code == 2
    assert "its results are kept" in err
