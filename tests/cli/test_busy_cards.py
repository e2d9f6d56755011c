"""A study whose cards somebody else holds: told as the host's failure, tried again, never launched."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests_cli import Tuner, study_file

from tuner.devices.cards import Occupancy, Occupant
from tuner.probe.plan import Device

HELD = Occupancy(
    device=Device(name="cuda:0", model="card", uuid="GPU-a", mem_total_mib=24_000.0),
    mem_used_mib=20_600.0,
    occupants=(Occupant(pid=4711, mem_mib=20_000.0),),
)


def test_nothing_is_launched_on_cards_that_others_hold(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.workbench.Cards", lambda devices: SimpleNamespace(occupancy=lambda: (HELD,)))
    study = study_file(tmp_path, probe={"iterations": 4, "idle_seconds": 0.01}, space={"num_envs": {"ladder": [8]}})
    code, _, err = tuner("optimize", "--study", study, "--n-trials", 1)
    assert (code, "free the cards" in err) == (2, True)
    with (tmp_path / "runs/demo/trials.tsv").open() as file:
        trials = list(csv.DictReader(file, delimiter="\t"))
    assert [(trial["status"], trial["launched"]) for trial in trials] == [("gpu_busy", "False")] * 4
    assert "pid 4711 (20,000 MiB)" in trials[0]["detail"]
    assert list((tmp_path / "runs/demo/probes").glob("*/*")) == []
