"""GPU kernels that others timed with every config: spaces without a trainer, far from any ladder.

`benchmarks/tables/kernels` has a table for each kernel; its column `gpu` names the GPU. Four GPUs are there to develop
on. The other two are measured once, at the end. `benchmarks/tables/README.md` names source, licence and columns.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tuner.export.recorded_table import Header, Recorded, Table
from tuner.probe.probe_plan import Device
from tuner.probe.result import Failure, FailureKind, ProbeResult
from tuner.study.space import Value
from tuner.study.spec import ParameterSpec, ProbeSpec

FOLDER = Path("benchmarks/tables/kernels")
KERNELS = ("convolution_milo", "dedispersion_milo")
GPUS = {"dev": ("A100", "A4000", "MI250X", "W6600"), "report": ("A6000", "W7800")}
"""Half → the GPUs whose tables belong to it."""
FASTEST = 1_000.0
"""The objective of the fastest config."""
_RESULTS = frozenset({"gpu", "speed", "error", "seconds", "start_s", "failure"})


@cache
def table(name: str) -> Table:
    """Return the table of a kernel and a GPU, such as `convolution_milo_A100`."""
    kernel, _, gpu = name.rpartition("_")
    read = pq.read_table(FOLDER / f"{kernel}.parquet", filters=[("gpu", "==", gpu)])
    rows = read.to_pylist()
    names = [column for column in read.column_names if column not in _RESULTS]
    space = {one: ParameterSpec(choices=tuple(sorted({row[one] for row in rows}))) for one in names}
    header = Header(
        study="kernels",
        case=name,
        files={},
        objective="samples_per_s",
        unit="",
        space=space,
        machine={},
        devices=(Device(name="cuda:0", model=gpu, mem_total_mib=None),),
        source="",
        trainer={"name": "kernel"},
        limits=ProbeSpec(),
        date="2025-05-24T00:00:00Z",
        rows=len(rows),
    )
    return Table(header, [_recorded(row, names) for row in rows])


def _recorded(row: dict[str, Any], names: list[str]) -> Recorded:
    config: dict[str, Value] = {name: row[name] for name in names}
    if row["failure"]:
        failure = Failure(kind=FailureKind.CRASH, rule=row["failure"], detail="")
        return Recorded(
            result=ProbeResult(config=config, plan_digest="", started_at="", total_s=row["seconds"], failure=failure)
        )
    speed = FASTEST * row["speed"]
    return Recorded(
        result=ProbeResult(
            config=config,
            plan_digest="",
            started_at="",
            total_s=row["seconds"],
            start_up_s=row["start_s"],
            window_s=row["seconds"] - row["start_s"],
            iterations=32,
            samples_per_s=speed,
            samples_per_s_se=speed * row["error"],
        )
    )
