"""Measures what precision, compiled code, graphs, the place of the rollout and the minibatch do to samples per second.

    python -m benchmarks.probes.kernels --devices 0 --minutes 5 --out kernels.tsv
    python -m benchmarks.probes.kernels --out kernels.tsv --show > benchmarks/results/reference_kernels.md

The trainer is the reference trainer with the case deepmimic_pi_plus_ppo on one device. Each row is a probe of a config.
`default` is the config that the trainer's own defaults make. The next rows change one thing each, at one number of
environments and with clips prepared by other processes. The last rows change several things together. What is learnt
differs between rows only in the number of environments and in the minibatch; both are columns.

Each row goes to a file at once. The same command goes on with the rows that are missing. `--best FILE` adds the best
config of a search, from its best_by_case.tsv. `--show` prints the page of results and probes nothing.
"""

import csv
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer

from benchmarks.probes.bounds import CARDS, Card, Launches, bounds, clip_seconds, count_launches, launch_seconds, work
from benchmarks.probes.probing import Bench, window_of
from tuner.devices.base import describe_machine
from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import error, value
from tuner.probe.result import ProbeResult
from tuner.prober import open_prober
from tuner.study.batch import Tried, fit, next_size
from tuner.study.cases import select
from tuner.study.space import Config, written
from tuner.trainers.reference.agent import STEPS_PER_ITERATION, agent_settings, default_hidden_units
from tuner.workbench import open_workbench

CASE = "deepmimic_pi_plus_ppo"
DEFAULT, BEST = "default", "best of the search"
USUAL_S = 30.0
"""How long a row usually takes, in seconds. `--minutes` counts on this."""
WINDOW_S, MEMORY_WINDOW_S = 5.0, 0.5
"""The seconds that a row is measured, and those of a probe that only shows memory."""
METRICS = ("samples_per_s", "min_avg_util", "min_avg_sm", "min_avg_tensor", "min_avg_dram", "mem_peak_mib")
LIMITS = ("memory", "launches", "arithmetic", "clips")
COLUMNS: tuple[str, ...] = (
    "name",
    "config",
    "outcome",
    *METRICS,
    "samples_per_s_se",
    "total_s",
    "device",
    *LIMITS,
    "facts",
)
Row = dict[str, str]

_ROUND: Config = {"num_envs": 4096}
_SMALL: Config = {"num_envs": 1024}
_FEW: Config = {"num_envs": 64}


