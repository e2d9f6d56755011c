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

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer

from benchmarks.probes.bounds import CARDS, Launches, bounds, clip_seconds, count_launches, launch_seconds, work
from benchmarks.probes.kept_rows import Row, append, recorded
from benchmarks.probes.kernels_page import page
from benchmarks.probes.kernels_rows import (
    BEST,
    CASE,
    COLUMNS,
    DEFAULT,
    FEW,
    SMALL,
    best_config,
    row,
    rows,
)
from benchmarks.probes.probing import Bench, window_of
from tuner.devices.found import describe_machine
from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import value
from tuner.probe.probe_plan import Device
from tuner.running.prober import open_prober
from tuner.running.workbench import open_workbench
from tuner.study.batch import Tried, first_size, fit, next_size
from tuner.study.cases import select
from tuner.study.space import Config, written
from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, default_hidden_units, run_config

USUAL_S = 30.0
"""How long a row usually takes, in seconds. `--minutes` counts on this."""
WINDOW_S = 5.0
"""The seconds that a row is measured."""
MOST_WORKERS = 14
"""The most processes that prepare clips; two cores are left for the rank and for the tuner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What the bounds need to know of the machine."""

    device: Device
    launch_s: float
    clip_s: float
    launches: Launches

    @classmethod
    def measured(cls, device: Device) -> "Machine":
        """Measure the machine. Another process uses the card, so that the card is free again for the probes."""
        torch.set_num_threads(1)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            launch_s = pool.submit(launch_seconds, device.name if device.is_gpu else "cpu").result()
        launches = count_launches(run_config({}).agent(hidden_units=8))
        return cls(device=device, launch_s=launch_s, clip_s=clip_seconds(), launches=launches)

    def facts(self) -> dict[str, str]:
        """Return what was measured, for the page."""
        return {
            "a launch": f"{self.launch_s * 1e6:.2f} µs",
            "a clip": f"{self.clip_s * 1e6:.0f} µs on one core",
            "operations": f"{self.launches.rollout} in a rollout, {self.launches.update} for a minibatch",
        }

    def bounds(self, config: Config) -> dict[str, float]:
        """Return the bounds of a config, in samples/s."""
        agent = run_config(config).agent(hidden_units=default_hidden_units(self.device.name))
        made = work(agent, int(config["num_envs"]), self.launches, config=config)
        card = next((one for part, one in CARDS.items() if part in self.device.model), None)
        return bounds(made, card, config=config, launch_s=self.launch_s, clip_s=self.clip_s)


def auto_minibatch(
    probing: Bench, found: Sequence[Row], *, config: Config, largest: int, total_mib: float | None
) -> tuple[int | None, str]:
    """Work out the minibatch for up to `largest` environments as `minibatch: auto` does; return how it follows, too.

    What an earlier command has worked out stays.
    """
    if found and (facts := json.loads(found[0]["facts"])).get("auto"):
        return facts["auto"], facts["minibatch auto"]
    at_hand, tried = int(config["num_envs"]) * STEPS_PER_ITERATION, list[Tried]()
    while size := next_size(tried, first=first_size(at_hand), samples=at_hand):
        result = probing.probe(config | {"minibatch": size}, warm=True, stop=window_of(probing.limits.window_seconds))
        fits = True if result.failure is None else False if result.failure.kind is FailureKind.GPU_OOM else None
        tried.append(Tried(size=size, used_mib=value(result, "mem_peak_mib"), fits=fits))
        print("minibatch", tried[-1], result.failure or "", flush=True)
    made = fit(tried, total_mib=total_mib, samples=largest * STEPS_PER_ITERATION)
    return (made.size, str(made)) if made else (None, "no size has run")


def measure(
    probing: Bench, machine: Machine, out: Path, *, best: Path | None, only: Sequence[str], ends_s: float
) -> None:
    """Measure the rows that the file lacks; `ends_s` is when to stop, on `time.monotonic`."""
    found, gpu = recorded(out), machine.device.is_gpu
    size, how = auto_minibatch(
        probing,
        found,
        config=SMALL if gpu else FEW,
        largest=16384 if gpu else 64,
        total_mib=machine.device.mem_total_mib,
    )
    described = ", ".join(f"{name} {text}" for name, text in describe_machine(probing.workbench.source).items())
    facts = {"machine": described, **machine.facts(), "auto": size, "minibatch auto": how}
    workers = min(max(len(os.sched_getaffinity(0)) - 2, 1), MOST_WORKERS)
    named = dict(rows(gpu=gpu, workers=workers, minibatch=size))
    if best is not None and best.exists():
        named[BEST] = best_config(best)
    for name, config in named.items():
        if name in {one["name"] for one in found} or (only and name not in only):
            continue
        if time.monotonic() + USUAL_S > ends_s:
            print(f"no time for {name}; the same command goes on here", flush=True)
            return
        result = probing.probe(config, warm=name not in (DEFAULT, BEST), stop=window_of(WINDOW_S))
        one = row(name, result, machine.bounds(config), facts, machine.device.model)
        append(out, one, COLUMNS)
        shown = " ".join(f"{key}={written(text)}" for key, text in config.items())
        print(name, shown, *(one[column] for column in COLUMNS[2:-1]), sep=" | ", flush=True)


def main(
    study: Annotated[str, typer.Option()] = "h200_reference",
    devices: Annotated[str | None, typer.Option(help="one device, such as 0 or cpu:1")] = None,
    minutes: Annotated[float, typer.Option(help="begin no row that would end later")] = 60.0,
    out: Annotated[Path, typer.Option(help="the file of rows")] = Path("kernels.tsv"),
    best: Annotated[Path | None, typer.Option(help="a search's best_by_case.tsv")] = None,
    only: Annotated[list[str] | None, typer.Option(help="the name of a row; repeat for more")] = None,
    show: Annotated[bool, typer.Option("--show", help="print the page of results only")] = False,
) -> None:
    if not show:
        ends_s = time.monotonic() + 60 * minutes
        bench = open_workbench(study, devices=devices)
        machine = Machine.measured(bench.devices[0])
        print(machine.facts(), flush=True)
        (case,) = select(bench.trainer.cases(), [CASE])
        with TemporaryDirectory() as folder, closing(open_prober(bench)) as prober:
            probing = Bench(bench, case, prober, Path(folder).resolve())
            measure(probing, machine, out, best=best, only=only or (), ends_s=ends_s)
    print(page(recorded(out)))


if __name__ == "__main__":
    typer.run(main)
