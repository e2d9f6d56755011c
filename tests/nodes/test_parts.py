"""What a watcher makes of a plan for its own node."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests_replays import scripted_plan

from tuner.errors import OutputError
from tuner.nodes.agent import part_of_plan
from tuner.nodes.watcher import RunPart
from tuner.probe import Device, ProbePlan
from tuner.study.spec import ProbeSpec

CARDS = tuple(Device(name=f"cuda:{card}", model="H100", uuid=f"GPU-{card}") for card in range(2))
VARIABLES = {"CUDA_VISIBLE_DEVICES": "0,1", "A": "a"}
ALL = tuple(Device(name=f"cuda:{rank}", model="H100") for rank in range(4))


@pytest.fixture(autouse=True)
def own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what a watcher sets for all that it starts."""
    for name in ("SLURM_NODEID", "TUNER_HEAD"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PYTHONPATH", "/mine/${x}")


def part(folder: Path, **changes: object) -> ProbePlan:
    blank = scripted_plan(folder / "out", ALL, ProbeSpec())
    plan = replace(blank, slot=replace(blank.slot, nodes=2), **changes)  # type: ignore[arg-type]
    return part_of_plan(RunPart(plan=plan, head="gpu1"), 1, CARDS, VARIABLES)


def test_a_part_has_the_cards_of_its_node_and_files_of_its_own(tmp_path: Path) -> None:
    files = {tmp_path / "agent.yaml": "x"}
    made = part(tmp_path, files=files, protects_files=True, env={"TUNER_PROGRESS": "shared", "A": "b"})
    assert [device.uuid for device in made.slot.devices] == ["GPU-0", "GPU-1"]
    assert (made.env["CUDA_VISIBLE_DEVICES"], made.env["A"]) == ("0,1", "b")
    assert made.env["TUNER_PROGRESS"] == str(made.slot.progress) == str(tmp_path / "out/node-1/progress.jsonl")
    assert (made.files, made.protects_files, made.is_counted) == ({}, False, False)
    assert (os.environ["SLURM_NODEID"], os.environ["TUNER_HEAD"]) == ("1", "gpu1")
    assert "TUNER_COUNT" not in made.env
    assert made.slot.console.parent.is_dir()


def test_what_is_counted_lies_with_the_node_and_the_person_s_path_stays(tmp_path: Path) -> None:
    made = part(tmp_path, is_counted=True)
    variables = made.environment(os.environ)
    assert variables["TUNER_COUNT"] == str(tmp_path / "out/node-1/counts")
    assert variables["PYTHONPATH"].endswith(":/mine/${x}")
    assert made.slot.counts.is_dir()
    assert "TUNER_PROGRESS" not in made.env


def test_a_folder_that_no_other_node_shares_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputError, match=r"out/node-1.* all nodes share"):
        part(tmp_path)
