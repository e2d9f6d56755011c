"""A study whose cards another process uses: the machine is at fault, and the config is tried again without a launch."""

import csv
from pathlib import Path

from tests_cli import study_file
from tests_loop import Quiet, opened
from tests_replays import FakeClock

from tuner.cli.hints import what_to_repair
from tuner.devices.cards import Occupancy, Occupant
from tuner.export.tables import export_study
from tuner.probe.probe_plan import Device
from tuner.probe.process import Sessions
from tuner.running.job import Job, open_workbench
from tuner.running.loop import optimize
from tuner.running.prober import RealProber
from tuner.study.cases import select

HELD = Occupancy(
    device=Device(name="cuda:0", model="card", uuid="GPU-a", mem_total_mib=24_000.0),
    mem_used_mib=20_600.0,
    occupants=(Occupant(pid=4711, mem_mib=20_000.0),),
)


def test_nothing_is_launched_on_cards_that_others_hold(tmp_path: Path) -> None:
    study = study_file(tmp_path, probe={"iterations": 4}, space={"num_envs": {"ladder": [8]}})
    bench = open_workbench(str(study), runs=tmp_path / "runs")
    clock = FakeClock()
    prober = RealProber(
        bench.source, occupied=lambda: (HELD,), sessions=Sessions(clock), clock=clock, sleep=clock.advance
    )
    with opened(tmp_path) as database:
        job = Job(bench=bench, database=database, probe=prober, listener=Quiet(), interrupted=lambda: False, trials=1)
        (outcome,) = optimize(job, select(bench.trainer.cases(), bench.spec.cases))
    assert "free the cards" in (what_to_repair(outcome) or "")
    export_study(f"sqlite:///{tmp_path}/study.db", "demo", tmp_path / "tables")
    with (tmp_path / "tables/trials.tsv").open() as file:
        trials = list(csv.DictReader(file, delimiter="\t"))
    assert [(trial["status"], trial["launched"]) for trial in trials] == [("gpu_busy", "False")] * 4
    assert "pid 4711 (20,000 MiB)" in trials[0]["detail"]
    assert trials[0]["detail"].endswith("waited 30 s")
    assert list((tmp_path / "runs/demo/probes").glob("*/*")) == []
