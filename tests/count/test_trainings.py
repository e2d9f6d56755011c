"""Samples of trainings that are hard to count: counted as they are, or not at all and with the reason."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tuner.count
from tuner.count import Merger

pytest.importorskip("torch")
HERE = Path(__file__).parent
COUNTED = {
    "two_views_of_a_loader": "loader and module",
    "two_networks_and_a_loader": "loader; the module takes 2 times as many inputs",
    "one_network_with_two_optimizers": "module",
    "evaluation_with_gradients": "module",
    "loss_of_a_test_in_training_mode": "module",
    "parts_of_one_data_set": "loader and module",
    "loaders_of_their_own_for_each_epoch": "loader and module",
    "another_network_evaluates": "loader and module",
    "labelled_and_unlabelled": "loader and module",
    "sequence_before_batch": "module",
    "packed_sequences": "module",
    "sequences_without_padding": "loader; the module takes 0.125 times as many inputs",
    "points_of_all_samples_in_one": "loader; the module takes 64 times as many inputs",
    "dictionaries_of_pictures": "loader and module",
    "loader_of_single_pictures": "loader and module; a batch is one sample",
    "pictures_and_words": "module",
    "computed_again_for_the_gradients": "module",
    "another_optimizer_goes_on": "module",
    "steps_inside_the_backward_pass": "module",
}
"""Training → what counts its samples."""
UNCOUNTED = {
    "two_views": "several times for each loss",
    "closure_is_called_again": "the same samples several times",
    "two_networks": "several networks",
    "single_samples": "single samples",
    "batches_used_twice": "the same samples several times",
    "batches_of_a_loader_used_twice": "only some of the steps",
    "rollouts_of_its_own": "also runs without gradients",
}
"""Training → why nothing is counted."""
FIRST = 3
"""Counts begin at this step."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of what each training has told."""
    folder = tmp_path_factory.mktemp("trainings")
    environ = os.environ | {"PYTHONPATH": str(Path(tuner.count.__file__).parent / "inside"), "TUNER_COUNT": str(folder)}
    subprocess.run([sys.executable, str(HERE / "trainings.py"), str(folder)], env=environ, check=True)
    return folder


def merged(folder: Path) -> Merger:
    """Return a merger that has heard a training, and has told its marks."""
    merger = Merger()
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            assert record["type"] != "off", record
            merger.feed(file.stem, record)
            list(merger.marks())
    return merger


@pytest.mark.parametrize("name", COUNTED)
def test_samples_are_counted_as_they_are(told: Path, name: str) -> None:
    merger = merged(told / name)
    true = [int(samples) for samples in (told / name / "samples").read_text().split()]
    training = merger.training()
    assert training is not None, merger.why
    assert training.witness == COUNTED[name]
    last = max(process.steps for process in merger.processes.values())
    assert last >= FIRST + 1
    assert merger.samples_at(last) == pytest.approx(sum(true[FIRST:last]), abs=max(true))


@pytest.mark.parametrize("name", UNCOUNTED)
def test_samples_that_cannot_be_known_are_not_counted(told: Path, name: str) -> None:
    merger = merged(told / name)
    assert merger.training() is None
    assert UNCOUNTED[name] in str(merger.why)


def test_the_end_of_a_pass_is_told_as_a_pause(told: Path) -> None:
    texts = [file.read_text() for file in (told / "two_views_of_a_loader").glob("*.jsonl")]
    assert any(json.loads(line)["type"] == "pause" for text in texts for line in text.splitlines())


def test_each_training_is_tried(told: Path) -> None:
    assert {folder.name for folder in told.iterdir() if folder.is_dir()} == {*COUNTED, *UNCOUNTED}
