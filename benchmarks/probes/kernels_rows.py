"""The rows of the benchmark of precision and kernels: their configs, and the file that keeps what was measured."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.probes.kept_rows import Row
from tuner.probe.metrics import error, value
from tuner.probe.result import ProbeResult
from tuner.study.space import Config

CASE = "deepmimic_pi_plus_ppo"
DEFAULT, BEST = "default", "best of the search"
METRICS = ("samples_per_s", "min_avg_util", "min_avg_sm", "min_avg_tensor", "min_avg_dram", "mem_peak_mib")
LIMITS = ("memory", "launches", "arithmetic", "clips")
COLUMNS: tuple[str, ...] = (
    *("name", "config", "outcome", *METRICS),
    *("samples_per_s_se", "total_s", "device", *LIMITS, "facts"),
)

_ROUND: Config = {"num_envs": 4096}
SMALL: Config = {"num_envs": 1024}
FEW: Config = {"num_envs": 64}


def rows(*, gpu: bool, workers: int, minibatch: int | None) -> Iterator[tuple[str, Config]]:
    """Yield the name and the config of each row; `minibatch` is what `auto` works out, None where no size has run."""
    auto: Config = {} if minibatch is None else {"minibatch": minibatch}
    if not gpu:
        yield from (
            (DEFAULT, FEW),
            ("clip workers", FEW | {"num_workers": 1}),
            ("bf16", FEW | {"num_workers": 1, "precision": "bf16"}),
            ("compile", FEW | {"num_workers": 1, "compile": True}),
            ("minibatch auto", FEW | auto | {"num_workers": 1}),
        )
        return
    base = _ROUND | {"num_workers": workers, "prefetch_factor": 2}
    large = base | {"num_envs": 16384}
    fast: Config = {"precision": "bf16", "cuda_graphs": True}
    yield DEFAULT, {"num_envs": 1024}
    yield "bf16, graphs, compile, 16,384 environments", large | fast | auto | {"compile": True}
    yield "bf16, graphs, 16,384 environments", large | fast
    yield "tf32, graphs, 16,384 environments", large | {"tf32": True, "cuda_graphs": True}
    yield "default with 16,384 environments", {"num_envs": 16384}
    yield "default with 4,096 environments", _ROUND
    yield "clip workers", base
    yield "tf32", base | {"tf32": True}
    yield "bf16", base | {"precision": "bf16"}
    yield "fp16", base | {"precision": "fp16"}
    yield "compile", base | {"compile": True}
    yield "graphs", base | {"cuda_graphs": True}
    yield "minibatch auto", base | auto
    yield "rollout on the CPU", base | {"rollout_device": "cpu"}
    yield "bf16 and graphs", base | fast
    yield "bf16, graphs, minibatch auto", base | fast | auto
    yield "bf16, graphs, compile", base | fast | {"compile": True}
    mixed: Config = {"precision": "bf16", "compile": True, "rollout_device": "cpu"}
    yield "bf16, compile, rollout on the CPU", base | mixed
    yield "cudnn benchmark", base | {"cudnn_benchmark": True}


def row(name: str, result: ProbeResult, limits: Mapping[str, float], facts: Mapping[str, object], device: str) -> Row:
    """Return the row of a probe; an unknown number is an empty text."""
    outcome = f"{result.failure.kind}: {result.failure.detail}" if result.failure else "; ".join(("ok", *result.notes))
    numbers = {metric: value(result, metric) for metric in METRICS}
    numbers |= {"samples_per_s_se": error(result, "samples_per_s"), "total_s": result.total_s, **limits}
    texts = {column: "" if number is None else f"{number:.2f}" for column, number in numbers.items()}
    config = json.dumps(result.config)
    said = {"name": name, "config": config, "outcome": " ".join(outcome.split()), "device": device}
    return {**dict.fromkeys(LIMITS, ""), **texts, **said, "facts": json.dumps(facts)}


def best_config(path: Path) -> Config:
    """Read the config of the case's best trial from a best_by_case.tsv."""
    with path.open(encoding="utf-8", newline="") as file:
        found = next(one for one in csv.DictReader(file, delimiter="\t") if one["case"] == CASE)
    names = ("num_envs", "agent_variant", "update_epochs", "batch_size", "minibatch", "num_workers", "prefetch_factor")
    names += ("precision", "tf32", "cudnn_benchmark", "compile", "cuda_graphs", "rollout_device")
    return {name: _read(found[name]) for name in names if found.get(name)}


def _read(text: str) -> bool | int | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdecimal() else text
