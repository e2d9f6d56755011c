"""Compares thin probes of each config with one long window of the trainer's plain command, on the same host.

    python -m benchmarks.probes.agreement --study all_cases --devices 0,1 --out agreement.tsv \\
      --config deepmimic_pi_plus_ppo:num_envs=8192,agent_variant=hiutil --config amp_humanoid:num_envs=6250

In each of `--rounds`, for each config, the script makes `--thin` probes in a session and measures one window of at
least `--seconds` with the plain command. Every second round begins with the plain command, so that a host that changes
its speed changes both alike. The row `plain, its start` says what a window showed once it lasted `EARLY_S`: training
may change what is measured. The script appends a row to `--out` after each probe. It does not measure a row again that
is there already: rerun to resume. With `--minutes` it begins no probe that would probably end later.

The goals, over at least six configs: utilisation differs by at most 0.5 points in the mean, and each config by at most
1 point or its claimed error. Multiprocessors differ by at most 1 and 2 points.
"""

import csv
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from math import hypot
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.devices.found import describe_machine
from tuner.errors import StudyError
from tuner.probe.metrics import error, value
from tuner.probe.probe_plan import Answer, Next, ProbePlan, Slot, Stop
from tuner.probe.process import reserved_port
from tuner.probe.quantities import error_of_mean
from tuner.probe.result import ProbeResult
from tuner.running.job import Probe, Workbench, open_workbench
from tuner.running.prober import open_prober
from tuner.search.verdict import next_answer
from tuner.study.cases import Case, select
from tuner.study.space import Config, Space
from tuner.study.spec import ProbeSpec

