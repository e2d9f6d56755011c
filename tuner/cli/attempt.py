"""`tuner try`: one probe outside of the study's database, and what it shows about the study file."""

import shlex
from contextlib import closing
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.advice import advice, matched
from tuner.cli.chosen import chosen_cases
from tuner.cli.console import open_console
from tuner.cli.introduction import cut_ladders
from tuner.cli.loaded import exposed, stand_in
from tuner.cli.options import RUNS, Devices, Runs, Study
from tuner.cli.plan import Settings, first_config
from tuner.cli.work import EXIT_INTERRUPTED, interruptible
from tuner.devices.base import open_devices
from tuner.errors import TunerError
from tuner.export.words import in_words, with_error
from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import error, value
from tuner.probe.plan import ProbePlan
from tuner.probe.result import ProbeResult
from tuner.probe.stop import Go, Interrupted
from tuner.prober import open_prober
from tuner.running.launching import run_in
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.variables import shell_join
from tuner.units import duration
from tuner.workbench import Workbench, open_workbench

OneCase = Annotated[str | None, typer.Option("--case", help="The case to probe; default: the study's first.")]


def attempt(
    study: Study, case: OneCase = None, settings: Settings = None, devices: Devices = None, runs: Runs = RUNS
) -> None:
    """Probe one config and show what was matched, counted and measured. The study's results stay as they are."""
    console = open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    chosen = chosen_cases(bench, [case] if case else None)[0]
    config = first_config(bench, chosen, settings or [])
    for line in (*stand_in(bench.spec, study), *exposed(bench.spec), *cut_ladders(bench, [chosen])):
        console.print(line)
    plan, result = _probe(console, bench, chosen, config)
    if result.failure and result.failure.kind is FailureKind.INTERRUPTED:
        raise typer.Exit(EXIT_INTERRUPTED)
    _show(console, bench, plan, result)
    if result.failure:
        kind, detail = result.failure.kind, result.failure.detail
        remedy = kind.remedy or f"read {plan.slot.console}"
        raise TunerError(f"{kind}: {detail}; {remedy}")
    cards = len(open_devices("auto").devices) if bench.kind == "gpu" else 0
    for line in advice(bench.spec_for(chosen), plan, result, cards):
        console.print(f"to change: {line}")
    console.print(f"next: `{shlex.join(['tuner', 'optimize', '--study', study])}` searches")


def _probe(console: Console, bench: Workbench, case: Case, config: Config) -> tuple[ProbePlan, ProbeResult]:
    def run(plan: ProbePlan) -> tuple[ProbePlan, ProbeResult]:
        console.print(f"case {case.name}: {in_words(config)}")
        console.print(f"command: {shell_join(plan.argv)}")
        with interruptible(console) as asked, closing(open_prober(bench, console.print)) as prober:
            return plan, prober(plan, lambda _: Interrupted() if asked.is_set() else Go())

    return run_in(bench.slot(case, f"try/{case.name}"), partial(bench.trainer.plan, case, config), run)


def _counted(plan: ProbePlan, matched: int) -> str:
    """Return what counts the iterations: printed lines, a file, or the trainer's own reports."""
    if plan.progress.patterns:
        return f"{matched} matched `progress`"
    return "iterations are in `progress_file`" if plan.progress_file else "the trainer reports its iterations itself"


def _show(console: Console, bench: Workbench, plan: ProbePlan, result: ProbeResult) -> None:
    seen = matched(plan)
    console.print(f"output: {seen.printed} line(s), {_counted(plan, seen.matched)}; {plan.slot.console}")
    for line in seen.shown:
        console.print(f"  {line}")
    window = "" if result.window_s is None else f" in a window of {duration(result.window_s)}"
    console.print(f"iterations: {result.iterations}{window}, the whole probe {duration(result.total_s)}")
    if result.start_up_s is not None:
        console.print(f"  the first after {duration(result.start_up_s)}")
    if result.window_s and result.iterations:
        console.print(f"  {result.window_s / result.iterations:.3g} s from one printed iteration to the next")
    for one, device in zip(result.devices, bench.devices, strict=False):
        util = (
            "utilisation unknown"
            if one.util_mean_pct is None
            else f"{with_error(one.util_mean_pct, one.util_se_pct)} %"
        )
        memory = "" if one.mem_peak_mib is None else f", at most {one.mem_peak_mib:.0f} MiB"
        console.print(f"{device.label}: {util}{memory}")
    for name in dict.fromkeys((*bench.spec.objectives, "samples_per_s")):
        number = value(result, name)
        console.print(f"{name}: {'-' if number is None else with_error(number, error(result, name))}")
    for note in result.notes:
        console.print(f"note: {note}")
