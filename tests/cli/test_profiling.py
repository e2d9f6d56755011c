"""`tuner plan --best --profile`: what is put around a command, and that torch's profiler really writes a trace."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tuner.cli.plan import profiled
from tuner.probe.probe_plan import ProbePlan, Slot
from tuner.study.spec import ProbeSpec

TRAINING = """
import glob, torch
while not glob.glob("trace_rank0_*.json"):
    torch.ones(64, 64) @ torch.ones(64, 64)
"""


def plan(folder: Path) -> ProbePlan:
    slot = Slot(devices=(), out_dir=folder, port=1, limits=ProbeSpec())
    return ProbePlan(
        config={},
        argv=(sys.executable, "-c", TRAINING),
        cwd=folder,
        env={"A": "b"},
        files={},
        slot=slot,
        session_key="",
    )


def test_nsight_systems_is_put_before_the_command_which_it_does_not_end(tmp_path: Path) -> None:
    wrapped = profiled(plan(tmp_path), nsys="/opt/nsys")
    assert wrapped.argv[:2] == ("/opt/nsys", "profile")
    assert wrapped.argv[-3:] == plan(tmp_path).argv
    assert "--kill=none" in wrapped.argv
    assert f"--output={tmp_path / 'profile'}" in wrapped.argv


def test_without_it_torch_writes_a_trace_of_the_training(tmp_path: Path) -> None:
    wrapped = profiled(plan(tmp_path), nsys=None, delay_s=0.02, length_s=0.05)
    for path, text in wrapped.files.items():
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert wrapped.argv == plan(tmp_path).argv
    assert replace(wrapped, files={}, env=plan(tmp_path).env) == plan(tmp_path)
    subprocess.run(wrapped.argv, env=os.environ | wrapped.env, check=True, cwd=tmp_path)
    (trace,) = tmp_path.glob("trace_rank0_*.json")
    assert any("mm" in str(event.get("name")) for event in json.loads(trace.read_text())["traceEvents"])