Row = dict[str, str]
THIN, PLAIN, EARLY = "thin", "plain", "plain, its start"
EARLY_S = 30.0
MANY = 10_000
METRICS = ("min_avg_util", "min_avg_sm")
USUAL_S = {THIN: 90.0, PLAIN: 120.0}
"""How long a probe without its window usually takes, in seconds. `--minutes` counts on this."""
COLUMNS = (
    *("case", "setting", "way", "number", "outcome"),
    *(name for metric in METRICS for name in (metric, f"{metric}_se")),
    *("samples_per_s", "window_s", "trained_s", "iterations", "total_s"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One probe to make: a config of a case, how it is measured, and which of its repetitions it is."""

    case: str
    setting: str
    way: str
    number: int

    @property
    def key(self) -> tuple[str, ...]:
        """What names the probe in the file of rows."""
        return (self.case, self.setting, self.way, str(self.number))


def tasks(configs: Sequence[str], thin: int, rounds: int) -> Iterator[Task]:
    """Yield the probes of each round: of each config the thin ones and the plain one, in turn the other way round."""
    for turn in range(rounds):
        for text in configs:
            case, _, setting = text.partition(":")
            probes = [Task(case, setting, THIN, turn * thin + number) for number in range(thin)]
            probes.append(Task(case, setting, PLAIN, turn))
            yield from probes if turn % 2 == 0 else reversed(probes)


def row(task: Task, result: ProbeResult) -> Row:
    """Return the row of a probe; an unknown number is an empty text."""
    numbers = {name: number for metric in METRICS for name, number in _reading(result, metric)}
    numbers |= {name: getattr(result, name) for name in COLUMNS if name in ("samples_per_s", "window_s", "trained_s")}
    numbers |= {"iterations": result.iterations, "total_s": result.total_s}
    outcome = f"{result.failure.kind}: {result.failure.detail}" if result.failure else "; ".join(("ok", *result.notes))
    texts = {name: "" if number is None else f"{number:.2f}" for name, number in numbers.items()}
    return dict(zip(COLUMNS, task.key, strict=False)) | {"outcome": " ".join(outcome.split())} | texts


def _reading(result: ProbeResult, metric: str) -> Iterator[tuple[str, float | None]]:
    yield metric, value(result, metric)
    yield f"{metric}_se", error(result, metric)


def differences(rows: Sequence[Row], metric: str) -> Iterator[list[str]]:
    """Yield the cells of each config that was measured in both ways, and of the mean of all."""
    found: list[float] = []
    for case, setting in dict.fromkeys((one["case"], one["setting"]) for one in rows):
        same = [one for one in rows if (one["case"], one["setting"]) == (case, setting) and one[metric]]
        thin, plain = ([one for one in same if one["way"] == way] for way in (THIN, PLAIN))
        if not thin or not plain:
            continue
        thin_mean, thin_error = mean(thin, metric)
        plain_mean, plain_error = mean(plain, metric)
        claimed = fmean(float(one[f"{metric}_se"]) for one in thin)
        off = thin_mean - plain_mean
        found.append(off)
        yield [
            f"{case} {setting}",
            metric,
            f"{thin_mean:.2f} ± {thin_error:.2f} ({len(thin)})",
            f"{claimed:.2f}",
            f"{plain_mean:.2f} ± {plain_error:.2f} ({len(plain)})",
            f"{off:+.2f}",
            f"{abs(off) / hypot(thin_error, plain_error):.1f}" if thin_error or plain_error else "",
        ]
    if found:
        yield ["mean of all", metric, "", "", "", f"{fmean(found):+.2f}", ""]


def mean(rows: Sequence[Row], metric: str) -> tuple[float, float]:
    """Return the mean of a metric over probes, and its standard error."""
    values = [float(one[metric]) for one in rows]
    return fmean(values), error_of_mean(values, [float(one[f"{metric}_se"]) for one in rows]) or 0.0


def recorded(out: Path) -> list[Row]:
    """Return the rows that an earlier command has written."""
    if not out.exists():
        return []
    with out.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def append(out: Path, one: Row, columns: Sequence[str]) -> None:
    """Write a row to the file, below the names of the columns."""
    is_new = not out.exists()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter="\t")
        if is_new:
            writer.writeheader()
        writer.writerow(one)


class Bench:
    """A case on a workbench, probed config by config with the same prober and limits."""

    def __init__(self, bench: Workbench, case: Case, probe: Probe, folder: Path) -> None:
        self.workbench = bench
        self.case = case
        self.limits = bench.spec_for(case).probe
        self._probe = probe
        self._out_dirs = (folder / str(number) for number in count())

    def probe(
        self, config: Config, *, warm: bool = False, limits: ProbeSpec | None = None, stop: Stop | None = None
    ) -> ProbeResult:
        """Probe once, by default until the value is known as precisely as the study asks."""
        limits = limits or self.limits
        with reserved_port() as port:
            plan = self._plan(config, limits, port, warm=warm)
            return self._probe(plan, stop or self._precise)

    def _plan(self, config: Config, limits: ProbeSpec, port: int, *, warm: bool) -> ProbePlan:
        bench = self.workbench
        out_dir = next(self._out_dirs)
        slot = Slot(devices=bench.devices, out_dir=out_dir, port=port, limits=limits, variables=bench.variables)
        plan = (bench.trainer.warm_plan if warm else bench.trainer.plan)(self.case, config, slot)
        if plan is None:
            raise StudyError(f"{bench.trainer.name} has no sessions for {self.case.name}")
        return plan

    def _precise(self, so_far: ProbeResult | None) -> Answer:
        return next_answer(so_far, self.workbench.spec.objectives, self.limits) if so_far else Answer(Next.GO)


def window_of(seconds: float) -> Stop:
    """Stop a probe once its window is this long."""
    return lambda so_far: Answer(Next.ENOUGH) if so_far and (so_far.window_s or 0.0) >= seconds else Answer(Next.GO)


def chosen(space: Space, settings: Sequence[str]) -> list[Config]:
    """Return the space's first seed, changed by each setting in turn, such as `num_envs=1024,agent_variant=default`.

    Raises StudyError for a name or value that is not in the space.
    """
    return [_changed(space, setting) for setting in settings] or space.start_configs(1)[:1]


def _changed(space: Space, setting: str) -> Config:
    changes = dict(part.split("=", 1) for part in setting.split(",") if "=" in part)
    known = {name: {str(value): value for value in space.values(name)} for name in space.names}
    try:
        wanted = {name: known[name][text] for name, text in changes.items()}
    except KeyError as error:
        raise StudyError(f"{setting}: {error} is not in the space of {', '.join(space.names)}") from error
    seed = space.start_configs(1)[0]
    return space.config_of(lambda parameter: wanted.get(parameter.name, seed.get(parameter.name, parameter.values[0])))


class Watching:
    """Ends a probe once its window lasts `seconds`, and keeps what the window showed after `EARLY_S`."""

    def __init__(self, seconds: float) -> None:
        self.early: ProbeResult | None = None
        self._answer = window_of(seconds)

    def __call__(self, so_far: ProbeResult | None) -> Answer:
        if self.early is None and so_far and (so_far.window_s or 0.0) >= EARLY_S:
            self.early = so_far
        return self._answer(so_far)


def measure(bench: Workbench, task: Task, probing: Bench, seconds: float) -> Iterator[Row]:
    """Make one probe and yield its row, and for the plain command also the row of its start."""
    (config,) = chosen(bench.space_for(probing.case), [task.setting] if task.setting else [])
    if task.way == THIN:
        yield row(task, probing.probe(config, warm=True, limits=probing.limits.model_copy(update={"thin": True})))
        return
    long = {"iterations": MANY, "max_seconds": probing.limits.max_seconds + seconds}
    watching = Watching(seconds)
    result = probing.probe(config, limits=probing.limits.model_copy(update=long), stop=watching)
    if watching.early:
        yield row(replace(task, way=EARLY), watching.early)
    yield row(task, result)


def main(
    configs: Annotated[list[str], typer.Option("--config", help="CASE:num_envs=N,…, once per config")],
    study: Annotated[str, typer.Option()] = "pi_plus",
    devices: Annotated[str | None, typer.Option()] = None,
    thin: Annotated[int, typer.Option(min=1, help="thin probes of each config in a round")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="how often both ways follow each other")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="the plain command's window")] = 150.0,
    minutes: Annotated[float | None, typer.Option(help="begin no probe that would end later")] = None,
    out: Annotated[Path, typer.Option(help="the file of rows")] = Path("agreement.tsv"),
) -> None:
    began_s = time.monotonic()
    bench = open_workbench(study, devices=devices)
    console = Console(width=200)
    console.print(describe_machine(bench.source))
    rows = recorded(out)
    done = {tuple(one[name] for name in COLUMNS[:4]) for one in rows}
    with TemporaryDirectory() as folder, closing(open_prober(bench)) as prober:
        places = (Path(folder).resolve() / str(number) for number in range(MANY))
        for task in tasks(configs, thin, rounds):
            if task.key in done:
                continue
            expected_s = USUAL_S[task.way] + (seconds if task.way == PLAIN else 0.0)
            if minutes is not None and time.monotonic() - began_s + expected_s > 60 * minutes:
                console.print(f"no time for {' '.join(task.key)}; rerun to resume here")
                break
            (case,) = select(bench.trainer.cases(), [task.case])
            for one in measure(bench, task, Bench(bench, case, prober, next(places)), seconds):
                rows.append(one)
                append(out, one, COLUMNS)
                print(*one.values(), sep=" | ", flush=True)
    table = Table("config", "metric", "thin", "a probe claims", "plain", "apart", "in errors", box=box.MARKDOWN)
    for metric in METRICS:
        for cells in differences(rows, metric):
            table.add_row(*cells)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