def rows(*, gpu: bool, workers: int, minibatch: int | None) -> Iterator[tuple[str, Config]]:
    """Yield the name and the config of each row; `minibatch` is what `auto` works out, None where no size has run."""
    auto: Config = {} if minibatch is None else {"minibatch": minibatch}
    if not gpu:
        yield from (
            (DEFAULT, _FEW),
            ("clip workers", _FEW | {"num_workers": 1}),
            ("bf16", _FEW | {"num_workers": 1, "precision": "bf16"}),
            ("compile", _FEW | {"num_workers": 1, "compile": True}),
            ("minibatch auto", _FEW | auto | {"num_workers": 1}),
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


def recorded(out: Path) -> list[Row]:
    """Return the rows that an earlier command has written."""
    if not out.exists():
        return []
    with out.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def append(out: Path, one: Row) -> None:
    """Write a row to the file, below the names of the columns."""
    is_new = not out.exists()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t")
        if is_new:
            writer.writeheader()
        writer.writerow(one)


def row(name: str, result: ProbeResult, limits: Mapping[str, float], facts: Mapping[str, object], device: str) -> Row:
    """Return the row of a probe; an unknown number is an empty text."""
    outcome = f"{result.failure.kind}: {result.failure.detail}" if result.failure else "; ".join(("ok", *result.notes))
    numbers = {metric: value(result, metric) for metric in METRICS}
    numbers |= {"samples_per_s_se": error(result, "samples_per_s"), "total_s": result.total_s, **limits}
    texts = {column: "" if number is None else f"{number:.2f}" for column, number in numbers.items()}
    config = json.dumps(result.config)
    said = {"name": name, "config": config, "outcome": " ".join(outcome.split()), "device": device}
    return {**dict.fromkeys(LIMITS, ""), **texts, **said, "facts": json.dumps(facts)}


def page(found: Sequence[Row]) -> str:
    """Return the page of results."""
    ran = [one for one in found if one["samples_per_s"]]
    default = next((one for one in ran if one["name"] == DEFAULT), None)
    top = max((one for one in ran), key=lambda one: float(one["samples_per_s"]), default=None)
    facts = json.loads(found[0]["facts"]) if found else {}
    lines = [
        "# Precision and kernels of the reference trainer",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, one {found[0]['device'] if found else 'device'}, case `{CASE}`. "
        "`python -m benchmarks.probes.kernels` measured each row as one probe, and writes this page with `--show`.",
        "",
    ]
    if default and top:
        times = float(top["samples_per_s"]) / float(default["samples_per_s"])
        lines += [
            f"**{top['name']}** makes {times:.1f} times the samples/s of the trainer's own defaults: "
            f"{_number(top, 'samples_per_s')} against {_number(default, 'samples_per_s')}.",
            "",
        ]
    heads = ["row", "environments", "minibatch", "samples/s", "±", "times default", "util, %", "SM, %", "tensor, %"]
    heads += ["DRAM, %", "memory, MiB", *(f"bound by {name}" for name in LIMITS)]
    lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cells(one, default))} |" for one in found]
    lines += ["", *(f"- {name}: {fact}" for name, fact in facts.items() if name != "auto"), "", *_explained()]
    return "\n".join(lines)


def _cells(one: Row, default: Row | None) -> Iterator[str]:
    config = json.loads(one["config"])
    agent = agent_settings(config, hidden_units=1)
    yield one["name"]
    yield f"{config['num_envs']:,}"
    yield f"{min(agent.minibatch_of(config['num_envs']), config['num_envs'] * STEPS_PER_ITERATION):,}"
    yield _number(one, "samples_per_s") or one["outcome"].split(":")[0]
    yield _number(one, "samples_per_s_se")
    known = default and one["samples_per_s"]
    yield f"{float(one['samples_per_s']) / float(default['samples_per_s']):.2f}" if default and known else ""
    yield from (_number(one, metric, digits=1) for metric in METRICS[1:-1])
    yield _number(one, "mem_peak_mib")
    yield from (_number(one, name) for name in LIMITS)


def _number(one: Row, column: str, digits: int = 0) -> str:
    return f"{float(one[column]):,.{digits}f}" if one[column] else ""


def _explained() -> Iterator[str]:
    yield "The bounds are in samples/s. Each says what would be reached if only this limit counted:"
    yield ""
    yield "- memory: the bytes of all layers, gradients and moments of Adam at the bandwidth of the data sheet, as if"
    yield "  nothing stayed in a cache. A compiled loss moves fewer bytes, and the cache holds the weights."
    yield "- launches: all operations that are launched one by one, at the measured time of a launch."
    yield "- arithmetic: the products of all layers at the dense rate of the data sheet in this number format."
    yield "- clips: the clips of an iteration, prepared by one process or by its workers, at the time of a clip."


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


def auto_minibatch(probing: Bench, config: Config, largest: int, total_mib: float | None) -> tuple[int | None, str]:
    """Work out the minibatch for up to `largest` environments as `minibatch: auto` does; return how it follows, too."""
    at_hand, tried = int(config["num_envs"]) * STEPS_PER_ITERATION, list[Tried]()
    while size := next_size(tried, samples=at_hand):
        result = probing.probe(config | {"minibatch": size}, warm=True, stop=window_of(MEMORY_WINDOW_S))
        if result.failure and result.failure.kind is not FailureKind.GPU_OOM:
            break
        tried.append(Tried(size=size, used_mib=value(result, "mem_peak_mib"), fits=result.failure is None))
        print("minibatch", tried[-1], flush=True)
    made = fit(tried, total_mib=total_mib, samples=largest * STEPS_PER_ITERATION)
    return (made.size, str(made)) if made else (None, "no size has run")


