"""GPU kernels that others timed with every config: spaces without a trainer, far from any ladder.

    python -m benchmarks.search.kernel_tables FOLDER   # holds convolution_milo/A100.json.gz and the other files

The command writes an extract of each file to `benchmarks/tables/kernels`, whose README.md names source and licence. An
extract holds the tuned parameters, the speed as a share of the fastest config's, its standard error, the seconds of the
probe and of its start, and the cause of a failure. Four GPUs are there to develop on. The other two are measured once,
at the end.
"""

import gzip
import json
import math
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from tuner.export.recorded_table import Header, Recorded, Table
from tuner.probe.kinds import FailureKind
from tuner.probe.probe_plan import Device
from tuner.probe.result import Failure, ProbeResult
from tuner.study.space import Value
from tuner.study.spec import ParameterSpec, ProbeSpec

FOLDER = Path("benchmarks/tables/kernels")
KERNELS = ("convolution_milo", "dedispersion_milo")
GPUS = {"dev": ("A100", "A4000", "MI250X", "W6600"), "report": ("A6000", "W7800")}
"""Half → the GPUs whose tables belong to it."""
SOURCE = {
    "source": "AutoTuningAssociation/benchmark_hub, commit 8eeb99e7179e6838af95d392ac6c60cebfd8c434",
    "doi": "10.5281/zenodo.15364124",
    "licence": "MIT, Copyright (c) 2025 AutoTuningAssociation",
}
FASTEST = 1_000.0
"""The objective of the fastest config."""
_CAUSES = {"CompilationFailedConfig": "compile", "RuntimeFailedConfig": "runtime", "InvalidConfig": "constraints"}
_START_MS = ("compile_time", "verification_time", "framework_time")
_RESULTS = frozenset({"speed", "error", "seconds", "start_s", "failure"})


@cache
def table(name: str) -> Table:
    """Return the table of a kernel and a GPU, such as `convolution_milo_A100`."""
    read = pq.read_table(FOLDER / f"{name}.parquet")
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
        devices=(Device(name="cuda:0", model=name.rpartition("_")[2], mem_total_mib=None),),
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


def extract(path: Path) -> pa.Table:
    """Return the extract of a file in the format of Kernel Tuner's cache. Parameters with one value are left out."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    rows = list(document["cache"].values())
    names = [name for name in document["tune_params_keys"] if len({row[name] for row in rows}) > 1]
    fastest_ms = min(row["time"] for row in rows if not isinstance(row["time"], str))
    columns = {name: pa.array([row[name] for row in rows], pa.int16()) for name in names}
    return pa.table(
        columns
        | {
            "speed": pa.array([_digits(_speed(row, fastest_ms), 5) for row in rows], pa.float32()),
            "error": pa.array([_digits(_error(row), 2) for row in rows], pa.float32()),
            "seconds": pa.array([_seconds(row, *_START_MS, "benchmark_time") for row in rows], pa.float32()),
            "start_s": pa.array([_seconds(row, *_START_MS) for row in rows], pa.float32()),
            "failure": pa.array([_CAUSES.get(row["time"]) for row in rows], pa.dictionary(pa.int8(), pa.string())),
        }
    ).replace_schema_metadata(SOURCE)


def _speed(row: dict[str, Any], fastest_ms: float) -> float | None:
    return None if isinstance(row["time"], str) else fastest_ms / row["time"]


def _error(row: dict[str, Any]) -> float | None:
    """Return the relative standard error of a time from the times of its runs."""
    if isinstance(row["time"], str):
        return None
    return stdev(row["times"]) / math.sqrt(len(row["times"])) / fmean(row["times"])


def _seconds(row: dict[str, Any], *parts: str) -> float:
    return round(sum(float(row.get(part) or 0.0) for part in parts) / 1e3, 2)


def _digits(number: float | None, count: int) -> float | None:
    return None if number is None else float(f"{number:.{count}g}")


def main(folder: Annotated[Path, typer.Argument(help="`cachefiles` of the source")]) -> None:
    """Write all extracts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kernel in KERNELS:
        for gpu in (gpu for half in GPUS.values() for gpu in half):
            path = FOLDER / f"{kernel}_{gpu}.parquet"
            made = extract(folder / kernel / f"{gpu}.json.gz")
            pq.write_table(made, path, compression="zstd", compression_level=19)
            print(path.name, len(made), "rows,", path.stat().st_size, "bytes")


if __name__ == "__main__":
    typer.run(main)
