"""How true the measured value is: repeated probes of a config against one long reference, with the error they claim.

    python benchmarks/measurement.py --case deepmimic_pi_plus_ppo --set num_envs=1024 --set num_envs=8192

For each config one probe with a window of `--reference-seconds`, then `--probes` probes that end as the study says.
From the same runs: what a fixed number of iterations would have cost, and what the predecessor's rule (one reading a
second, the first 20 skipped, start-up or not) would have read. The goals: a spread between probes of no more than 1.5
times the error they claim, and a mean within 1 point of the reference.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tuner.devices.base import describe_machine
from tuner.probe.clock import MonotonicClock
from tuner.probe.metrics import error, value
from tuner.probe.plan import Slot
from tuner.probe.port import reserved_port
from tuner.probe.process import Launcher
from tuner.probe.recorder import SamplingRecorder
from tuner.probe.result import DeviceSample, ProbeResult
from tuner.probe.run import ENOUGH, Stop, run
from tuner.search.verdict import settled
from tuner.study.cases import Case, select
from tuner.study.space import Config
from tuner.study.spec import ProbeSpec
from tuner.workbench import Workbench, open_workbench

SKIPPED_S = 20
MANY = 10_000


def measured(
    bench: Workbench, case: Case, config: Config, limits: ProbeSpec, stop: Stop, folder: Path
) -> tuple[ProbeResult, float | None]:
    """Probe once; give the result and the predecessor's reading of the same run."""
    clock = MonotonicClock()
    recorder = SamplingRecorder(bench.source, clock, limits.sample_seconds)
    with reserved_port() as port:
        slot = Slot(
            devices=bench.devices, out_dir=folder / "probe", port=port, limits=limits, variables=bench.variables
        )
        plan = bench.trainer.plan(case, config, slot)
        result = run(plan, launch=Launcher(clock), recorder=recorder, clock=clock, stop=stop)
    return result, predecessor(recorder.samples(), len(bench.devices))


def predecessor(samples: list[DeviceSample], devices: int) -> float | None:
    """Read utilisation as one reading a second with the first 20 left out: the least mean over devices, in percent."""
    means = []
    for device in range(devices):
        seconds = {int(one.t_s): one.util_pct for one in samples if one.device == device and one.util_pct is not None}
        kept = [util for second, util in seconds.items() if second >= SKIPPED_S]
        if kept:
            means.append(fmean(kept))
    return min(means, default=None)


def window_of(seconds: float) -> Stop:
    return lambda so_far: ENOUGH if so_far and (so_far.window_s or 0.0) >= seconds else None


def as_the_study_says(bench: Workbench, limits: ProbeSpec) -> Stop:
    objective = bench.spec.objective
    return lambda so_far: ENOUGH if so_far and settled(so_far, objective, limits, None) else None


def rows(bench: Workbench, case: Case, configs: list[Config], probes: int, reference_s: float) -> Iterator[list[str]]:
    limits, devices = bench.spec_for(case).probe, len(bench.devices)
    long = limits.model_copy(update={"iterations": MANY, "max_seconds": limits.max_seconds + reference_s})
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for config in configs:
            truth, _ = measured(bench, case, config, long, window_of(reference_s), folder)
            reference = value(truth, bench.spec.objective)
            stop = as_the_study_says(bench, limits)
            runs = [measured(bench, case, config, limits, stop, folder) for _ in range(probes)]
            good = [(result, old) for result, old in runs if result.ok]
            values = [number for result, _ in good if (number := value(result, bench.spec.objective)) is not None]
            claimed = [known for result, _ in good if (known := error(result, bench.spec.objective)) is not None]
            if reference is None or len(values) < 2 or not claimed:
                yield [str(config), "no value", *[""] * 8]
                continue
            iteration_s = median((result.window_s or 0.0) / result.iterations for result, _ in good)
            fixed_s = devices * iteration_s * (limits.iterations - limits.warmup_iterations)
            spent_s = devices * fmean(result.window_s or 0.0 for result, _ in good)
            old = [number for _, number in good if number is not None]
            yield [
                " ".join(map(str, config.values())),
                f"{reference:.1f}",
                f"{fmean(values):.1f}",
                f"{fmean(values) - reference:+.2f}",
                f"{stdev(values):.2f}",
                f"{fmean(claimed):.2f}",
                f"{stdev(values) / fmean(claimed):.2f}",
                f"{spent_s:.0f}",
                f"{fixed_s:.0f}",
                f"{fmean(old):.1f}" if old else "",
            ]


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    settings: Annotated[list[str] | None, typer.Option("--set", help="num_envs=N, once per config")] = None,
    devices: Annotated[str | None, typer.Option()] = None,
    probes: Annotated[int, typer.Option(min=2)] = 10,
    reference_seconds: Annotated[float, typer.Option(min=1)] = 200.0,
) -> None:
    bench = open_workbench(study, devices=devices)
    (chosen,) = select(bench.trainer.cases(), [case])
    seed = bench.space_for(chosen).seeds(1)[0]
    changes = [dict([text.split("=", 1)]) for text in settings or []] or [{}]
    configs = [seed | {name: int(number) for name, number in change.items()} for change in changes]
    heads = ("config", "reference", "mean", "off by", "spread", "claimed", "ratio", "device-s", "fixed", "predecessor")
    table = Table(*heads, title=f"{bench.spec.name}/{case}: {bench.spec.objective}, {probes} probes each")
    for row in rows(bench, chosen, configs, probes, reference_seconds):
        table.add_row(*row)
    console = Console(width=140)
    console.print(describe_machine(bench.source))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