def measured_limits(
    result: ProbeResult, launches: Launches, device: str, card: Card | None, *, launch_s: float, clip_s: float
) -> dict[str, float]:
    """Return the bounds of a row's config."""
    config = dict(result.config)
    agent = agent_settings(config, hidden_units=default_hidden_units(device))
    made = work(agent, int(config["num_envs"]), launches, config=config)
    return bounds(made, card, config=config, launch_s=launch_s, clip_s=clip_s)


def main(
    study: Annotated[str, typer.Option()] = "h200_reference",
    devices: Annotated[str | None, typer.Option(help="one device, such as 0 or cpu:1")] = None,
    minutes: Annotated[float | None, typer.Option(help="begin no row that would end later")] = None,
    out: Annotated[Path, typer.Option(help="the file of rows")] = Path("kernels.tsv"),
    best: Annotated[Path | None, typer.Option(help="a search's best_by_case.tsv")] = None,
    only: Annotated[list[str] | None, typer.Option(help="the name of a row; repeat for more")] = None,
    show: Annotated[bool, typer.Option("--show", help="print the page of results only")] = False,
) -> None:
    if show:
        print(page(recorded(out)))
        return
    began_s = time.monotonic()
    bench = open_workbench(study, devices=devices)
    machine, (device, *_) = describe_machine(bench.source), bench.devices
    gpu, workers = device.is_gpu, min(max(len(os.sched_getaffinity(0)) - 2, 1), 14)
    torch.set_num_threads(1)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # the card must be free again for the probes
        launch_s = pool.submit(launch_seconds, device.name if gpu else "cpu").result()
    clip_s, launches = clip_seconds(), count_launches(agent_settings({}, hidden_units=8))
    card = next((one for part, one in CARDS.items() if part in device.model), None)
    facts = {"machine": ", ".join(f"{name} {text}" for name, text in machine.items())}
    facts |= {"a launch": f"{launch_s * 1e6:.2f} µs", "a clip": f"{clip_s * 1e6:.0f} µs on one core"}
    facts |= {"operations": f"{launches.rollout} in a rollout, {launches.update} for a minibatch"}
    print(facts, flush=True)
    found = recorded(out)
    (case,) = select(bench.trainer.cases(), [CASE])
    with TemporaryDirectory() as folder, closing(open_prober(bench)) as prober:
        probing = Bench(bench, case, prober, Path(folder).resolve())
        auto: tuple[int | None, str] | None = next(
            (
                (json.loads(one["facts"])["auto"], json.loads(one["facts"])["minibatch auto"])
                for one in found
                if "auto" in json.loads(one["facts"])
            ),
            None,
        )
        if auto is None:
            auto = auto_minibatch(probing, _SMALL if gpu else _FEW, 16384 if gpu else 64, device.mem_total_mib)
        facts |= {"auto": auto[0], "minibatch auto": auto[1]}
        named = list(rows(gpu=gpu, workers=workers, minibatch=auto[0]))
        if best is not None and best.exists():
            named.append((BEST, best_config(best)))
        for name, config in named:
            if name in {one["name"] for one in found} or (only and name not in only):
                continue
            if minutes is not None and time.monotonic() - began_s + USUAL_S > 60 * minutes:
                print(f"no time for {name}; the same command goes on here", flush=True)
                break
            result = probing.probe(config, warm=name not in (DEFAULT, BEST), stop=window_of(WINDOW_S))
            limits = measured_limits(result, launches, device.name, card, launch_s=launch_s, clip_s=clip_s)
            found.append(row(name, result, limits, facts, device.model))
            append(out, found[-1])
            shown = " ".join(f"{key}={written(text)}" for key, text in config.items())
            print(name, shown, *(found[-1][column] for column in COLUMNS[2:-1]), sep=" | ", flush=True)
    print(page(found))


if __name__ == "__main__":
    typer.run(main)
